/* SPDX-License-Identifier: MIT
 *
 * A place whose tables are larger than its fast memory: a part of their rows is in slots (cache.h, fast.h), the others in a
 * slower store (store.h). The harness uses it as any other place, with any kernel of a step or a lookup:
 *
 *   1. ids are looked up, and the distinct rows of the batch get slots; rows that have changed and must leave are written
 *      back
 *   2. rows that are not there are fetched, with their states
 *   3. ids become numbers of slots, and the unchanged kernel runs on tables of slots
 *
 * Ids are renumbered, so rows are in another order for a kernel that sorts them. With exact sums every kernel gives the
 * bits of tables in memory; with real gradients those do that have the trait OWN_LOOKUPS, and the others stay within
 * the bound of the check.
 *
 * Not here: kernels with the trait DENSE_STEP, which also change rows that no lookup touches; stochastic rounding, whose
 * random words belong to rows and not to slots; gradients of per-sample weights. They are refused.
 */
#pragma once

#include "extras/tiers/resident.h"

struct place *place_tier_open(const struct tier_options *o, const struct place_setup *setup,
                              struct error *err);

/* The batch that runs after all that were announced: a thread admits it, while others run. The caller runs it in its turn,
 * and commits, restores and reads rows only when no batch is announced. changes: a step will run. */
int tier_announce(struct place *p, int batch, bool changes, struct error *err);

/* Writes all that has changed back, and commits: see store.h. */
int tier_commit(struct place *p, struct error *err);

/* Only when no batch is announced. */
struct tier_counts tier_counts(const struct place *p);

/* What reads and writes its store: see io.h. */
const char *tier_engine(const struct place *p);

/* Bytes of a row with its states in the store. */
int64_t tier_record_bytes(const struct place *p, int32_t table);

/* Bytes in memory: slots, the index of rows, and staging. */
int64_t tier_bytes(const struct place *p);
