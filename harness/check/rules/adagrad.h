/* SPDX-License-Identifier: MIT */
#ifndef EMBFUSE_ORACLE_ADAGRAD_H
#define EMBFUSE_ORACLE_ADAGRAD_H

#include "harness/check/rule_case.h"

/* Bounds a step of Adagrad by its greatest length: lr|g| / (sqrt(s + g^2/n) + eps) <= lr sqrt(n).
 * The evaluation obeys it too, unless g^2 is subnormal: then |g| < 2^-61 sqrt(n), and eps divides.
 * If the gradient may be 0, this bound is tighter than the separate errors of numerator and
 * denominator. */
static inline struct num shortened(struct num step, float lr, float eps, int32_t n) {
    double longest = 2 * fabs(lr) * sqrt(n) * (1 + 0x1p-60 / eps) + 0x1p-80 + 4 * tiny / eps;
    step.error = fmin(step.error, fabs(step.value) + longest);
    return step;
}

static inline void adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float lr = c->param[RULE_LR], eps = c->param[ADAGRAD_EPS];
    struct num *s = x->elem[0];
    for (int32_t d = 0; d < c->dim; d++) {
        s[d] = accumulate(s[d], mul(c->g[d], c->g[d]));
        struct num step = quot(mul(exactly(lr), c->g[d]), denominator(s[d], eps), eps);
        x->weight[d] = sub(x->weight[d], shortened(step, lr, eps, 1));
    }
}

#endif
