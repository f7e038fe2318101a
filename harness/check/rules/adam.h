/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* Adam's moments after the step, m/(1-beta1^t), and sqrt(v/(1-beta2^t)) + eps. */
struct moments {
    struct num m, v, corrected, below;
};

static inline struct moments moments(struct num m, struct num v, struct num g, int64_t t,
                                     float beta1, float beta2, float eps) {
    const struct num b1 = exactly(beta1), b2 = exactly(beta2), one = exactly(1);
    m = add(mul(b1, m), mul(sub(one, b1), g));
    v = accumulate(mul(b2, v), mul(sub(one, b2), mul(g, g)));
    struct num correct1 = rounded(1 - pow(beta1, (double)t), 0);
    struct num correct2 = rounded(1 - pow(beta2, (double)t), 0);
    return (struct moments){m, v, quot(m, correct1, 0), denominator(quot(v, correct2, 0), eps)};
}

static inline void adam(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    for (int32_t d = 0; d < c->dim; d++) {
        struct moments after = moments(x->elem[0][d], x->elem[1][d], c->g[d], c->t, p[ADAM_BETA1],
                                       p[ADAM_BETA2], p[ADAM_EPS]);
        struct num step = mul(exactly(p[RULE_LR]), after.corrected);
        x->elem[0][d] = after.m, x->elem[1][d] = after.v;
        x->weight[d] = sub(x->weight[d], quot(step, after.below, p[ADAM_EPS]));
    }
}
