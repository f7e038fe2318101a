/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/adam.h"

static inline void amsgrad(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, eps = p[AMSGRAD_EPS];
    const struct num correct2 = rounded(1 - pow(p[AMSGRAD_BETA2], (double)c->t), 0);
    struct num *largest = x->elem[2];
    for (int32_t d = 0; d < c->dim; d++) {
        const struct moments after = moments(x->elem[0][d], x->elem[1][d], c->g[d], c->t,
                                             p[AMSGRAD_BETA1], p[AMSGRAD_BETA2], eps);
        x->elem[0][d] = after.m, x->elem[1][d] = after.v;
        largest[d] = larger(largest[d], after.v);
        const struct num step = mul(exactly(p[RULE_LR]), after.corrected);
        const struct num below = denominator(quot(largest[d], correct2, 0), eps);
        x->weight[d] = sub(x->weight[d], quot(step, below, eps));
    }
}
