/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/rmsprop.h"

static inline void adam_epsilon_hat(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, eps = p[ADAM_EPSILON_HAT_EPS];
    const double t = (double)c->t, correct1 = 1 - pow(p[ADAM_EPSILON_HAT_BETA1], t),
                 correct2 = 1 - pow(p[ADAM_EPSILON_HAT_BETA2], t);
    const struct num rate = rounded(p[RULE_LR] / correct1 * sqrt(correct2), 0);
    struct num *m = x->elem[0], *v = x->elem[1];
    for (int32_t d = 0; d < c->dim; d++) {
        m[d] = averaged(p[ADAM_EPSILON_HAT_BETA1], m[d], c->g[d]);
        v[d] = moving_square(p[ADAM_EPSILON_HAT_BETA2], v[d], c->g[d]);
        const struct num step = quot(mul(rate, m[d]), denominator(v[d], eps), eps);
        x->weight[d] = sub(x->weight[d], step);
    }
}
