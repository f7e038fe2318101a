/* SPDX-License-Identifier: MIT
 *
 * Is a result right? Every row of every table is looked at, on every check:
 *
 *   touched rows    within the oracle's bound; and in exact mode, where every order of summation
 *                   gives the same float, bit for bit what rule_apply() makes of the exact sum;
 *                   not bit for bit where a kernel takes a step per lookup, whose bound has a
 *                   rounding of the weight for each; and a dense step of a rule that is idle at a
 *                   zero gradient leaves a row alone whose gradients add up to 0
 *   other rows      bit for bit unchanged; or, for a dense step of a rule that moves idle rows,
 *                   what the oracle says of a zero gradient
 *
 * A NaN never passes. Where the step itself has no finite value in single precision (gradients that
 * overflow, an accumulator below 0, eps 0 with a gradient and a state of 0), the result is neither
 * right nor wrong, but undecided.
 */
#ifndef EMBFUSE_CHECK_H
#define EMBFUSE_CHECK_H

#include <stdbool.h>

#include "harness/error.h"
#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* Writes what a row held before the step, as floats, to the arrays that its table has. */
typedef void (*row_before)(const void *ctx, int32_t table, int64_t row,
                           const struct row_memory *to);

/* Copies rows begin .. end-1 of a table to *rows, arrays in host memory whose first row is begin.
 * Returns 0, or -1 and fills err. Called by one thread at a time. */
typedef int (*rows_fetch)(const void *ctx, int32_t table, int64_t begin, int64_t end,
                          struct table *rows, struct error *err);

struct check {
    const struct batch *in;
    const struct row_index *index; /* of in */
    const struct rule *rules;      /* [num_tables] */
    int64_t step;                  /* t >= 1 */
    row_before before;
    const void *before_ctx;
    const struct table *after; /* [num_tables] in host memory; or NULL, and: */
    rows_fetch fetch;          /* looks at tables elsewhere a block of rows at a time */
    const void *fetch_ctx;
    bool exact;      /* sums are exact, see batch_sums_exact() */
    bool dense;      /* the kernel has the trait DENSE_STEP */
    bool per_lookup; /* the kernel has the trait STEP_PER_LOOKUP */
};

struct check_result {
    bool ok;
    int64_t wrong;     /* rows */
    bool unseen;       /* rows could not be fetched: message says why, and ok is false */
    bool undecided;    /* no row is wrong, but the step of one has no finite value: message says
                          which, ok is false, and no kernel is to blame */
    double worst;      /* largest |error| / bound of a touched element; > 1 is wrong */
    char message[400]; /* the first wrong row, or the other reason why ok is false, or "" */
};

struct check_result check_run(const struct check *c);

#endif
