/* SPDX-License-Identifier: MIT
 *
 * Adds gradient rows to accumulators in the order of the lookups. The addresses are random, so
 * every addition waits in a short queue while the CPU fetches its cache lines. Unlike accumulate.h,
 * this queue takes any number of rows and lookups, tables in any order, and accumulators that threads
 * share.
 */
#pragma once

#include "kernels/host/row.h"

enum { SCATTER_DELAY = 16 };

struct scatter {
    struct {
        float *to;
        struct summand from; /* its row is of that type */
        enum dtype type;
        int32_t dim;
    } pending[SCATTER_DELAY];
    unsigned pushed;
    bool atomic; /* other threads add to the same accumulators */
};

ALWAYS_INLINE void scatter_apply(struct scatter *s, unsigned slot) {
    float *to = s->pending[slot].to;
    const struct summand from = s->pending[slot].from;
    const enum dtype type = s->pending[slot].type;
    const int32_t dim = s->pending[slot].dim;
    if (!s->atomic) summand_add(type, to, from, dim);
    for (int32_t d = 0; d < dim && s->atomic; d++) {
        if (!max_mask_counts(from.mask, d)) continue;
#pragma omp atomic
        to[d] += from.coefficient * dtype_get(type, from.row, d);
    }
}

/* Adds a summand, whose row is of that type, to to[dim]. Delayed by SCATTER_DELAY calls at most. */
ALWAYS_INLINE void scatter_push(struct scatter *s, float *to, enum dtype type, struct summand from,
                                int32_t dim) {
    unsigned slot = s->pushed++ % SCATTER_DELAY;
    if (s->pushed > SCATTER_DELAY) scatter_apply(s, slot);
    s->pending[slot].to = to;
    s->pending[slot].from = from;
    s->pending[slot].type = type;
    s->pending[slot].dim = dim;
    prefetch_row(FP32, to, dim);
    summand_prefetch(type, from, dim, INTO_L1);
}

/* Applies all waiting additions. */
ALWAYS_INLINE void scatter_drain(struct scatter *s) {
    unsigned waiting = s->pushed < SCATTER_DELAY ? s->pushed : SCATTER_DELAY;
    for (unsigned k = s->pushed - waiting; k != s->pushed; k++) scatter_apply(s, k % SCATTER_DELAY);
    s->pushed = 0;
}
