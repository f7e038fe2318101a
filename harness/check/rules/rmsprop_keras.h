/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/rmsprop.h"

static inline void rmsprop_keras(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, lr = p[RULE_LR], rho = p[RMSPROP_KERAS_RHO];
    const struct num mu = exactly(p[RMSPROP_KERAS_MOMENTUM]);
    struct num *s = x->elem[0], *b = x->elem[1];
    for (int32_t d = 0; d < c->dim; d++) {
        s[d] = moving_square(rho, s[d], c->g[d]);
        const struct divisor below = divisor(s[d], p[RMSPROP_KERAS_EPS], true);
        const struct num step = quot(mul(exactly(lr), c->g[d]), below.value, below.least);
        b[d] = add(mul(mu, b[d]), shortened(step, lr, below.least, 1 / (1 - (double)rho)));
        x->weight[d] = sub(x->weight[d], b[d]);
    }
}
