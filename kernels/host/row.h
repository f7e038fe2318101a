/* SPDX-License-Identifier: MIT
 *
 * Prefetches and sums rows of gradients. In the CPU kernels only this code reads elements of
 * gradients, so it alone fixes their type (fp32).
 */
#ifndef EMBFUSE_HOST_ROW_H
#define EMBFUSE_HOST_ROW_H

#include <string.h>

#include "kernels/host/gather.h"

/* VEC: floats per block of an update, the same on every machine. LANES: floats per register.
 * REGISTERS: registers per sum; compilers spill more than these. */
#if defined(__AVX512F__)
enum { VEC = 16, LINE = 64, LANES = 16, REGISTERS = 8 };
#elif defined(__AVX__)
enum { VEC = 16, LINE = 64, LANES = 8, REGISTERS = 8 };
#else
enum { VEC = 16, LINE = 64, LANES = 4, REGISTERS = 8 };
#endif

/* One register of floats, and half of one; the _at types are the same in unaligned memory. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float half __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef lanes lanes_at __attribute__((aligned(sizeof(float)), may_alias));
typedef half half_at __attribute__((aligned(sizeof(float)), may_alias));

/* Dims for which kernels compile specialized code: X(dim, ...). */
#define COMMON_DIMS(X, ...)                                                                        \
    X(8, ##__VA_ARGS__)                                                                            \
    X(16, ##__VA_ARGS__)                                                                           \
    X(32, ##__VA_ARGS__)                                                                           \
    X(64, ##__VA_ARGS__)                                                                           \
    X(128, ##__VA_ARGS__)

/* The classes of dims: one for each of COMMON_DIMS, and one for all others. */
enum {
#define CLASS(d) CLASS_##d,
    COMMON_DIMS(CLASS) CLASS_OTHER,
#undef CLASS
    DIM_CLASSES
};

ALWAYS_INLINE int dim_class(int32_t dim) {
    switch (dim) {
#define CASE(d)                                                                                    \
    case d: return CLASS_##d;
        COMMON_DIMS(CASE)
#undef CASE
    default: return CLASS_OTHER;
    }
}

ALWAYS_INLINE void prefetch(const void *p, int64_t bytes) {
    for (const char *c = p, *end = c + bytes; c < end; c += LINE) __builtin_prefetch(c, 0, 3);
}

ALWAYS_INLINE void prefetch_row(const float *row, int32_t dim) {
    prefetch(row, dim * (int64_t)sizeof *row);
}

/* to += coefficient * from */
ALWAYS_INLINE void row_add(float *to, const float *from, float coefficient, int32_t dim) {
#pragma omp simd
    for (int32_t d = 0; d < dim; d++) to[d] += coefficient * from[d];
}

/* The grouping kernels keep a lookup as an entry: the row in the upper 32 bits, the position in the
 * lower 32 bits. */
static inline uint64_t entry_pack(int64_t row, uint32_t position) {
    return (uint64_t)row << 32 | position;
}

static inline int64_t entry_row(uint64_t entry) {
    return (int64_t)(entry >> 32);
}

/* Prefetch distance in entries. Measured for gradient rows: equally fast from 8 to 48. */
enum { GRAD_AHEAD = 8, ROW_AHEAD = 16 };

/* Sums `vecs` vectors of columns from `column` on, in registers over the whole run. ahead: number
 * of entries after the run. The pass over the first columns prefetches the gradient rows of the
 * entries GRAD_AHEAD later. */
#define DEFINE_SUM_COLUMNS(name, vec)                                                              \
    ALWAYS_INLINE void name(const struct gather *g, const struct gather_table *t,                  \
                            const uint64_t *entry, int64_t n, int64_t ahead, int32_t dim,          \
                            int32_t column, const int vecs, float *sum) {                          \
        vec acc[REGISTERS] = {{0}};                                                                \
        for (int64_t k = 0; k < n; k++) {                                                          \
            float c = 1;                                                                           \
            if (column == 0 && ahead > 0) {                                                        \
                int64_t next = k + GRAD_AHEAD < n + ahead ? k + GRAD_AHEAD : 0;                    \
                prefetch_row(gather_row(g, t, (uint32_t)entry[next], &c), dim);                    \
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
    switch ((dim - d) / LANES) { /* one loop over the entries for all that is left */
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

/* sum[dim] = sum of the gradients of n entries of table t, in their order. ahead: number of entries
 * after these whose gradients the caller sums next, so this prefetches them; 0: no prefetch. */
ALWAYS_INLINE void sum_entries(const struct gather *g, const struct gather_table *t,
                               const uint64_t *entry, int64_t n, int64_t ahead, int32_t dim,
                               float *sum) {
    struct gather_table plain = *t;
    plain.plain = true; /* a constant: removes coefficients and branches from the loops */
    if (t->plain)
        sum_entries_as(g, &plain, entry, n, ahead, dim, sum);
    else
        sum_entries_as(g, t, entry, n, ahead, dim, sum);
}

#endif
