/* SPDX-License-Identifier: MIT
 *
 * Checks a result. Each check compares every row of every table:
 *
 *   touched rows    must lie within the oracle's bound. In exact mode every summation order gives
 *                   one float, and the row must also have the bits of rule_apply() on the exact
 *                   sum, rounded by the oracle to the types of the table. rule_apply() is the
 *                   rules' own code: the bits show errors of a kernel, the oracle's bound also
 *                   errors of a rule. A step per lookup rounds the weight for each lookup, so its
 *                   bits are not compared. A dense step of a rule that is idle at a zero gradient
 *                   must keep rows whose gradients add up to 0
 *   untouched rows  must keep their bits. After a dense step of a rule that moves idle rows, they
 *                   must lie within the oracle's bound for a zero gradient
 *
 * A NaN never passes. A row is undecided if the oracle has no bound for it: an element may be too
 * large for its type, an accumulator below 0, a divisor 0, or rounding decides which branch a rule
 * takes. In exact mode such a row must still have the bits of rule_apply().
 */
#pragma once

#include <stdbool.h>

#include "harness/error.h"
#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* Writes a row's content before the step, as floats, to the arrays that its table has. */
typedef void (*row_before)(const void *ctx, int32_t table, int64_t row,
                           const struct row_memory *to);

/* Copies rows begin .. end-1 of a table to *rows: arrays in host memory that start with row begin.
 * Returns 0, or -1 and fills err. One thread calls it at a time. */
typedef int (*rows_fetch)(const void *ctx, int32_t table, int64_t begin, int64_t end,
                          struct table *rows, struct error *err);

/* A block of rows that was judged row by row and found right: the digest of its bytes, and its part
 * of check_result.worst. All 0: there is none yet. */
struct right_block {
    uint64_t digest[2];
    double worst;
};

struct check {
    const struct batch *in;
    const struct row_index *index; /* of in */
    const struct rule *rules;      /* [num_tables] */
    int64_t step;                  /* t >= 1 */
    row_before before;
    const void *before_ctx;
    const struct table *after; /* [num_tables] in host memory, or NULL: fetch() copies their rows */
    rows_fetch fetch;
    const void *fetch_ctx;
    bool exact;      /* sums are exact, see batch_sums_exact() */
    bool dense;      /* the kernel has the trait DENSE_STEP */
    bool per_lookup; /* the kernel has the trait STEP_PER_LOOKUP */
    /* [check_blocks(in)], or NULL. Checks of one step of one batch share it: a block with the bytes
     * of a block that was right is right, and only other blocks are judged row by row. Steps per
     * lookup, and dense steps of a rule that moves idle rows, have other right answers and share
     * nothing. */
    struct right_block *right;
};

struct check_result {
    bool ok;
    int64_t wrong;     /* rows */
    bool unseen;       /* fetch failed: message says why, and ok is false */
    int64_t undecided; /* rows without a bound: ok is false, and no kernel is to blame */
    bool no_value;     /* an undecided row has a NaN or an infinity */
    double worst;      /* largest |error| / bound of a touched element; > 1 is wrong */
    /* Why ok is false, or "": the first wrong row, else the first without a value, else the first
     * undecided one. */
    char message[400];
};

/* Adds the findings of a part to the whole. */
void check_result_add(struct check_result *all, const struct check_result *part);

/* Blocks of rows of all tables. */
int64_t check_blocks(const struct batch *in);

struct check_result check_run(const struct check *c);
