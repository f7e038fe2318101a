/* SPDX-License-Identifier: MIT
 *
 * Rows: sum gradient rows, apply a rule to a row, prefetch one. The only code of the CPU kernels
 * that touches elements: their type (fp32) is decided here.
 */
#ifndef EMBFUSE_CPU_ROW_H
#define EMBFUSE_CPU_ROW_H

#include "kernels/cpu/gather.h"

enum { VEC = 16, LINE = 64 };

/* VEC floats: one register with AVX-512, two with AVX2, four with SSE. */
typedef float vec __attribute__((vector_size(VEC * sizeof(float))));
/* The same in memory, at any address. */
typedef float vec_at
    __attribute__((vector_size(VEC * sizeof(float)), aligned(sizeof(float)), may_alias));

ALWAYS_INLINE void prefetch(const float *p, int64_t floats) {
    for (const char *c = (const char *)p, *end = (const char *)(p + floats); c < end; c += LINE)
        __builtin_prefetch(c, 0, 3);
}

/* Everything of a table's row that its rule will touch. */
ALWAYS_INLINE void row_prefetch(const struct table *io, int64_t row, int32_t dim) {
    prefetch(io->weight + row * dim, dim);
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        if (io->elem[k]) prefetch(io->elem[k] + row * dim, dim);
    if (io->row) __builtin_prefetch(io->row + row, 0, 3);
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

/* How many entries ahead gradient rows and table rows are prefetched: flat between 8 and 48. */
enum { GRAD_AHEAD = 8, ROW_AHEAD = 16 };

/* Columns column .. column + vecs*VEC of the sum, held in registers over the whole run. */
ALWAYS_INLINE void sum_columns(const struct gather *g, const struct gather_table *t,
                               const uint64_t *entry, int64_t n, int32_t column, const int vecs,
                               float *sum) {
    vec acc[4] = {{0}};
    for (int64_t k = 0; k < n; k++) {
        float c = 1;
        const vec_at *row = (const vec_at *)(gather_row(g, t, (uint32_t)entry[k], &c) + column);
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) acc[v] += c * row[v];
    }
#pragma GCC unroll 4
    for (int v = 0; v < vecs; v++) ((vec_at *)(sum + column))[v] = acc[v];
}

ALWAYS_INLINE void sum_entries_as(const struct gather *g, const struct gather_table *t,
                                  const uint64_t *entry, int64_t n, int32_t dim, float *sum) {
    int32_t d = 0;
    for (; d + 4 * VEC <= dim; d += 4 * VEC) sum_columns(g, t, entry, n, d, 4, sum);
    for (; d + VEC <= dim; d += VEC) sum_columns(g, t, entry, n, d, 1, sum);
    if (d == dim) return;
    for (int32_t e = d; e < dim; e++) sum[e] = 0;
    for (int64_t k = 0; k < n; k++) {
        float c = 1;
        const float *row = gather_row(g, t, (uint32_t)entry[k], &c);
        row_add(sum + d, row + d, c, dim - d);
    }
}

/* sum[dim] = sum of the gradients of n entries of table t, in their order. */
ALWAYS_INLINE void sum_entries(const struct gather *g, const struct gather_table *t,
                               const uint64_t *entry, int64_t n, int32_t dim, float *sum) {
    struct gather_table plain = *t;
    plain.plain = true; /* a constant: the loops below lose their coefficients and branches */
    if (t->plain)
        sum_entries_as(g, &plain, entry, n, dim, sum);
    else
        sum_entries_as(g, t, entry, n, dim, sum);
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
