/* SPDX-License-Identifier: MIT
 *
 * Ids by reuse histogram: facebookresearch/dlrm_datasets publishes, for batches that follow Meta's
 * production, which share of the lookups falls on rows that are hit once, twice, 3-4 times, ... in
 * the batch. A plan decides how many rows there are and how often each is hit, so that those shares
 * come out; the lookups of the plan are then dealt to positions by a bijection. No Zipf law has
 * this shape, and no data need be shipped.
 */
#ifndef EMBFUSE_HISTOGRAM_H
#define EMBFUSE_HISTOGRAM_H

#include <stdint.h>

#include "harness/error.h"
#include "harness/workload/spec.h"

/* Bin b holds rows hit (2^(b-1), 2^b] times, bin 0 those hit once, the last one all above 2^15. */
enum { HISTOGRAM_BINS = 17 };

/* The published shares of the lookups; their sum is 1 up to their three digits. */
const double *histogram_shares(enum ids_kind kind);

struct histogram_plan {
    int64_t table_rows;
    int64_t rows; /* distinct rows that the batch hits */
    int64_t hot;  /* those in bins above 32 hits: planned rows 0 .. hot-1 */
    int64_t
        *first; /* [rows + 1]: planned row r takes lookups first[r] .. first[r+1]-1 of the plan */
};

/* Plans n lookups, a pure function of the arguments. Fails where the table has too few rows. */
int histogram_plan(enum ids_kind kind, int64_t n, int64_t table_rows, uint64_t key,
                   struct histogram_plan *out, struct error *err);
void histogram_free(struct histogram_plan *p);

/* Popularity rank, 0 .. table_rows-1, of planned row r in batch k: hot rows are the same in every
 * batch, the others follow one another through the table, as batches share hot rows only. */
int64_t histogram_rank(const struct histogram_plan *p, int64_t r, int64_t k);

#endif
