/* SPDX-License-Identifier: MIT
 *
 * What a file of harness/check/rules/ needs. It states the rule of its name again, as a function
 * <name>(): one step of one row, in place.
 */
#ifndef EMBFUSE_RULE_CASE_H
#define EMBFUSE_RULE_CASE_H

#include "harness/check/num.h"

struct rule_case {
    const float *param; /* hyper-parameters */
    int64_t t;
    int32_t dim;
    const struct num *g;
};

#endif
