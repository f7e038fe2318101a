/* SPDX-License-Identifier: MIT
 *
 * The gradient of the per-sample weights (kernels/weight_grad.h) inside a step: while a kernel has the
 * lookups of a row, or a lookup and its row, it calls dots_of_row(). The gather says whether it is wanted.
 * No call is inlined, so that a step that does not want it has a branch per row, or per many lookups.
 */
#pragma once

#include "kernels/host/update.h"
#include "kernels/weight_grad.h"

enum { DOT_PARTS = ROW_LANES / LANES };

/* `columns` products of a row's end, zeros behind them. */
ALWAYS_INLINE lanes dot_rest(const float *w, const enum dtype type, const void *g, int32_t column,
                             int32_t columns) {
    float x[LANES] = {0};
    for (int32_t k = 0; k < columns; k++) x[k] = dtype_get(type, g, column + k) * w[column + k];
    lanes all;
    memcpy(&all, x, sizeof all);
    return all;
}

/* <g, w> in the order of kernels/weight_grad.h. type: of g; a constant, and dim too if possible. */
ALWAYS_INLINE float row_dot(const float *w, const enum dtype type, const void *g,
                            const int32_t dim) {
    const int32_t whole = dim / LANES, parts = (dim + LANES - 1) / LANES;
    lanes sum[DOT_PARTS] = {{0}}, rest = {0};
    if (whole < parts) rest = dot_rest(w, type, g, whole * LANES, dim % LANES);
    UNROLL(32)
    for (int32_t j = 0; j < DOT_PARTS; j++) {
        for (int32_t k = j; k < whole; k += DOT_PARTS)
            sum[j] += row_lanes(type, g, k * LANES) * row_lanes(FP32, w, k * LANES);
        if (whole < parts && j == whole % DOT_PARTS) sum[j] += rest;
    }
    UNROLL(5)
    for (int32_t fold = DOT_PARTS / 2; fold > 0; fold /= 2) {
        UNROLL(16)
        for (int32_t j = 0; j < fold; j++)
            if (j + fold < parts) sum[j] += sum[j + fold];
    }
    float lane[LANES];
    memcpy(lane, sum, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* The factor of a lookup's dot. t: its table. */
ALWAYS_INLINE float dot_scale(const struct gather *g, const struct gather_table *t,
                              uint32_t lookup) {
    if (!g->scale) return 1;
    const int64_t q = g->bag_of[lookup];
    const int64_t f = t->feature >= 0 ? t->feature : q / g->in->bags;
    return g->in->features[f].pooling == POOL_MEAN ? g->scale[q] : 1;
}

/* Lookups of one row. */
struct row_dots {
    const struct gather *gather;
    const struct gather_table *from;
    const float *row;
    const uint64_t *entry; /* their positions are lookups, because there are per-sample weights */
    int64_t n;
};

ALWAYS_INLINE void dots_as(const struct row_dots *x, const enum dtype type, const int32_t dim) {
    const int64_t ahead = grads_ahead(type, dim);
    float c;
    for (int64_t k = 0; k < x->n; k++) {
        const uint32_t lookup = (uint32_t)x->entry[k];
        if (k + ahead < x->n)
            prefetch_row(type, gather_row(x->gather, x->from, (uint32_t)x->entry[k + ahead], &c),
                         dim);
        const void *g = gather_row(x->gather, x->from, lookup, &c);
        x->gather->weight_grad[lookup] =
            row_dot(x->row, type, g, dim) * dot_scale(x->gather, x->from, lookup);
    }
}

ALWAYS_INLINE void dots_fp32(void *ctx, const int32_t dim, const bool common) {
    (void)common;
    dots_as(ctx, FP32, dim);
}

/* Writes the gradient of the weights of n lookups of a row. Nobody has updated the row yet. */
NOINLINE void dots_of_row(const struct gather *g, int32_t table, int64_t row, const uint64_t *entry,
                          int64_t n) {
    const struct table_shape *t = &g->in->tables[table];
    const void *w = array_row(&g->io[table].weight, row);
    const int32_t dim = t->dim;
    float wide[t->weight_type == FP32 ? 1 : dim];
    if (t->weight_type != FP32) {
        row_widen(t->weight_type, w, dim, wide);
        w = wide;
    }
    struct row_dots x = {g, &g->table[table], w, entry, n};
    switch (g->in->grad_type) {
    case BF16: dots_as(&x, BF16, dim); break;
    case FP16: dots_as(&x, FP16, dim); break;
    default: for_dim(dim, dots_fp32, &x);
    }
}

/* Writes the gradients of the weights of padding, which no walk over the lookups visits. Every thread of the
 * team calls this, after a barrier that ends gather_fill() and before any row is updated; it ends with a
 * barrier. */
static inline void dots_of_padding(const struct gather *g, int thread, int threads) {
    const struct batch *in = g->in;
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        const int64_t first = in->offsets[f * in->bags],
                      n = in->offsets[(f + 1) * in->bags] - first,
                      end = first + part_begin(n, thread + 1, threads);
        if (x->padding_id < 0) continue;
        for (int64_t i = first + part_begin(n, thread, threads); i < end; i++) {
            if (batch_id(in, i) != x->padding_id) continue;
            const uint64_t entry = entry_pack(x->padding_id, (uint32_t)i);
            if (x->pooling == POOL_NONE)
                dots_of_row(g, x->table, x->padding_id, &entry, 1);
            else
                g->weight_grad[i] = 0;
        }
    }
#pragma omp barrier
}
