/* SPDX-License-Identifier: MIT */
#ifndef EMBFUSE_ORACLE_ROWWISE_ADAGRAD_H
#define EMBFUSE_ORACLE_ROWWISE_ADAGRAD_H

#include "harness/check/rules/adagrad.h"

static inline void rowwise_adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float lr = c->param[RULE_LR], eps = c->param[ROWWISE_ADAGRAD_EPS];
    struct total squares = {0, 0, 0};
    for (int32_t d = 0; d < c->dim; d++) total_add(&squares, mul(c->g[d], c->g[d]));
    struct num mean = quot(total_of(&squares, c->dim), exactly(c->dim), c->dim);
    x->row[0] = accumulate(x->row[0], mean);
    struct num rate = quot(exactly(lr), denominator(x->row[0], eps), eps);
    for (int32_t d = 0; d < c->dim; d++)
        x->weight[d] = sub(x->weight[d], shortened(mul(rate, c->g[d]), lr, eps, c->dim));
}

#endif
