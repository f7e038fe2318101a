/* SPDX-License-Identifier: MIT
 *
 * The statistics that a batch's ids really have, whatever the spec asks for. They explain a
 * measurement.
 */
#pragma once

#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* Bins of the histogram of lookups per row: 1, 2, 3-4, 5-8, ..., (2^(b-1), 2^b], then > 2^15. They
 * are the bins of facebookresearch/dlrm_datasets. */
enum { RUN_BINS = 17 };

struct id_stats {
    int64_t lookups;               /* without padding */
    int64_t padding;               /* lookups of a padding id */
    int64_t distinct;              /* unique rows over all tables */
    int64_t hottest;               /* lookups of the hottest row */
    int64_t bags, empty_bags;      /* over all features */
    int64_t longest_bag;           /* these three come from offsets and include padding */
    int64_t in_bag_duplicates;     /* lookups that repeat a row of their bag */
    int64_t run_lookups[RUN_BINS]; /* lookups on rows with a count in the bin */
    int64_t run_rows[RUN_BINS];    /* rows with a count in the bin */
    uint64_t fingerprint; /* XXH3 of rows, dims, features' tables and padding, ids (as int64) and
                             offsets: the value does not depend on the type of the ids */
};

struct id_stats id_stats(const struct batch *in, const struct row_index *index);

/* The fingerprint of ids, offsets and shapes: batches that share it are the same work. */
uint64_t batch_fingerprint(const struct batch *in);
