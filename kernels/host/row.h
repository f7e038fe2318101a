/* SPDX-License-Identifier: MIT
 *
 * Prefetches and sums rows of gradients and, in a forward, rows of weights. Among the CPU kernels only this
 * code reads elements of gradients, so it alone knows their types.
 */
#pragma once

#include "kernels/host/gather.h"
#include "kernels/host/lanes.h"
#include "kernels/host/prefetch.h"

ALWAYS_INLINE void prefetch_row_into(enum dtype type, const void *row, int32_t dim,
                                     enum prefetch_into into) {
    prefetch(row, dim * dtype_bytes(type), into);
}

ALWAYS_INLINE void prefetch_row(enum dtype type, const void *row, int32_t dim) {
    prefetch_row_into(type, row, dim, INTO_L1);
}

/* to += coefficient * from, for a row of that type. */
ALWAYS_INLINE void row_add_as(const enum dtype type, float *to, const void *from, float coefficient,
                              int32_t dim) {
    int32_t begin = 0;
    for (; type == FP16 && begin + LANES <= dim; begin += LANES)
        *(lanes_at *)(to + begin) += coefficient * fp16_lanes((const uint16_t *)from + begin);
#pragma omp simd
    for (int32_t d = begin; d < dim; d++) to[d] += coefficient * dtype_get(type, from, d);
}

ALWAYS_INLINE void row_add(enum dtype type, float *to, const void *from, float coefficient,
                           int32_t dim) {
    switch (type) {
    case FP16: row_add_as(FP16, to, from, coefficient, dim); break;
    case BF16: row_add_as(BF16, to, from, coefficient, dim); break;
    default: row_add_as(FP32, to, from, coefficient, dim);
    }
}

/* Adds a summand that has a mask. */
void row_add_masked(enum dtype type, float *to, struct summand x, int32_t dim)
    AT_LEVEL(row_add_masked);

/* Adds any summand, whose row is of that type. */
ALWAYS_INLINE void summand_add(enum dtype type, float *to, struct summand x, int32_t dim) {
    if (x.mask.winner)
        row_add_masked(type, to, x, dim);
    else
        row_add(type, to, x.row, x.coefficient, dim);
}

ALWAYS_INLINE void summand_prefetch(enum dtype type, struct summand x, int32_t dim,
                                    enum prefetch_into into) {
    prefetch_row_into(type, x.row, dim, into);
    if (x.mask.winner) prefetch_row_into(FP32, x.mask.winner, dim, into);
}

/* to[dim] = the elements of a row. */
ALWAYS_INLINE void widen_as(const enum dtype type, const void *row, int32_t dim, float *to) {
    int32_t begin = 0;
    for (; begin + LANES <= dim; begin += LANES)
        *(lanes_at *)(to + begin) = row_lanes(type, row, begin);
    for (int32_t d = begin; d < dim; d++) to[d] = dtype_get(type, row, d);
}

/* The same for a type that is not a constant. */
ALWAYS_INLINE void row_widen_as(enum dtype type, const void *row, int32_t dim, float *to) {
    switch (type) {
    case FP16: widen_as(FP16, row, dim, to); break;
    case BF16: widen_as(BF16, row, dim, to); break;
    default: widen_as(FP8, row, dim, to);
    }
}

/* The same as a call. row_narrow() is the inverse: the elements of a row = from[dim], rounded. */
void row_widen(enum dtype type, const void *row, int32_t dim, float *to) AT_LEVEL(row_widen);
void row_narrow(const struct row_format *f, const float *from, int32_t dim, void *row)
    AT_LEVEL(row_narrow);

/* Kernels that group lookups keep each as an entry: the row in the upper 32 bits, the position in the lower 32 bits. */
static inline uint64_t entry_pack(int64_t row, uint32_t position) {
    return (uint64_t)row << 32 | position;
}

static inline int64_t entry_row(uint64_t entry) {
    return (int64_t)(entry >> 32);
}

/* Writes the next entry of one of many lists. A write waits for the cache lines of the writes before it, so the list's
 * next line is prefetched. */
ALWAYS_INLINE void entry_put(uint64_t *to, uint64_t entry) {
    *to = entry;
    prefetch((const char *)to + LINE, 1, INTO_L2);
}

/* A run of rows that are added up in the order of their numbers. */
struct run {
    /* Returns row k. In a run with gaps its `row` may be NULL: there is no row k. Callers pass an ALWAYS_INLINE
     * function, as to walk_stretch(). */
    struct summand (*row)(const void *ctx, int64_t k);
    const void *ctx;
    enum dtype type;
    bool gaps;
    int64_t n, lookahead; /* rows of the run; rows after it that are prefetched, too */
    int64_t distance;     /* how many rows ahead the prefetch is */
    enum prefetch_into into;
};

ALWAYS_INLINE void run_prefetch(const struct run *r, int64_t k, int32_t dim) {
    if (r->lookahead <= 0) return;
    const struct summand next =
        r->row(r->ctx, k + r->distance < r->n + r->lookahead ? k + r->distance : 0);
    summand_prefetch(r->type, next, dim, r->into);
}

/* Sums `vecs` vectors of columns from `column` on, in registers over the whole run. The pass over
 * the first columns prefetches. */
ALWAYS_INLINE void sum_columns(const struct run *r, int32_t dim, int32_t column, const int vecs,
                               float *sum) {
    lanes acc[REGISTERS] = {{0}};
    for (int64_t k = 0; k < r->n; k++) {
        if (column == 0) run_prefetch(r, k, dim);
        const struct summand x = r->row(r->ctx, k);
        if (r->gaps && !x.row) continue;
        UNROLL(8)
        for (int v = 0; v < vecs; v++) {
            const int32_t from = column + v * LANES;
            acc[v] += max_mask_lanes(x.mask, x.coefficient * row_lanes(r->type, x.row, from), from);
        }
    }
    lanes_at *to = (lanes_at *)(sum + column);
    UNROLL(8)
    for (int v = 0; v < vecs; v++) to[v] = acc[v];
}

/* The same for a row that is shorter than a vector. */
ALWAYS_INLINE void sum_short(const struct run *r, int32_t dim, float *sum) {
    for (int32_t d = 0; d < dim; d++) sum[d] = 0;
    for (int64_t k = 0; k < r->n; k++) {
        run_prefetch(r, k, dim);
        const struct summand x = r->row(r->ctx, k);
        if (r->gaps && !x.row) continue;
        if (x.mask.winner)
            row_add_masked(r->type, sum, x, dim);
        else
            row_add_as(r->type, sum, x.row, x.coefficient, dim); /* also FP8, in a forward */
    }
}

/* sum[dim] = the sum of the run. */
ALWAYS_INLINE void sum_run(const struct run *r, int32_t dim, float *sum) {
    int32_t d = 0;
    for (; d + REGISTERS * LANES <= dim; d += REGISTERS * LANES)
        sum_columns(r, dim, d, REGISTERS, sum);
    switch ((dim - d) / LANES) { /* one pass over the rows for all vectors that are left */
    case 7: sum_columns(r, dim, d, 7, sum); break;
    case 6: sum_columns(r, dim, d, 6, sum); break;
    case 5: sum_columns(r, dim, d, 5, sum); break;
    case 4: sum_columns(r, dim, d, 4, sum); break;
    case 3: sum_columns(r, dim, d, 3, sum); break;
    case 2: sum_columns(r, dim, d, 2, sum); break;
    case 1: sum_columns(r, dim, d, 1, sum);
    }
    if (dim % LANES == 0) return;
    if (dim > LANES)
        sum_columns(r, dim, dim - LANES, 1, sum); /* some columns twice, with the same bits */
    else if (dim == LANES / 2)
        sum_short(r, LANES / 2, sum); /* a constant */
    else
        sum_short(r, dim, sum);
}

/* Consecutive entries of a table whose gradients are summed. */
struct entries {
    const struct gather *gather;
    const struct gather_table *table;
    const uint64_t *entry;
};

ALWAYS_INLINE struct summand entry_grad(const void *ctx, int64_t k) {
    const struct entries *e = ctx;
    return gather_row(e->gather, e->table, (uint32_t)e->entry[k]);
}

/* How many gradient rows ahead the prefetch is. */
ALWAYS_INLINE int64_t grads_ahead(const enum dtype type, int32_t dim) {
    return rows_ahead(prefetch_choice.grads, dim * dtype_bytes(type));
}

ALWAYS_INLINE void sum_entries_as(const enum dtype type, const struct entries *of, int64_t n,
                                  int64_t lookahead, int32_t dim, float *sum) {
    const struct run r = {.row = entry_grad,
                          .ctx = of,
                          .type = type,
                          .n = n,
                          .lookahead = lookahead,
                          .distance = grads_ahead(type, dim),
                          .into = prefetch_choice.grads.into};
    sum_run(&r, dim, sum);
}

/* sum_entries() as a call, for any table. */
void sum_entries_any(const struct entries *of, int64_t n, int64_t lookahead, int32_t dim,
                     float *sum) AT_LEVEL(sum_entries_any);

/* sum[dim] = sum of the gradients of n entries of table t, in their order. The caller sums the `lookahead` entries
 * after these next, so this prefetches their gradients; 0 means no prefetch. If `common` is set, dim is a constant:
 * then the code of narrow gradients is short, and inlined. */
ALWAYS_INLINE void sum_entries(const struct gather *g, const struct gather_table *t,
                               const uint64_t *entry, int64_t n, int64_t lookahead, int32_t dim,
                               const bool common, float *sum) {
    struct gather_table from = *t;
    const struct entries entries = {g, &from, entry};
    /* Constants remove coefficients, masks and branches from the loops. */
    if (from.type == FP32 && from.unit_coefficients) {
        from.unit_coefficients = true, from.masked = false;
        sum_entries_as(FP32, &entries, n, lookahead, dim, sum);
    } else if (from.type == FP32 && !from.masked) {
        from.masked = false;
        sum_entries_as(FP32, &entries, n, lookahead, dim, sum);
    } else if (!common || from.masked) {
        const struct gather_table own = *t; /* the call then cannot change the caller's table */
        const struct entries all = {g, &own, entry};
        sum_entries_any(&all, n, lookahead, dim, sum);
    } else if (from.type == BF16) {
        from.masked = false;
        sum_entries_as(BF16, &entries, n, lookahead, dim, sum);
    } else {
        from.masked = false;
        sum_entries_as(FP16, &entries, n, lookahead, dim, sum);
    }
}
