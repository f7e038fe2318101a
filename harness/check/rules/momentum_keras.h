/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

static inline void momentum_keras(const struct rule_case *c, struct oracle_row *x) {
    const struct num lr = exactly(c->param[RULE_LR]), mu = exactly(c->param[MOMENTUM_KERAS_MU]);
    struct num *b = x->elem[0];
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num pull = mul(lr, c->g[d]);
        b[d] = sub(mul(mu, b[d]), pull);
        const bool nesterov = c->param[MOMENTUM_KERAS_NESTEROV] != 0;
        x->weight[d] = add(x->weight[d], nesterov ? sub(mul(mu, b[d]), pull) : b[d]);
    }
}
