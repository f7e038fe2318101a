/* SPDX-License-Identifier: MIT
 *
 * Rows: sum gradient rows, apply a rule to a row, prefetch one. The only code of the CPU kernels
 * that touches elements: their type (fp32) is decided here.
 */
#ifndef EMBFUSE_CPU_ROW_H
#define EMBFUSE_CPU_ROW_H

#include <string.h>

#include "kernels/host/gather.h"

/* VEC: floats that are updated together, whatever the machine. LANES: floats of a register.
 * REGISTERS hold a sum: of more, compilers make memory. */
#if defined(__AVX512F__)
enum { VEC = 16, LINE = 64, LANES = 16, REGISTERS = 8 };
#elif defined(__AVX__)
enum { VEC = 16, LINE = 64, LANES = 8, REGISTERS = 8 };
#else
enum { VEC = 16, LINE = 64, LANES = 4, REGISTERS = 8 };
#endif

/* A register's worth of floats, and half of one; the same in memory, at any address. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float half __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef lanes lanes_at __attribute__((aligned(sizeof(float)), may_alias));
typedef half half_at __attribute__((aligned(sizeof(float)), may_alias));

/* Widths of rows that get code of their own: X(dim, ...). */
#define COMMON_DIMS(X, ...)                                                                        \
    X(8, ##__VA_ARGS__)                                                                            \
    X(16, ##__VA_ARGS__)                                                                           \
    X(32, ##__VA_ARGS__)                                                                           \
    X(64, ##__VA_ARGS__)                                                                           \
    X(128, ##__VA_ARGS__)

ALWAYS_INLINE void prefetch(const float *p, int64_t floats) {
    for (const char *c = (const char *)p, *end = (const char *)(p + floats); c < end; c += LINE)
        __builtin_prefetch(c, 0, 3);
}

/* Everything of a table's row that its rule will touch. */
ALWAYS_INLINE void row_prefetch(enum rule_kind kind, const struct table *io, int64_t row,
                                int32_t dim) {
    prefetch(io->weight + row * dim, dim);
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        if (io->elem[k]) prefetch(io->elem[k] + row * dim, dim);
    if (io->row) prefetch(io->row + row * rule_row_states(kind), rule_row_states(kind));
}

/* to += coefficient * from */
ALWAYS_INLINE void row_add(float *to, const float *from, float coefficient, int32_t dim) {
#pragma omp simd
    for (int32_t d = 0; d < dim; d++) to[d] += coefficient * from[d];
}

/* Positions as the grouping kernels keep them: the row in the upper, the position in the lower 32
 * bits of an entry. */
static inline uint64_t entry_pack(int64_t row, uint32_t position) {
    return (uint64_t)row << 32 | position;
}

static inline int64_t entry_row(uint64_t entry) {
    return (int64_t)(entry >> 32);
}

/* How many entries ahead gradient rows are prefetched: flat between 8 and 48. */
enum { GRAD_AHEAD = 8, ROW_AHEAD = 16 };

/* How many rows ahead a table's rows are prefetched where they are updated one after another: so
 * many bytes of weights and states. Measured: 8 and 2 KiB are slower. */
ALWAYS_INLINE uint32_t rows_ahead(const enum rule_kind kind, int32_t dim) {
    enum { BYTES = 4096, MOST = 32, LEAST = 2 };
    int64_t rows = BYTES / (int64_t)sizeof(float) / ((int64_t)dim * (1 + rule_elem_states(kind)));
    return (uint32_t)(rows < LEAST ? LEAST : min64(rows, MOST));
}

/* Columns column .. of the sum, as many as `vecs` vectors have, held in registers over the whole
 * run. ahead: entries that follow the run; in the loop over the first columns, the gradient rows of
 * entries GRAD_AHEAD later are prefetched. */
#define DEFINE_SUM_COLUMNS(name, vec)                                                              \
    ALWAYS_INLINE void name(const struct gather *g, const struct gather_table *t,                  \
                            const uint64_t *entry, int64_t n, int64_t ahead, int32_t dim,          \
                            int32_t column, const int vecs, float *sum) {                          \
        vec acc[REGISTERS] = {{0}};                                                                \
        for (int64_t k = 0; k < n; k++) {                                                          \
            float c = 1;                                                                           \
            if (column == 0 && ahead > 0) {                                                        \
                int64_t next = k + GRAD_AHEAD < n + ahead ? k + GRAD_AHEAD : 0;                    \
                prefetch(gather_row(g, t, (uint32_t)entry[next], &c), dim);                        \
            }                                                                                      \
            const vec##_at *row =                                                                  \
                (const vec##_at *)(gather_row(g, t, (uint32_t)entry[k], &c) + column);             \
            _Pragma("GCC unroll 8") for (int v = 0; v < vecs; v++) acc[v] += c * row[v];           \
        }                                                                                          \
        vec##_at *to = (vec##_at *)(sum + column);                                                 \
        _Pragma("GCC unroll 8") for (int v = 0; v < vecs; v++) to[v] = acc[v];                     \
    }
DEFINE_SUM_COLUMNS(sum_columns, lanes)
DEFINE_SUM_COLUMNS(sum_half, half)

ALWAYS_INLINE void sum_entries_as(const struct gather *g, const struct gather_table *t,
                                  const uint64_t *entry, int64_t n, int64_t ahead, int32_t dim,
                                  float *sum) {
    int32_t d = 0;
    for (; d + REGISTERS * LANES <= dim; d += REGISTERS * LANES)
        sum_columns(g, t, entry, n, ahead, dim, d, REGISTERS, sum);
    switch ((dim - d) / LANES) { /* in one loop over the entries, whatever is left */
#define CASE(vecs)                                                                                 \
    case vecs: sum_columns(g, t, entry, n, ahead, dim, d, vecs, sum); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
#undef CASE
    }
    d = dim / LANES * LANES;
    if (d + LANES / 2 <= dim) {
        sum_half(g, t, entry, n, ahead, dim, d, 1, sum);
        d += LANES / 2;
    }
    if (d == dim) return;
    for (int32_t e = d; e < dim; e++) sum[e] = 0;
    for (int64_t k = 0; k < n; k++) {
        float c = 1;
        const float *row = gather_row(g, t, (uint32_t)entry[k], &c);
        row_add(sum + d, row + d, c, dim - d);
    }
}

/* sum[dim] = sum of the gradients of n entries of table t, in their order. ahead: as many entries
 * follow them whose gradients will be summed next, and are prefetched; 0: none are. */
ALWAYS_INLINE void sum_entries(const struct gather *g, const struct gather_table *t,
                               const uint64_t *entry, int64_t n, int64_t ahead, int32_t dim,
                               float *sum) {
    struct gather_table plain = *t;
    plain.plain = true; /* a constant: the loops below lose their coefficients and branches */
    if (t->plain)
        sum_entries_as(g, &plain, entry, n, ahead, dim, sum);
    else
        sum_entries_as(g, t, entry, n, ahead, dim, sum);
}

/* Before a loop whose rounds do not depend on each other. omp simd gives gcc's vectorizer an array
 * of every struct that a round holds, and so keeps it from loops over a rule's phases; clang says
 * that it cannot, and does without being told where it can. */
#ifdef __clang__
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* The arrays of one row; states that the rule does not have are NULL. */
struct row_arrays {
    float *w, *s[RULE_ELEM_STATES];
};

ALWAYS_INLINE struct row_arrays row_arrays(const int elem_states, const struct table *io,
                                           int64_t row, int32_t dim) {
    struct row_arrays x = {io->weight + row * dim, {NULL}};
    for (int k = 0; k < elem_states; k++) x.s[k] = io->elem[k] + row * dim;
    return x;
}

ALWAYS_INLINE struct states row_states(const int elem_states, struct row_arrays x, int32_t d) {
    struct states s = {{0}};
    for (int k = 0; k < elem_states; k++) s.x[k] = x.s[k][d];
    return s;
}

/* What element d adds to the sums over the row, before the step or after it. */
ALWAYS_INLINE struct pair row_term(const enum rule_kind kind, const struct rule_step *step,
                                   const bool after, struct pair rate, struct row_arrays x,
                                   const float *g, int32_t d) {
    const struct states s = row_states(rule_elem_states(kind), x, d);
    if (!after) return rule_before(kind, step, x.w[d], s, g[d]);
    return rule_after(kind, step, x.w[d], rule_direction(kind, step, rate, x.w[d], s, g[d]));
}

/* VEC lanes of the two sums over a row. */
typedef float block __attribute__((vector_size(VEC * sizeof(float))));
struct block_sums {
    block a, b;
};

/* What `width` columns from begin add to the sums over the row, in as many lanes. */
ALWAYS_INLINE void row_terms(const enum rule_kind kind, const struct rule_step *step,
                             const bool after, struct pair rate, struct row_arrays x,
                             const float *g, int32_t begin, const int width, float *a, float *b) {
    for (int k = 0; k < width; k++) {
        const struct pair term = row_term(kind, step, after, rate, x, g, begin + k);
        a[k] = 0.0f + term.a; /* no -0 */
        b[k] = 0.0f + term.b;
    }
}

ALWAYS_INLINE struct block_sums block_terms(const enum rule_kind kind, const struct rule_step *step,
                                            const bool after, struct pair rate, struct row_arrays x,
                                            const float *g, int32_t begin, const int width) {
    float a[VEC] = {0}, b[VEC] = {0};
    row_terms(kind, step, after, rate, x, g, begin, width, a, b);
    struct block_sums terms;
    memcpy(&terms.a, a, sizeof a);
    memcpy(&terms.b, b, sizeof b);
    return terms;
}

ALWAYS_INLINE void block_add(struct block_sums *to, struct block_sums x) {
    to->a += x.a;
    to->b += x.b;
}

/* The upper half of eight lanes added to the lower one, and so on down to one lane. */
ALWAYS_INLINE float fold_eight(const float lane[8]) {
    typedef float four __attribute__((vector_size(4 * sizeof(float))));
    four f[2];
    memcpy(f, lane, sizeof f);
    f[0] += f[1];
    return (f[0][0] + f[0][2]) + (f[0][1] + f[0][3]);
}

ALWAYS_INLINE float fold_block(const block *sums) {
    float lane[VEC];
    memcpy(lane, sums, sizeof lane);
    for (int k = 0; k < 8; k++) lane[k] += lane[k + 8];
    return fold_eight(lane);
}

/* The sums over a row, in the order of rules.h whatever the machine. */
ALWAYS_INLINE struct pair row_sums(const enum rule_kind kind, const struct rule_step *step,
                                   const bool after, struct pair rate, struct row_arrays x,
                                   const float *g, int32_t dim) {
    enum { BLOCKS = ROW_LANES / VEC };
    if (dim <= 8) { /* in fewer registers */
        float a[8] = {0}, b[8] = {0};
        row_terms(kind, step, after, rate, x, g, 0, dim, a, b);
        return (struct pair){fold_eight(a), fold_eight(b)};
    }
    struct block_sums sum[BLOCKS] = {{{0}, {0}}}, last = {{0}, {0}};
    const int whole = dim / VEC, blocks = (dim + VEC - 1) / VEC;
    if (whole < blocks) last = block_terms(kind, step, after, rate, x, g, whole * VEC, dim % VEC);
    _Pragma("GCC unroll 8") for (int j = 0; j < BLOCKS; j++) {
        if (j < whole) sum[j] = block_terms(kind, step, after, rate, x, g, j * VEC, VEC);
        for (int k = j + BLOCKS; k < whole; k += BLOCKS)
            block_add(&sum[j], block_terms(kind, step, after, rate, x, g, k * VEC, VEC));
        if (whole < blocks && j == whole % BLOCKS) block_add(&sum[j], last);
    }
    _Pragma("GCC unroll 3") for (int fold = BLOCKS / 2; fold > 0; fold /= 2)
        _Pragma("GCC unroll 4") for (int j = 0; j < fold; j++) if (j + fold < blocks)
            block_add(&sum[j], sum[j + fold]);
    return (struct pair){fold_block(&sum[0].a), fold_block(&sum[0].b)};
}

/* The step of columns begin .. begin + width; without the weight, if the rule has sums after it. */
ALWAYS_INLINE void row_step(const enum rule_kind kind, const struct rule_step *step,
                            struct pair rate, struct row_arrays x, const float *g, int32_t begin,
                            const int32_t width) {
    const int states = rule_elem_states(kind);
    INDEPENDENT
    for (int32_t d = begin; d < begin + width; d++) {
        const struct states s =
            rule_states(kind, step, rate, x.w[d], row_states(states, x, d), g[d]);
        for (int k = 0; k < states; k++) x.s[k][d] = s.x[k];
        if (!rule_sums_after(kind)) x.w[d] -= rule_direction(kind, step, rate, x.w[d], s, g[d]);
    }
}

/* The weights of those rules. */
ALWAYS_INLINE void row_weights(const enum rule_kind kind, const struct rule_step *step,
                               struct pair rate, struct row_arrays x, const float *g, int32_t dim) {
    const int states = rule_elem_states(kind);
    const float scale =
        rule_scale(kind, step, rate, row_sums(kind, step, true, rate, x, g, dim), dim);
    INDEPENDENT
    for (int32_t d = 0; d < dim; d++)
        x.w[d] -= scale * rule_direction(kind, step, rate, x.w[d], row_states(states, x, d), g[d]);
}

ALWAYS_INLINE void row_update_as(const enum rule_kind kind, const struct rule_step *given,
                                 const struct table *io, int32_t dim, int64_t row,
                                 const float *grad) {
    const struct rule_step step = *given; /* a copy: no store to the row can change it */
    const struct row_arrays x = row_arrays(rule_elem_states(kind), io, row, dim);
    struct pair rate = {0, 0};
    if (rule_sums_before(kind)) rate = row_sums(kind, &step, false, rate, x, grad, dim);
    const int states = rule_row_states(kind);
    rate = rule_row(kind, &step, rate, dim, states ? io->row + row * states : NULL);
    int32_t d = 0;
    for (; d + VEC <= dim; d += VEC) row_step(kind, &step, rate, x, grad, d, VEC);
    for (; d + VEC / 2 <= dim; d += VEC / 2) row_step(kind, &step, rate, x, grad, d, VEC / 2);
    row_step(kind, &step, rate, x, grad, d, dim - d);
    if (rule_sums_after(kind)) row_weights(kind, &step, rate, x, grad, dim);
}

/* Applies the rule once to a row whose summed gradient is grad[dim]. */
static inline void row_update(const struct rule_step *step, const struct table *io, int32_t dim,
                              int64_t row, const float *grad) {
    switch (step->rule.kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: row_update_as(RULE_##rule, step, io, dim, row, grad); break;
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

#endif
