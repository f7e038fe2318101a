/* SPDX-License-Identifier: MIT
 *
 * Adds gradients of one table to accumulators, one for each of a few rows, in the order of the
 * lookups. The additions wait in a queue while the CPU fetches their cache lines. A number and a
 * position take 8 bytes; with pointers, as in scatter.h, the queue is slower (kernels/cpu/tried.md).
 */
#pragma once

#include <string.h>

#include "kernels/host/update.h"

enum {
    ADDENDS =
        256, /* room of the queue. One loop fills it, another adds, and neither has a branch */
    ADDENDS_AHEAD = ROWS_AHEAD_MOST, /* largest distance of a prefetch */
};

/* How many rows of `dim` floats ahead the prefetch is: twice as many as for sums in registers (kernels/cpu/tried.md).
 * */
ALWAYS_INLINE int32_t addends_ahead(int32_t dim) {
    const struct prefetch_ahead twice = {INTO_L1, 2 * prefetch_choice.grads.bytes};
    return (int32_t)rows_ahead(twice, dim * (int64_t)sizeof(float));
}

/* A lookup and the number of its accumulator. It is an entry, see entry_pack(), with the number as its row. */
struct addend {
    uint32_t position, number;
} __attribute__((may_alias));

struct accumulate {
    const struct gather *gather;
    const struct gather_table *from;
    float *sum; /* [numbers][stride] */
    int64_t stride;
    bool far;                    /* sums do not fit in L2, so they are prefetched, too */
    int32_t dim, waiting, first; /* the first `first` of the waiting addends are added now */
    struct addend *wait;         /* [ADDENDS], or all addends from the start */
};

ALWAYS_INLINE void accumulate_from(const struct accumulate *a, const struct gather_table *from,
                                   const int32_t dim) {
    const int32_t distance = addends_ahead(dim);
    for (int32_t k = 0; k < a->first; k++) {
        const int32_t ahead = k + distance;
        if (ahead < a->waiting && a->wait[ahead].position != a->wait[ahead - 1].position) {
            const struct summand next = gather_row(a->gather, from, a->wait[ahead].position);
            summand_prefetch(from->type, next, dim, INTO_L1);
        }
        if (ahead < a->waiting && a->far)
            prefetch_row(FP32, a->sum + a->wait[ahead].number * a->stride, dim);
        const struct summand x = gather_row(a->gather, from, a->wait[k].position);
        summand_add(from->type, a->sum + a->wait[k].number * a->stride, x, dim);
    }
}

NOINLINE void accumulate_masked(const struct accumulate *a) {
    struct gather_table from = *a->from;
    from.masked = true; /* a constant: see sum_entries() */
    accumulate_from(a, &from, a->dim);
}

ALWAYS_INLINE void accumulate_as(void *ctx, const int32_t dim, const bool common) {
    const struct accumulate *a = ctx;
    struct gather_table from = *a->from;
    (void)common;
    from.masked = false; /* constants: see sum_entries() */
    if (from.unit_coefficients && from.type == FP32) {
        from.unit_coefficients = true, from.type = FP32;
        accumulate_from(a, &from, dim);
    } else {
        accumulate_from(a, &from, dim);
    }
}

/* Takes a copy: the address of the queue would keep it in memory during the walk. */
static void accumulate_now(struct accumulate given, int32_t first) {
    struct accumulate a = given;
    a.first = first;
    if (a.from->masked)
        accumulate_masked(&a);
    else
        for_dim(a.dim, accumulate_as, &a);
}

/* sum[number][] += the gradient of a lookup if `counts` is 1; does nothing if it is 0, without a
 * branch. The additions are delayed and keep the order of the calls. */
ALWAYS_INLINE void accumulate_push(struct accumulate *a, uint32_t number, uint32_t position,
                                   uint32_t counts) {
    a->wait[a->waiting] = (struct addend){position, number};
    a->waiting += (int32_t)counts;
    if (a->waiting < ADDENDS) return;
    accumulate_now(*a, ADDENDS - ADDENDS_AHEAD);
    memcpy(a->wait, a->wait + ADDENDS - ADDENDS_AHEAD, ADDENDS_AHEAD * sizeof *a->wait);
    a->waiting = ADDENDS_AHEAD;
}

/* Adds all waiting addends. */
ALWAYS_INLINE void accumulate_flush(struct accumulate *a) {
    accumulate_now(*a, a->waiting);
    a->waiting = 0;
}
