/* SPDX-License-Identifier: MIT
 *
 * What a batch's ids realised, whatever they were asked for: the numbers that explain a
 * measurement.
 */
#ifndef EMBFUSE_ID_STATS_H
#define EMBFUSE_ID_STATS_H

#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* Bins of the run-length histogram: 1, 2, 3-4, 5-8, ... 2^15 < k <= 2^16 ..., the last one open.
 * The first 17 are those of facebookresearch/dlrm_datasets: (2^(b-1), 2^b], then > 32768. */
enum { RUN_BINS = 17 };

struct id_stats {
    int64_t lookups;               /* that count: padding excluded */
    int64_t padding;               /* lookups of a padding id */
    int64_t distinct;              /* touched rows over all tables */
    int64_t hottest;               /* lookups of the hottest row */
    int64_t bags, empty_bags;      /* over all features */
    int64_t longest_bag;           /* these three as offsets tell, padding included */
    int64_t in_bag_duplicates;     /* lookups whose row stood in the same bag before */
    int64_t run_lookups[RUN_BINS]; /* lookups on rows whose count falls into the bin */
    int64_t run_rows[RUN_BINS];    /* rows whose count falls into the bin */
    uint64_t fingerprint; /* XXH3 of rows, dims, features' tables and padding, ids (as int64) and
                             offsets: the same lookups give the same value whatever their type */
};

struct id_stats id_stats(const struct batch *in, const struct row_index *index);

/* Of ids, offsets and shapes: two batches with one fingerprint are the same work. */
uint64_t batch_fingerprint(const struct batch *in);

#endif
