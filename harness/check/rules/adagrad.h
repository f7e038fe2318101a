/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* Bounds a step of Adagrad by its greatest length: lr|g| / (sqrt(s + g^2/n) + eps) <= lr sqrt(n).
 * The evaluation obeys it too, unless g^2 is subnormal: then |g| < 2^-61 sqrt(n), and eps, or the
 * least denominator, divides. If the gradient may be 0, this bound is tighter than the separate
 * errors of numerator and denominator. */
static inline struct num shortened(struct num step, double lr, double eps, double n) {
    double longest = 2 * fabs(lr) * sqrt(n) * (1 + 0x1p-60 / eps) + 0x1p-80 + 4 * tiny / eps;
    step.error = lesser(step.error, fabs(step.value) + longest);
    return step;
}

static inline void adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    const double decay = p[ADAGRAD_LR_DECAY], rate = p[RULE_LR] / (1 + (double)(c->t - 1) * decay);
    const struct num lr = decay > 0 ? rounded(rate, 0) : exactly(rate);
    struct num *s = x->elem[0];
    for (int32_t d = 0; d < c->dim; d++) {
        s[d] = accumulate(s[d], mul(c->g[d], c->g[d]));
        const struct divisor below = divisor(s[d], p[ADAGRAD_EPS], p[ADAGRAD_EPS_INSIDE] != 0);
        const struct num step = quot(mul(lr, c->g[d]), below.value, below.least);
        x->weight[d] = sub(x->weight[d], shortened(step, rate, below.least, 1));
    }
}
