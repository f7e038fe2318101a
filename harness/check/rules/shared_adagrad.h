/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

static inline void shared_adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    struct num *s = &x->row[0];
    const struct num below = root(add(*s, exactly(p[SHARED_ADAGRAD_EPS])));
    const struct num rate = quot(exactly(p[RULE_LR]), below, 0);
    for (int32_t d = 0; d < c->dim; d++) x->weight[d] = sub(x->weight[d], mul(rate, c->g[d]));
    *s = accumulate(mul(exactly(p[SHARED_ADAGRAD_MOMENTUM]), *s), mean_square(c));
}
