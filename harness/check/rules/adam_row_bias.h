/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

static inline void adam_row_bias(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, beta1 = p[ADAM_ROW_BIAS_BETA1], beta2 = p[ADAM_ROW_BIAS_BETA2];
    const float eps = p[ADAM_ROW_BIAS_EPS];
    const struct num rest = sub(exactly(1), exactly(beta2));
    struct num *m = x->elem[0], *v = x->elem[1];
    x->row[0] = counted(x->row[0], 1);
    const struct num correct1 = correction(beta1, x->row[0]);
    const struct num correct2 = correction(beta2, x->row[0]);
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num g = c->g[d];
        m[d] = averaged(beta1, m[d], g);
        v[d] = accumulate(mul(exactly(beta2), v[d]), mul(rest, mul(g, g)));
        const struct num step = mul(exactly(p[RULE_LR]), quot(m[d], correct1, 0));
        const struct num below = denominator(quot(v[d], correct2, 0), eps);
        x->weight[d] = sub(x->weight[d], quot(step, below, eps));
    }
}
