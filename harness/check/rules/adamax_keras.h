/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

static inline void adamax_keras(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, eps = p[ADAMAX_KERAS_EPS];
    const struct num correct = rounded(1 - pow(p[ADAMAX_KERAS_BETA1], (double)c->t), 0);
    struct num *m = x->elem[0], *n = x->elem[1];
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num g = c->g[d], size = {fabs(g.value), g.error};
        m[d] = averaged(p[ADAMAX_KERAS_BETA1], m[d], g);
        n[d] = larger(mul(exactly(p[ADAMAX_KERAS_BETA2]), n[d]), size);
        const struct num step = mul(exactly(p[RULE_LR]), quot(m[d], correct, 0));
        x->weight[d] = sub(x->weight[d], quot(step, add(n[d], exactly(eps)), eps));
    }
}
