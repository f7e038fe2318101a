/* SPDX-License-Identifier: MIT
 *
 * The functions of update.h for one rule, RULE. The Makefile compiles this file once for each rule
 * and each instruction set. With rule and dim as constants, the compiler turns the loops over a row
 * into straight-line code.
 */
#include "kernels/host/update.h"

#define KIND_OF_(rule) RULE_##rule
#define KIND_OF(rule)  KIND_OF_(rule)
#define OWN_(rule)     update_##rule
#define OWN(rule)      OWN_(rule)

enum { KIND_NUMBER = KIND_OF(RULE) };
#define KIND ((enum rule_kind)KIND_NUMBER)

/* The arrays of one row; NULL for states that the rule does not have. */
struct row_arrays {
    float *w, *s[RULE_ELEM_STATES];
};

ALWAYS_INLINE struct row_arrays row_arrays(const struct table *table, int64_t row) {
    struct row_arrays x = {array_row(&table->weight, row), {NULL}};
    for (int k = 0; k < rule_elem_states(KIND); k++) x.s[k] = array_row(&table->elem[k], row);
    return x;
}

/* Widens the weights of `width` columns from begin into copy[VEC], if they are of a narrower type. Then the columns are
 * whole registers: see runs_as(). */
ALWAYS_INLINE void block_get(const enum dtype type, const float *w, int32_t begin,
                             const int32_t width, float *copy) {
    for (int32_t k = 0; type != FP32 && k + LANES <= width; k += LANES)
        *(lanes_at *)(copy + k) = row_lanes(type, w, begin + k);
}

/* The inverse: writes from[width], rounded. */
ALWAYS_INLINE void block_put(const enum dtype type, float *w, int32_t begin, const int32_t width,
                             const float *from) {
    for (int32_t k = 0; type == FP32 && k < width; k++) w[begin + k] = from[k];
    for (int32_t k = 0; type != FP32 && k + LANES <= width; k += LANES)
        row_put_lanes(type, w, begin + k, *(const lanes_at *)(from + k));
}

/* Element d, of weight w. */
ALWAYS_INLINE struct element row_element(const struct rule_step *step, struct pair rate,
                                         struct row_arrays x, float w, const float *g, int32_t d) {
    struct states s = {{0}};
    for (int k = 0; k < rule_elem_states(KIND); k++) s.x[k] = x.s[k][d];
    /* Sums start from 0, but a single gradient is handed on as it is, unless it is adjusted: -0 becomes 0. */
    const float from = step->adjust.gradient ? -0.0f : 0.0f;
    return rule_element(step, rate, w, s, from + g[d]);
}

/* The addend of element d to the sums over the row, before the step or after it. */
ALWAYS_INLINE struct pair row_term(const struct rule_step *step, const bool after, struct pair rate,
                                   struct row_arrays x, float w, const float *g, int32_t d) {
    const struct element e = row_element(step, rate, x, w, g, d);
    return after ? rule_after(KIND, e) : rule_before(KIND, e);
}

/* VEC lanes of the two sums over a row. */
typedef float block __attribute__((vector_size(VEC * sizeof(float))));
struct block_sums {
    block a, b;
};

/* The addends of `width` columns from begin to the sums over the row, one lane per column. */
ALWAYS_INLINE void row_terms(const struct rule_step *step, const enum dtype type, const bool after,
                             struct pair rate, struct row_arrays x, const float *g, int32_t begin,
                             const int width, float *a, float *b) {
    float copy[VEC];
    block_get(type, x.w, begin, width, copy);
    for (int k = 0; k < width; k++) {
        const struct pair term =
            row_term(step, after, rate, x, type == FP32 ? x.w[begin + k] : copy[k], g, begin + k);
        a[k] = 0.0f + term.a; /* no -0 */
        b[k] = 0.0f + term.b;
    }
}

ALWAYS_INLINE struct block_sums block_terms(const struct rule_step *step, const enum dtype type,
                                            const bool after, struct pair rate, struct row_arrays x,
                                            const float *g, int32_t begin, const int width) {
    float a[VEC] = {0}, b[VEC] = {0};
    row_terms(step, type, after, rate, x, g, begin, width, a, b);
    struct block_sums terms;
    memcpy(&terms.a, a, sizeof a);
    memcpy(&terms.b, b, sizeof b);
    return terms;
}

ALWAYS_INLINE void block_add(struct block_sums *to, const struct block_sums *x) {
    to->a += x->a;
    to->b += x->b;
}

/* Folds eight lanes: adds the upper half to the lower half, down to one lane. */
ALWAYS_INLINE float fold_eight(const float lane[8]) {
    typedef float four __attribute__((vector_size(4 * sizeof(float))));
    four f[2];
    memcpy(f, lane, sizeof f);
    f[0] += f[1];
    return (f[0][0] + f[0][2]) + (f[0][1] + f[0][3]);
}

ALWAYS_INLINE float fold_block(const block *sums) {
    typedef float eight __attribute__((vector_size(8 * sizeof(float))));
    eight e[2];
    float lane[8];
    memcpy(e, sums, sizeof e);
    e[0] += e[1];
    memcpy(lane, e, sizeof lane);
    return fold_eight(lane);
}

/* The sums over a row, in the order of rules.h on every machine. */
ALWAYS_INLINE struct pair row_sums(const struct rule_step *step, const enum dtype type,
                                   const bool after, struct pair rate, struct row_arrays x,
                                   const float *g, int32_t dim) {
    enum { BLOCKS = ROW_LANES / VEC };
    if (dim <= 8) { /* needs fewer registers */
        float a[8] = {0}, b[8] = {0};
        row_terms(step, type, after, rate, x, g, 0, dim, a, b);
        return (struct pair){fold_eight(a), fold_eight(b)};
    }
    struct block_sums sum[BLOCKS] = {{{0}, {0}}}, last = {{0}, {0}};
    const int whole = dim / VEC, blocks = (dim + VEC - 1) / VEC;
    if (whole < blocks) last = block_terms(step, type, after, rate, x, g, whole * VEC, dim % VEC);
    UNROLL(8)
    for (int j = 0; j < BLOCKS; j++) {
        if (j < whole) sum[j] = block_terms(step, type, after, rate, x, g, j * VEC, VEC);
        for (int k = j + BLOCKS; k < whole; k += BLOCKS) {
            const struct block_sums more = block_terms(step, type, after, rate, x, g, k * VEC, VEC);
            block_add(&sum[j], &more);
        }
        if (whole < blocks && j == whole % BLOCKS) block_add(&sum[j], &last);
    }
    UNROLL(3)
    for (int fold = BLOCKS / 2; fold > 0; fold /= 2) {
        UNROLL(4)
        for (int j = 0; j < fold; j++)
            if (j + fold < blocks) block_add(&sum[j], &sum[j + fold]);
    }
    return (struct pair){fold_block(&sum[0].a), fold_block(&sum[0].b)};
}

/* What a visit to the columns of a row writes. */
enum visit { STATES = 1 << 0, WEIGHTS = 1 << 1 };

/* Visits columns begin .. begin + width - 1. New values wait in an array of their own: no compiler then asks
 * whether a store changes what it loads next, and all of them vectorize. scale: see rule_weight(). */
ALWAYS_INLINE void visit_block(const struct rule_step *step, const enum dtype type,
                               const enum visit visit, struct pair rate, struct row_arrays x,
                               const float *g, float scale, int32_t begin, const int32_t width) {
    float copy[VEC], w[VEC], s[RULE_ELEM_STATES][VEC];
    block_get(type, x.w, begin, width, copy);
    for (int32_t k = 0; k < width; k++) {
        struct element e =
            row_element(step, rate, x, type == FP32 ? x.w[begin + k] : copy[k], g, begin + k);
        if (visit & STATES) e.s = rule_states(KIND, e);
        for (int i = 0; i < rule_elem_states(KIND); i++) s[i][k] = e.s.x[i];
        w[k] = rule_weight(KIND, e, scale);
    }
    for (int i = 0; visit & STATES && i < rule_elem_states(KIND); i++)
        for (int32_t k = 0; k < width; k++) x.s[i][begin + k] = s[i][k];
    if (visit & WEIGHTS) block_put(type, x.w, begin, width, w);
}

/* Visits all columns of a row. clang unrolls the first loop unasked where dim is a constant. */
ALWAYS_INLINE void visit_row(const struct rule_step *step, const enum dtype type,
                             const enum visit visit, struct pair rate, struct row_arrays x,
                             const float *g, float scale, int32_t dim) {
    int32_t d = 0;
#ifndef __clang__
    UNROLL(4)
#endif
    for (; d + VEC <= dim; d += VEC) visit_block(step, type, visit, rate, x, g, scale, d, VEC);
    for (; d + VEC / 2 <= dim; d += VEC / 2)
        visit_block(step, type, visit, rate, x, g, scale, d, VEC / 2);
    visit_block(step, type, visit, rate, x, g, scale, d, dim - d);
}

/* type: of weights. */
ALWAYS_INLINE void update_as(const struct rule_step *restrict step, const struct table *restrict to,
                             const enum dtype type, int32_t dim, int64_t row,
                             const float *restrict grad) {
    const struct row_arrays x = row_arrays(to, row);
    struct pair rate = {0, 0};
    if (rule_sums_before(KIND)) rate = row_sums(step, type, false, rate, x, grad, dim);
    rate = rule_row(KIND, step, rate, dim, rule_row_states(KIND) ? array_row(&to->row, row) : NULL);
    if (!rule_sums_after(KIND)) {
        visit_row(step, type, STATES | WEIGHTS, rate, x, grad, 1, dim);
        return;
    }
    visit_row(step, type, STATES, rate, x, grad, 1, dim);
    const float scale =
        rule_scale(KIND, step, rate, row_sums(step, type, true, rate, x, grad, dim), dim);
    visit_row(step, type, WEIGHTS, rate, x, grad, scale, dim);
}

enum { RUNS_DIM_MOST = 256 };

/* sum[columns] = the gradients of entries first .. end - 1, of that type, from `column` on. The pass over the first
 * columns prefetches whole rows. */
ALWAYS_INLINE void sum_unit_run(const struct unit_runs *x, const enum dtype type, uint32_t first,
                                uint32_t end, uint32_t last, const int32_t dim,
                                const int32_t column, const int32_t columns, float *sum) {
    lanes acc[REGISTERS] = {{0}};
    for (uint32_t i = first; i < end; i++) {
        if (column == 0) {
            const uint32_t next = i + x->grad_distance < last ? i + x->grad_distance : i;
            prefetch(x->grad + (uint32_t)x->entry[next] * x->stride, dim * dtype_bytes(type),
                     INTO_L1);
        }
        const char *from = x->grad + (uint32_t)x->entry[i] * x->stride + column * dtype_bytes(type);
        UNROLL(8)
        for (int v = 0; v < columns / LANES; v++) acc[v] += row_lanes(type, from, v * LANES);
    }
    UNROLL(8)
    for (int v = 0; v < columns / LANES; v++) *(lanes_at *)(sum + column + v * LANES) = acc[v];
}

ALWAYS_INLINE void prefetch_arrays(const struct table *t, int64_t row, const int32_t dim,
                                   int64_t weight_bytes) {
    const int64_t bytes = dim * (int64_t)sizeof(float);
    prefetch(array_row(&t->weight, row), weight_bytes, INTO_L2);
    for (int k = 0; k < rule_elem_states(KIND); k++)
        prefetch(array_row(&t->elem[k], row), bytes, INTO_L2);
    if (rule_row_states(KIND))
        prefetch(array_row(&t->row, row), rule_row_states(KIND) * (int64_t)sizeof(float), INTO_L2);
}

/* Updates a row with narrower weights in fp32: in a copy, which is rounded back. */
ALWAYS_INLINE void update_copy(const struct rule_step *restrict step,
                               const struct table *restrict to, const struct table_shape *shape,
                               const int32_t dim, int64_t row, const float *restrict grad) {
    float room[RUNS_DIM_MOST] __attribute__((aligned(64))), *copy = room;
    const struct row_format f = row_format(shape, step->number, TABLE_WEIGHT, row);
    void *const weight = array_row(&to->weight, row);
    struct table widened = *to;
    widened.weight = (struct array){copy, 0}; /* every row is the copy */
    row_widen_as(f.type, weight, dim, copy);
    update_as(step, &widened, FP32, dim, row, grad);
    row_narrow(&f, copy, dim, weight);
}

/* type is the type of the weights, or BY_COPY. If all_fp32 is set, gradients are fp32, too. */
ALWAYS_INLINE void runs_as(const struct rule_step *restrict step, const struct table *restrict to,
                           const struct unit_runs *given, const int32_t dim, const enum dtype type,
                           const bool all_fp32) {
    const struct unit_runs x = *given;
    const int64_t bytes = dim * dtype_bytes(type == BY_COPY ? x.shape->weight_type : type);
    const uint32_t last = x.begin[x.count];
    for (uint32_t r = 0; r < x.count && r < x.row_distance; r++)
        prefetch_arrays(to, entry_row(x.entry[x.begin[r]]), dim, bytes);
    for (uint32_t k = 0; k < last && k < x.grad_distance; k++)
        prefetch(x.grad + (uint32_t)x.entry[k] * x.stride, dim * dtype_bytes(x.grad_type), INTO_L1);
    for (uint32_t r = 0; r < x.count; r++) {
        const uint32_t first = x.begin[r], end = x.begin[r + 1];
        const int64_t row = entry_row(x.entry[first]);
        if (r + x.row_distance < x.count)
            prefetch_arrays(to, entry_row(x.entry[x.begin[r + x.row_distance]]), dim, bytes);
        if (end - first >= x.most) continue;
        float sum[RUNS_DIM_MOST] __attribute__((aligned(64)));
        const float *grad = sum;
        const int32_t columns = dim < REGISTERS * LANES ? dim : REGISTERS * LANES;
        for (int32_t d = 0; d < dim; d += columns) {
            if (all_fp32 || x.grad_type == FP32)
                sum_unit_run(&x, FP32, first, end, last, dim, d, columns, sum);
            else if (x.grad_type == BF16)
                sum_unit_run(&x, BF16, first, end, last, dim, d, columns, sum);
            else
                sum_unit_run(&x, FP16, first, end, last, dim, d, columns, sum);
        }
        if (!all_fp32)
            __asm__("" : "+r"(grad) : : "memory"); /* gcc 12 would split it into scalars */
        if (type == BY_COPY)
            update_copy(step, to, x.shape, dim, row, grad);
        else
            update_as(step, to, type, dim, row, grad);
    }
}

/* Name 0: the function for all other dims. The copy of the step tells the compiler that no store to
 * a row changes it. */
#define UPDATE(d)                                                                                  \
    static void update_##d(const struct rule_step *step, const struct table *table, int32_t dim,   \
                           int64_t row, const float *grad) {                                       \
        const struct rule_step own = *step;                                                        \
        update_as(&own, table, FP32, d ? d : dim, row, grad);                                      \
    }
COMMON_DIMS(UPDATE)
UPDATE(0)

#define UPDATE_RUNS_(name, d, type, all_fp32)                                                      \
    static void name(const struct rule_step *step, const struct table *table,                      \
                     const struct unit_runs *runs) {                                               \
        struct rule_step own = *step;                                                              \
        const struct table rows = *table;                                                          \
        own.adjust.gradient = true; /* a sum is never -0, so row_element() need not add 0 to it */ \
        runs_as(&own, &rows, runs, d, type, all_fp32);                                             \
    }
#define UPDATE_RUNS(d)                                                                             \
    UPDATE_RUNS_(update_all_fp32_runs_##d, d, FP32, true)                                          \
    UPDATE_RUNS_(update_fp32_runs_##d, d, FP32, false)                                             \
    UPDATE_RUNS_(update_bf16_runs_##d, d, BF16, false)                                             \
    UPDATE_RUNS_(update_fp16_runs_##d, d, FP16, false)                                             \
    UPDATE_RUNS_(update_copy_runs_##d, d, BY_COPY, false)
UPDATE_RUNS(16)
UPDATE_RUNS(32)
UPDATE_RUNS(64)
UPDATE_RUNS(128)
UPDATE_RUNS(256)

/* By dim class: see COMMON_DIMS. */
#define LISTED(d) update_##d,
#define LISTED_RUNS(name)                                                                          \
    { NULL, name##_16, name##_32, name##_64, name##_128, name##_256, NULL }
const struct update_functions OWN(RULE) = {
    {COMMON_DIMS(LISTED) update_0},
    LISTED_RUNS(update_all_fp32_runs),
    {LISTED_RUNS(update_fp32_runs), LISTED_RUNS(update_bf16_runs), LISTED_RUNS(update_fp16_runs),
     LISTED_RUNS(update_copy_runs)}};
