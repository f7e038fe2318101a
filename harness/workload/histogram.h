/* SPDX-License-Identifier: MIT
 *
 * Ids by reuse histogram: facebookresearch/dlrm_datasets publishes, for batches that follow Meta's
 * production, the share of lookups on rows that the batch hits once, twice, 3-4 times, ... A plan
 * chooses a number of rows and the hits of each, so that the batch has these shares. A bijection
 * then maps the plan's lookups to positions. No Zipf law has this shape, and the suite ships no
 * data for it.
 *
 * IDS_RUNS plans rows with p+1, p and p-1 lookups for the largest power of two p for which they are
 * less than half of all, and otherwise rows with 4: kernels treat a row differently from such a p on.
 */
#pragma once

#include <stdint.h>

#include "harness/error.h"
#include "harness/workload/spec.h"

/* Bin b: rows hit (2^(b-1), 2^b] times; bin 0: rows hit once; the last bin: all above 2^15. */
enum { HISTOGRAM_BINS = 17 };

/* The published shares of the lookups, in three digits; their sum is 1 up to rounding. */
const double *histogram_shares(enum ids_kind kind);

struct histogram_plan {
    int64_t table_rows;
    int64_t rows;   /* distinct rows that the batch hits */
    int64_t hot;    /* rows in bins above 32 hits: planned rows 0 .. hot-1 */
    int64_t *first; /* [rows + 1]: row r takes lookups first[r] .. first[r+1]-1 of the plan */
};

/* Plans n lookups, as a pure function of the arguments. Fails if the table has too few rows. */
int histogram_plan(enum ids_kind kind, int64_t n, int64_t table_rows, uint64_t key,
                   struct histogram_plan *out, struct error *err);
void histogram_free(struct histogram_plan *p);

/* Popularity rank, 0 .. table_rows-1, of planned row r in batch k. Hot rows are the same in every
 * batch. The other rows walk on through the table, because real batches share only hot rows. */
int64_t histogram_rank(const struct histogram_plan *p, int64_t r, int64_t k);
