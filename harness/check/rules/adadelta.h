/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/rmsprop.h"

static inline void adadelta(const struct rule_case *c, struct oracle_row *x) {
    const float rho = c->param[ADADELTA_RHO], eps = c->param[ADADELTA_EPS];
    struct num *s = x->elem[0], *steps = x->elem[1];
    for (int32_t d = 0; d < c->dim; d++) {
        s[d] = moving_square(rho, s[d], c->g[d]);
        const struct divisor below = divisor(s[d], eps, true), above = divisor(steps[d], eps, true);
        const struct num ratio = quot(above.value, below.value, below.least);
        const struct num u = shortened(mul(ratio, c->g[d]), above.value.value + above.value.error,
                                       below.least, 1 / (1 - (double)rho));
        steps[d] = moving_square(rho, steps[d], u);
        x->weight[d] = sub(x->weight[d], mul(exactly(c->param[RULE_LR]), u));
    }
}
