/* SPDX-License-Identifier: MIT
 *
 * Is a result right? Every row of every table is looked at, on every check:
 *
 *   touched rows    within the oracle's bound; and in exact mode, where every order of summation
 *                   gives the same float, bit for bit what the rule makes of the exact sum
 *   other rows      bit for bit unchanged; or, for a dense step of a rule that moves idle rows,
 *                   what the oracle says of a zero gradient
 *
 * A NaN never passes.
 */
#ifndef EMBFUSE_CHECK_H
#define EMBFUSE_CHECK_H

#include <stdbool.h>

#include "harness/row_index.h"
#include "kernels/kernel.h"

/* Writes what a row held before the step: weight[dim], elem[k][dim], row[row_states]. */
typedef void (*row_before)(const void *ctx, int32_t table, int64_t row, float *weight,
                           float *const elem[RULE_ELEM_STATES], float *row_state);

struct check {
    const struct batch *in;
    const struct row_index *index; /* of in */
    const struct rule *rules;      /* [num_tables] */
    int64_t step;                  /* t >= 1 */
    row_before before;
    const void *before_ctx;
    const struct table *after; /* [num_tables] */
    bool exact;                /* sums are exact, see batch_sums_exact() */
    bool dense;                /* the kernel has the trait DENSE_STEP */
};

struct check_result {
    bool ok;
    int64_t wrong;     /* rows */
    double worst;      /* largest |error| / bound of a touched element; > 1 is wrong */
    char message[400]; /* the first wrong row, or "" */
};

struct check_result check_run(const struct check *c);

#endif
