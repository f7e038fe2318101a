/* SPDX-License-Identifier: MIT
 *
 * Adds gradients of one table to accumulators, one per row for a few rows, in the order of the
 * lookups. The additions wait in a queue while the CPU fetches their cache lines. A number and a
 * position make 8 bytes: with pointers, as in scatter.h, cpu_fused took 1.03 to 1.27 times as long
 * on small tables and hot rows.
 */
#pragma once

#include <string.h>

#include "kernels/host/dots.h"

enum {
    ADDENDS = 256, /* that are found before they are added: two short loops, no branch */
    ADDENDS_AHEAD = ROWS_AHEAD_MOST, /* whose gradients are prefetched, at most */
};

/* A lookup and the number of its accumulator: an entry, see entry_pack(), with the number as its row. */
struct addend {
    uint32_t position, number;
} __attribute__((may_alias));

/* A row of all tables, and how often a sample has it. */
struct hot_count {
    uint32_t row, count;
};

struct accumulate {
    const struct gather *gather;
    const struct gather_table *from;
    float *sum; /* [numbers][stride] */
    int64_t stride;
    bool far;                    /* sums do not fit in L2, and are prefetched too */
    int32_t dim, waiting, first; /* the first of those that wait are added now */
    struct addend *wait;         /* [ADDENDS], or all of them from the start */
    const struct hot_count *row; /* the rows of the numbers; NULL: a number is a row of the table */
};

/* Adds the first addends. Takes a copy: the address of the queue would keep it in memory during the walk. */
void accumulate_now(struct accumulate given, int32_t first) AT_LEVEL(accumulate_now);

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
