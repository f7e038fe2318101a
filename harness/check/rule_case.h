/* SPDX-License-Identifier: MIT
 *
 * Included by the files of harness/check/rules/. Each states a rule again, as a function <name>() that
 * takes one step of one row in place.
 */
#pragma once

#include "harness/check/num.h"

struct rule_case {
    const float *param; /* hyper-parameters */
    int64_t t;
    int32_t dim;
    const struct num *g;
};

/* The mean of the squares of the row's gradient. */
static inline struct num mean_square(const struct rule_case *c) {
    struct total squares = {0, 0, 0};
    for (int32_t d = 0; d < c->dim; d++) total_add(&squares, mul(c->g[d], c->g[d]));
    return quot(total_of(&squares, c->dim), exactly(c->dim), c->dim);
}
