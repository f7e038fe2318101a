/* SPDX-License-Identifier: MIT
 *
 * Adds gradients to accumulators, one per row for a few rows, during a walk over the lookups in
 * order: the bag's gradient row is in L1, and the lookups need no grouping.
 */
#ifndef EMBFUSE_HOST_ACCUMULATE_H
#define EMBFUSE_HOST_ACCUMULATE_H

#include <string.h>

#include "kernels/host/row.h"

enum {
    ADDENDS = 256,      /* that are found before they are added: two short loops, no branch */
    ADDENDS_AHEAD = 16, /* whose gradients are prefetched */
};

/* A lookup and the number of its accumulator. */
struct addend {
    uint32_t number, position;
};

/* Adds the gradients of one feature to accumulators. */
struct adder {
    const struct gather *gather;
    const struct gather_table *from;
    float *sum; /* [numbers][stride] */
    int64_t stride;
    bool far; /* sums do not fit in L2, and are prefetched too */
    int32_t dim, waiting;
    struct addend *wait; /* [ADDENDS] */
};

ALWAYS_INLINE void add_waiting_as(const struct adder *a, const struct gather_table *from, int32_t n,
                                  const int32_t dim) {
    enum { SHORT = 128 }; /* a bag's longer row is prefetched once: the branch costs less then */
    for (int32_t k = 0; k < n; k++) {
        float c;
        int32_t ahead = k + ADDENDS_AHEAD;
        if (ahead < a->waiting &&
            (dim <= SHORT || a->wait[ahead].position != a->wait[ahead - 1].position))
            prefetch_row(gather_row(a->gather, from, a->wait[ahead].position, &c), dim);
        if (ahead < a->waiting && a->far)
            prefetch_row(a->sum + a->wait[ahead].number * a->stride, dim);
        const float *row = gather_row(a->gather, from, a->wait[k].position, &c);
        row_add(a->sum + a->wait[k].number * a->stride, row, c, dim);
    }
}

/* Adds the first n waiting lookups; the others stay. */
static void add_waiting(struct adder given, int32_t n) {
    struct gather_table from = *given.from;
    if (!from.plain) {
        add_waiting_as(&given, &from, n, given.dim);
        return;
    }
    from.plain = true; /* a constant: see sum_entries() */
    switch (given.dim) {
#define CASE(d)                                                                                    \
    case d: add_waiting_as(&given, &from, n, d); break;
        COMMON_DIMS(CASE)
#undef CASE
    default: add_waiting_as(&given, &from, n, given.dim);
    }
}

/* sum[number][] += the gradient of a lookup if `counts` is 1; does nothing if it is 0, without a
 * branch. The additions are delayed and keep the order of the calls. */
ALWAYS_INLINE void adder_push(struct adder *a, uint32_t number, uint32_t position,
                              uint32_t counts) {
    a->wait[a->waiting] = (struct addend){number, position};
    a->waiting += (int32_t)counts;
    if (a->waiting < ADDENDS) return;
    add_waiting(*a, ADDENDS - ADDENDS_AHEAD);
    memcpy(a->wait, a->wait + ADDENDS - ADDENDS_AHEAD, ADDENDS_AHEAD * sizeof *a->wait);
    a->waiting = ADDENDS_AHEAD;
}

/* Adds all waiting lookups. */
ALWAYS_INLINE void adder_flush(struct adder *a) {
    add_waiting(*a, a->waiting);
    a->waiting = 0;
}

#endif
