/* SPDX-License-Identifier: MIT
 *
 * The lookups sorted by row, and the merged gradient made of them: a parallel, stable radix sort (least
 * significant digit first) of 64-bit entries, row in the upper and position in the lower half, over
 * exactly the bits that row numbers need. Then threads take runs of equal rows in small chunks, and
 * sum each in the order of its lookups.
 *
 * Scratch and traffic: 16 bytes per lookup for the sort, which reads and writes the entries once per
 * 8 bits of row number.
 */
#pragma once

#include <omp.h>

#include "kernels/gradient.h"
#include "kernels/host/dots.h"

enum { SORT_BITS = 8, SORT_DIGITS = 1 << SORT_BITS };

struct sorted {
    struct gather gather;
    uint64_t *entry, *other;        /* [lookups] each: the sort goes back and forth */
    uint32_t *run;                  /* [lookups + 1] index of each run's first entry */
    int64_t *first_run;             /* [num_tables + 1] */
    int64_t *part;                  /* [threads + 1] */
    uint32_t (*count)[SORT_DIGITS]; /* [threads] */
    int64_t entries, runs;
    struct sparse_gradient *gradient; /* [num_tables], merged; the caller gives it its memory */
};

static inline void sorted_lay_out(struct sorted *p, struct scratch *s, const struct batch *in,
                                  int threads) {
    gather_lay_out(&p->gather, s, in, true);
    p->entry = scratch_take(s, in->lookups, sizeof *p->entry);
    p->other = scratch_take(s, in->lookups, sizeof *p->other);
    p->run = scratch_take(s, in->lookups + 1, sizeof *p->run);
    p->first_run = scratch_take(s, in->num_tables + 1, sizeof *p->first_run);
    p->part = scratch_take(s, threads + 1, sizeof *p->part);
    p->count = scratch_take(s, threads, sizeof *p->count);
    p->gradient = scratch_take(s, in->num_tables, sizeof *p->gradient);
}

/* Sorts the lookups by row and finds the runs. Every thread of the team calls this; it ends with a
 * barrier. gather_prepare() comes before it. */
void sorted_index(struct sorted *p, const struct batch *in, int thread, int threads)
    AT_LEVEL(sorted_index);

/* Writes the merged gradient. Every thread of the team calls this; it ends with a barrier. */
void sorted_reduce(const struct sorted *p, const struct batch *in) AT_LEVEL(sorted_reduce);
