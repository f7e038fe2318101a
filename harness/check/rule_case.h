/* SPDX-License-Identifier: MIT
 *
 * What the files of harness/check/rules/ need. Each states a rule again, as a function <name>() that
 * takes one step of one row in place.
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
