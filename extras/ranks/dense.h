/* SPDX-License-Identifier: MIT
 *
 * Tables of the kind data-dense: every rank has the whole table and a dense gradient of it, and the ranks
 * add them up (all-reduce, as DistributedDataParallel with dense gradients). The step is then a step of a batch
 * with one lookup for each row that any rank has touched, so any kernel runs it.
 *
 *   dense_ids       which rows are touched: one bit for each row of a table, to all ranks
 *   dense_gradient  sum own lookups in their order; reduce-scatter in the order of the ranks; all-gather
 *
 * The sum of a row is the sum of the ranks' sums: other bits than one process has, unless the sums are exact.
 */
#pragma once

#include "extras/ranks/route.h"

struct dense {
    const struct sharding *sharding;
    struct transport *transport;
    const struct batch *own;
    struct batch local; /* fp32 gradient, one sequence for each table */
    struct room sum, touched, all_touched, offsets, ids, grad;
};

int dense_open(struct dense *d, const struct sharding *s, struct transport *t,
               const struct batch *own, struct error *err);
void dense_close(struct dense *d);
int dense_ids(struct dense *d, struct error *err);
int dense_gradient(struct dense *d, struct error *err);
