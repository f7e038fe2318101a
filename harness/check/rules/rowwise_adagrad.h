/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/adagrad.h"

static inline void rowwise_adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float lr = c->param[RULE_LR], eps = c->param[ROWWISE_ADAGRAD_EPS];
    x->row[0] = accumulate(x->row[0], mean_square(c));
    struct num rate = quot(exactly(lr), denominator(x->row[0], eps), eps);
    for (int32_t d = 0; d < c->dim; d++)
        x->weight[d] = sub(x->weight[d], shortened(mul(rate, c->g[d]), lr, eps, c->dim));
}
