/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/rmsprop.h"

static inline void rmsprop_momentum(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, alpha = p[RMSPROP_MOMENTUM_ALPHA], eps = p[RMSPROP_MOMENTUM_EPS];
    const struct num lr = exactly(p[RULE_LR]), mu = exactly(p[RMSPROP_MOMENTUM_MOMENTUM]);
    struct num *s = x->elem[0], *b = x->elem[1];
    for (int32_t d = 0; d < c->dim; d++) {
        s[d] = moving_square(alpha, s[d], c->g[d]);
        const struct num step = quot(c->g[d], denominator(s[d], eps), eps);
        b[d] = add(mul(mu, b[d]), shortened(step, 1, eps, 1 / (1 - (double)alpha)));
        x->weight[d] = sub(x->weight[d], mul(lr, b[d]));
    }
}
