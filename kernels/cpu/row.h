/* SPDX-License-Identifier: MIT
 *
 * Rows: sum gradient rows, apply a rule to a row, prefetch one. The only code of the CPU kernels
 * that touches elements: their type (fp32) is decided here.
 */
#ifndef EMBFUSE_CPU_ROW_H
#define EMBFUSE_CPU_ROW_H

#include "kernels/cpu/gather.h"

/* VEC: floats that are updated together, and lanes of a reduction, whatever the machine. LANES:
 * floats of a register. REGISTERS hold a sum: of more, compilers make memory. */
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
ALWAYS_INLINE void row_prefetch(const struct table *io, int64_t row, int32_t dim) {
    prefetch(io->weight + row * dim, dim);
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        if (io->elem[k]) prefetch(io->elem[k] + row * dim, dim);
    if (io->row) prefetch(io->row + row * RULE_ROW_STATES, RULE_ROW_STATES);
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
ALWAYS_INLINE uint32_t rows_ahead(const struct rule_info info, int32_t dim) {
    enum { BYTES = 4096, MOST = 32, LEAST = 2 };
    int64_t rows = BYTES / (int64_t)sizeof(float) / ((int64_t)dim * (1 + info.elem_states));
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

/* The arrays of one row; states that the rule does not have alias the weights and are not touched.
 */
struct row_arrays {
    float *w, *s0, *s1;
};

ALWAYS_INLINE struct row_arrays row_arrays(const struct rule_info info, const struct table *io,
                                           int64_t row, int32_t dim) {
    float *w = io->weight + row * dim;
    return (struct row_arrays){w, info.elem_states > 0 ? io->elem[0] + row * dim : w,
                               info.elem_states > 1 ? io->elem[1] + row * dim : w};
}

/* Phase 1 of a rule: the reduction over a row, in VEC lanes whatever the machine, so that the order
 * of the sum does not depend on it. */
ALWAYS_INLINE double row_reduce(const struct rule_step *step, struct row_arrays x, const float *g,
                                int32_t dim) {
    double acc[VEC] = {0};
    int32_t begin = 0;
    for (; begin + VEC <= dim; begin += VEC)
        for (int32_t k = 0, d = begin; k < VEC; k++, d++)
            acc[k] += rule_reduce(step, (struct rule_elem){x.w[d], {x.s0[d], x.s1[d]}}, g[d]);
    for (int32_t k = 0, d = begin; d < dim; k++, d++)
        acc[k] += rule_reduce(step, (struct rule_elem){x.w[d], {x.s0[d], x.s1[d]}}, g[d]);
    for (int k = 0; k < 8; k++) acc[k] += acc[k + 8];
    for (int k = 0; k < 4; k++) acc[k] += acc[k + 4];
    return (acc[0] + acc[2]) + (acc[1] + acc[3]);
}

/* Phase 2 on columns begin .. begin + width. */
ALWAYS_INLINE void row_columns(const struct rule_step *step, const struct rule_info info,
                               float rate, struct row_arrays x, const float *g, int32_t begin,
                               const int32_t width) {
#pragma omp simd
    for (int32_t d = begin; d < begin + width; d++) {
        struct rule_elem e = {x.w[d], {x.s0[d], x.s1[d]}};
        e = rule_elem(step, rate, e, g[d]);
        if (info.elem_states > 0) x.s0[d] = e.s[0];
        if (info.elem_states > 1) x.s1[d] = e.s[1];
        x.w[d] = e.w;
    }
}

ALWAYS_INLINE void row_update_as(const enum rule_kind kind, const struct rule_step *given,
                                 const struct table *io, int32_t dim, int64_t row,
                                 const float *grad) {
    struct rule_step step = *given;
    step.rule.kind = kind; /* a constant here: the compiler folds every switch of the rule */
    const struct rule_info info = rule_info(kind);
    struct row_arrays x = row_arrays(info, io, row, dim);
    double sum = info.reduces ? row_reduce(&step, x, grad, dim) : 0;
    float *state = info.row_states ? io->row + row * info.row_states : NULL;
    float rate = rule_row(&step, sum, dim, state);
    int32_t d = 0;
    for (; d + VEC <= dim; d += VEC) row_columns(&step, info, rate, x, grad, d, VEC);
    for (; d + VEC / 2 <= dim; d += VEC / 2) row_columns(&step, info, rate, x, grad, d, VEC / 2);
    row_columns(&step, info, rate, x, grad, d, dim - d);
}

/* Applies the rule once to a row whose summed gradient is grad[dim]. */
static inline void row_update(const struct rule_step *step, const struct table *io, int32_t dim,
                              int64_t row, const float *grad) {
    switch (step->rule.kind) {
#define X(kind, ...)                                                                               \
    case RULE_##kind: row_update_as(RULE_##kind, step, io, dim, row, grad); break;
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

#endif
