/* SPDX-License-Identifier: MIT
 *
 * The winners of features with POOL_MAX: see kernels/forward.h.
 */
#pragma once

#include "harness/workload/workload.h"

/* Gives batch k its winners, each drawn uniformly among the lookups of its bag that count: for a step
 * that is measured without its forward. */
int winners_draw(struct workload *w, int k, struct error *err);

/* Checks what kernels trust: a winner is the number of a lookup of its bag that is not padding, and
 * NO_WINNER where no lookup counts. The message names feature, bag and column. */
int winners_validate(const struct batch *in, struct error *err);
