/* SPDX-License-Identifier: MIT
 *
 * Adds gradient rows to accumulators in the order of the lookups. The addresses are random, so
 * every addition waits in a short queue while the CPU fetches its cache lines. Unlike accumulate.h,
 * this takes any number of rows and lookups, tables in any order, and accumulators that threads
 * share.
 */
#pragma once

#include "kernels/host/row.h"

enum { SCATTER_DELAY = 16 };

struct scatter {
    struct {
        float *to;
        const void *from; /* of that type */
        struct won won;
        enum dtype type;
        float coefficient;
        int32_t dim;
    } pending[SCATTER_DELAY];
    unsigned pushed;
    bool atomic; /* other threads add to the same accumulators */
};

ALWAYS_INLINE void scatter_apply(struct scatter *s, unsigned slot) {
    float *to = s->pending[slot].to;
    const void *from = s->pending[slot].from;
    const enum dtype type = s->pending[slot].type;
    const float c = s->pending[slot].coefficient;
    const int32_t dim = s->pending[slot].dim;
    const struct won won = s->pending[slot].won;
    if (!s->atomic && won.winner)
        row_add_won(type, to, from, c, won, dim);
    else if (!s->atomic)
        row_add(type, to, from, c, dim);
    for (int32_t d = 0; d < dim && s->atomic; d++) {
        if (won.winner && won.winner[d] != won.number) continue;
#pragma omp atomic
        to[d] += c * dtype_get(type, from, d);
    }
}

/* to[dim] += coefficient * from[dim], a row of that type, in the columns that count. Delayed by
 * SCATTER_DELAY calls at most. */
ALWAYS_INLINE void scatter_push(struct scatter *s, float *to, enum dtype type, const void *from,
                                float coefficient, struct won won, int32_t dim) {
    unsigned slot = s->pushed++ % SCATTER_DELAY;
    if (s->pushed > SCATTER_DELAY) scatter_apply(s, slot);
    s->pending[slot].to = to;
    s->pending[slot].from = from;
    s->pending[slot].won = won;
    s->pending[slot].type = type;
    s->pending[slot].coefficient = coefficient;
    s->pending[slot].dim = dim;
    prefetch_row(FP32, to, dim);
    prefetch_row(type, from, dim);
    if (won.winner) prefetch_row(FP32, won.winner, dim);
}

/* Applies all waiting additions. */
ALWAYS_INLINE void scatter_drain(struct scatter *s) {
    unsigned waiting = s->pushed < SCATTER_DELAY ? s->pushed : SCATTER_DELAY;
    for (unsigned k = s->pushed - waiting; k != s->pushed; k++) scatter_apply(s, k % SCATTER_DELAY);
    s->pushed = 0;
}
