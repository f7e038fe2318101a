/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* The second and the first moment after the step, and s - m^2. */
struct centered {
    struct num s, m, variance;
};

static inline struct centered centered(struct num alpha, struct num rest, struct num s,
                                       struct num m, struct num g) {
    s = add(mul(alpha, s), mul(rest, mul(g, g)));
    m = add(mul(alpha, m), mul(rest, g));
    return (struct centered){s, m, sub(s, mul(m, m))};
}

static inline void rmsprop_centered(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    const struct num alpha = exactly(p[RMSPROP_CENTERED_ALPHA]), rest = sub(exactly(1), alpha);
    struct num *s = x->elem[0], *m = x->elem[1], *b = x->elem[2];
    const float eps = p[RMSPROP_CENTERED_EPS];
    const bool sound = alpha.value > 0x1p-8;
    const double longest = 2 / sqrt(alpha.value * rest.value) + 0x1p-58 / eps;
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num g = c->g[d];
        /* From 0, s - m^2 = alpha (1-alpha) g^2: more than its rounding errors, or 0. */
        const bool fresh = s[d].value == 0 && m[d].value == 0 && sound;
        const struct num largest = exactly(copysign(fabs(g.value) + g.error, m[d].value));
        const double rounding = centered(alpha, rest, s[d], m[d], largest).variance.error;
        /* After the step it is alpha (s - m^2) + alpha (1-alpha) (g - m)^2, for any error of g. */
        const double least = alpha.value * (s[d].value - m[d].value * m[d].value) - rounding;
        struct centered after = centered(alpha, rest, s[d], m[d], g);
        s[d] = after.s, m[d] = after.m;
        if (after.variance.value < after.variance.error && !fresh && !(least > 0))
            after.variance.error = INFINITY;
        struct num step = quot(g, denominator(after.variance, eps),
                               (sqrt(greater(least, 0)) + eps) * (1 - 4 * unit));
        if (fresh) step.error = lesser(step.error, fabs(step.value) + longest);
        b[d] = add(mul(exactly(p[RMSPROP_CENTERED_MOMENTUM]), b[d]), step);
        x->weight[d] = sub(x->weight[d], mul(exactly(p[RULE_LR]), b[d]));
    }
}
