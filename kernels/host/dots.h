/* SPDX-License-Identifier: MIT
 *
 * The gradient of the per-sample weights (kernels/weight_grad.h) inside a step: while a kernel has the
 * lookups of a row, or a lookup and its row, it calls dots_of_row(). The gather says whether it is wanted.
 * No call is inlined, so that a step that does not want it has a branch per row, or per many lookups.
 */
#pragma once

#include "kernels/host/row.h"
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

/* Writes the gradient of the weights of n lookups of a row. Nobody has updated the row yet. */
void dots_of_row(const struct gather *g, int32_t table, int64_t row, const uint64_t *entry,
                 int64_t n) AT_LEVEL(dots_of_row);

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
