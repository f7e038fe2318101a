/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

static inline void sgd(const struct rule_case *c, struct oracle_row *x) {
    for (int32_t d = 0; d < c->dim; d++)
        x->weight[d] = sub(x->weight[d], mul(exactly(c->param[RULE_LR]), c->g[d]));
}
