/* SPDX-License-Identifier: MIT
 *
 * A place whose tables are larger than its fast memory: a part of their rows is in slots, the others in a slower
 * store. The harness runs any kernel of a step or a lookup on it, unchanged: see resident.h for what happens before a
 * batch runs.
 *
 * Ids are renumbered, so rows are in another order for a kernel that sorts them. With exact sums every kernel gives the
 * bits of tables in memory; with real gradients kernels with the trait OWN_LOOKUPS do, and the others stay within the
 * bound of the check.
 *
 * It refuses kernels with the trait DENSE_STEP, which also change rows that no lookup touches; stochastic rounding,
 * whose random words belong to rows and not to slots; and tables with a given content. It is no place to time a step
 * in: plan, flush, renew, parts, time and ceilings are NULL.
 */
#pragma once

#include "extras/tiers/resident.h"

struct place *place_tier_open(const struct tier_options *o, const struct place_setup *setup,
                              struct error *err);

/* A step will run on this batch after all that were announced: a thread admits it, while others run. The caller runs
 * it in its turn, and commits, restores and reads rows only when no batch is announced. At most ANNOUNCED_MOST. */
enum { ANNOUNCED_MOST = 8 };
int tier_announce(struct place *p, int batch, struct error *err);

/* Writes all that has changed back, and commits: see store.h. */
int tier_commit(struct place *p, struct error *err);

/* Its counts are right while no batch is announced. */
struct resident *tier_resident(struct place *p);
