/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/adagrad.h"

/* The decaying mean square of gradients after the step. */
static inline struct num moving_square(float decay, struct num s, struct num g) {
    const struct num beta = exactly(decay), rest = sub(exactly(1), beta);
    return accumulate(mul(beta, s), mul(rest, mul(g, g)));
}

static inline void rmsprop(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, lr = p[RULE_LR], alpha = p[RMSPROP_ALPHA];
    struct num *s = x->elem[0];
    for (int32_t d = 0; d < c->dim; d++) {
        s[d] = moving_square(alpha, s[d], c->g[d]);
        const struct divisor below = divisor(s[d], p[RMSPROP_EPS], p[RMSPROP_EPS_INSIDE] != 0);
        const struct num step = quot(mul(exactly(lr), c->g[d]), below.value, below.least);
        x->weight[d] = sub(x->weight[d], shortened(step, lr, below.least, 1 / (1 - (double)alpha)));
    }
}
