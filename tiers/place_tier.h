/* SPDX-License-Identifier: MIT
 *
 * A place whose tables are larger than its memory: they lie on a disk (row_file.h), and a part of their rows in slots of
 * host memory (cache.h). The harness uses it as any other place, with any kernel of a step or a lookup:
 *
 *   1. the distinct rows of the batch get slots; rows that have changed and must leave are written back
 *   2. rows that are not there are fetched, with their states
 *   3. ids become numbers of slots, and the unchanged kernel runs on tables of slots
 *
 * Ids are renumbered, so rows are in another order for a kernel that sorts them. With exact sums every kernel gives the
 * bits of tables in memory; with real gradients those do that have the trait OWN_LOOKUPS.
 *
 * Not here: kernels with the trait DENSE_STEP, which also change rows that no lookup touches; stochastic rounding, whose
 * random words belong to rows and not to slots; gradients of per-sample weights; devices. They are refused.
 */
#pragma once

#include "harness/measure/place.h"
#include "tiers/cache.h"
#include "tiers/row_file.h"

struct tier_options {
    const char *directory; /* of the tables: see row_file.h */
    double budget;         /* share of the bytes of each table's rows in slots; 0 .. 1 */
    enum policy
        policy; /* belady knows the ring of the place: batch 0, 1 ... in turn, belady_runs times */
    int64_t belady_runs;
    int depth;
    bool direct;
};

struct place *place_tier_open(const struct tier_options *o, const struct place_setup *setup,
                              struct error *err);

/* Writes all that has changed back, and commits: see row_file_commit(). */
int tier_commit(struct place *p, uint64_t mark, struct error *err);

/* Sums over all batches so far. */
struct tier_counts {
    int64_t batches, lookups, lookup_misses; /* lookups of rows that were not there */
    int64_t rows, row_misses;                /* distinct rows of each batch */
    int64_t written_back;                    /* rows */
    double index, fetch, write_back, remap;  /* seconds */
    struct row_file_counts file;
};
struct tier_counts tier_counts(const struct place *p);

/* Bytes in memory: slots, the index of rows, checksums and staging. */
int64_t tier_bytes(const struct place *p);
