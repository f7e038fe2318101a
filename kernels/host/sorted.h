/* SPDX-License-Identifier: MIT
 *
 * The lookups sorted by row, and the merged gradient made of them: a parallel, stable radix sort (least
 * significant digit first) of 64-bit entries, row in the upper and position in the lower half, over
 * exactly the bits that row numbers need. Then threads take runs of equal rows in small chunks, and
 * sum each in the order of its lookups.
 *
 * Scratch and traffic: 16 bytes per lookup for the sort, which writes the entries once per
 * digit, and reads them for each digit but the first.
 */
#pragma once

#include <omp.h>

#include "kernels/gradient.h"
#include "kernels/host/row.h"

/* A digit has at most 12 bits. In a batch of less than 2^20 lookups it has 8, or as many as a 256th of the lookups,
 * since the counts of digits take time, too. Two digits of 12 bits instead of three of 8 take 0.86 to 0.94 of the time
 * of the index on Emerald Rapids. */
enum { SORT_BITS_LEAST = 8, SORT_BITS_MOST = 12, SORT_LOOKUPS_LOG2 = 8 };

struct sorted {
    struct gather gather;
    uint64_t *entry, *other; /* [lookups] each: the sort goes back and forth */
    uint32_t *run;           /* [lookups + 1] index of each run's first entry */
    int64_t *first_run;      /* [num_tables + 1] */
    int64_t *part;           /* [threads + 1] */
    int digit_bits;
    uint32_t *next;  /* [threads][1 << digit_bits]: counts, then write cursors */
    uint32_t *first; /* [(1 << digit_bits) + 1] entries before those of a digit */
    int64_t entries;
    struct sparse_gradient *gradient; /* [num_tables], merged; the caller gives it its memory */
};

static inline void sorted_lay_out(struct sorted *p, struct scratch *s, const struct batch *in,
                                  int threads) {
    const int64_t bits = bits_for(all_rows(in)), few = bits_for(in->lookups) - SORT_LOOKUPS_LOG2;
    const int64_t most = min64(SORT_BITS_MOST, max64(SORT_BITS_LEAST, few));
    const int64_t passes = max64(1, (bits + most - 1) / most);
    p->digit_bits = (int)((bits + passes - 1) / passes);
    gather_lay_out(&p->gather, s, in, true);
    p->entry = scratch_take(s, in->lookups, sizeof *p->entry);
    p->other = scratch_take(s, in->lookups, sizeof *p->other);
    p->run = scratch_take(s, in->lookups + 1, sizeof *p->run);
    p->first_run = scratch_take(s, in->num_tables + 1, sizeof *p->first_run);
    p->part = scratch_take(s, threads + 1, sizeof *p->part);
    p->next = scratch_take(s, (int64_t)threads << p->digit_bits, sizeof *p->next);
    p->first = scratch_take(s, (1 << p->digit_bits) + 1, sizeof *p->first);
    p->gradient = scratch_take(s, in->num_tables, sizeof *p->gradient);
}

/* Sorts the lookups by row and finds the runs. Every thread of the team calls this; it ends with a
 * barrier. gather_prepare() comes before it. */
void sorted_index(struct sorted *p, const struct batch *in, int thread, int threads)
    AT_LEVEL(sorted_index);

/* Writes the merged gradient. Every thread of the team calls this; it ends with a barrier. */
void sorted_reduce(const struct sorted *p, const struct batch *in) AT_LEVEL(sorted_reduce);
