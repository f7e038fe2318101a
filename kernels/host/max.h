/* SPDX-License-Identifier: MIT
 *
 * The max of a bag's rows: a maximum and its winner for each column, both in registers over the whole
 * bag. No branch asks which row is greater, so that hard-to-predict ids cost no more than others.
 */
#pragma once

#include "kernels/host/row.h"

enum { MAX_REGISTERS = REGISTERS / 2 }; /* columns need two: a maximum and a winner */

/* `vecs` vectors of columns from `column` on. The pass over the first columns prefetches. */
ALWAYS_INLINE void max_columns(const struct run *r, int32_t dim, int32_t column, const int vecs,
                               float *max, int32_t *winner) {
    lanes best[MAX_REGISTERS] = {{0}};
    lane_ints won[MAX_REGISTERS];
    for (int v = 0; v < vecs; v++) won[v] = (lane_ints){0} + NO_WINNER;
    for (int64_t k = 0; k < r->n; k++) {
        float c;
        if (column == 0) run_prefetch(r, k, dim);
        const void *row = r->row(r->ctx, k, &c);
        if (r->gaps && !row) continue;
        UNROLL(4)
        for (int v = 0; v < vecs; v++) {
            const lanes x = row_lanes(r->type, row, column + v * LANES);
            const lane_ints wins = (x > best[v]) | (won[v] == NO_WINNER);
            best[v] = (lanes)choose_lanes(wins, (lane_ints)x, (lane_ints)best[v]);
            won[v] = choose_lanes(wins, (lane_ints){0} + (int32_t)k, won[v]);
        }
    }
    UNROLL(4)
    for (int v = 0; v < vecs; v++) {
        *(lanes_at *)(max + column + v * LANES) = best[v];
        *(lane_ints_at *)(winner + column + v * LANES) = won[v];
    }
}

/* The same for a row that is shorter than a vector. */
ALWAYS_INLINE void max_short(const struct run *r, int32_t dim, float *max, int32_t *winner) {
    for (int32_t d = 0; d < dim; d++) max[d] = 0, winner[d] = NO_WINNER;
    for (int64_t k = 0; k < r->n; k++) {
        float c;
        run_prefetch(r, k, dim);
        const void *row = r->row(r->ctx, k, &c);
        if (r->gaps && !row) continue;
        for (int32_t d = 0; d < dim; d++) {
            const float x = dtype_get(r->type, row, d);
            const bool wins = x > max[d] || winner[d] == NO_WINNER;
            max[d] = wins ? x : max[d];
            winner[d] = wins ? (int32_t)k : winner[d];
        }
    }
}

/* max[dim], winner[dim] = those of the run; 0 and NO_WINNER if it has no row. */
ALWAYS_INLINE void max_run(const struct run *r, int32_t dim, float *max, int32_t *winner) {
    int32_t d = 0;
    for (; d + MAX_REGISTERS * LANES <= dim; d += MAX_REGISTERS * LANES)
        max_columns(r, dim, d, MAX_REGISTERS, max, winner);
    for (; d + LANES <= dim; d += LANES) max_columns(r, dim, d, 1, max, winner);
    if (dim % LANES == 0) return;
    if (dim > LANES)
        max_columns(r, dim, dim - LANES, 1, max,
                    winner); /* some columns twice, with the same bits */
    else
        max_short(r, dim, max, winner);
}
