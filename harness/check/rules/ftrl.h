/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* Adds to the two states; towards is the gradient with shrinkage. */
static inline void ftrl_add(float lr, struct num w, struct num g, struct num towards, struct num *z,
                            struct num *n) {
    const struct num old = root(*n);
    *n = accumulate(*n, mul(g, g));
    struct num sigma = quot(sub(root(*n), old), exactly(fabs(lr)), 0);
    if (lr < 0) sigma.value = -sigma.value;
    *z = add(*z, sub(towards, mul(sigma, w)));
}

/* sign(z)*l1 - z, or 0 where |z| <= l1: no outcome of a rounding is further away than z is. */
static inline struct num shrunk(struct num z, double l1) {
    if (fabs(z.value) + z.error <= l1) return exactly(0);
    return rounded(-copysign(greater(fabs(z.value) - l1, 0), z.value), z.error);
}

/* sqrt(n) + beta + l2_lr; least: the accumulator before the step. */
struct ftrl_below {
    struct num value;
    double least;
};

static inline struct ftrl_below ftrl_below(struct num n, struct num least, float beta,
                                           struct num l2_lr) {
    const double low = sqrt(greater(least.value - least.error, 0)) + beta;
    return (struct ftrl_below){add(denominator(n, beta), l2_lr),
                               l2_lr.value < 0 ? 0 : low * (1 - 8 * unit)};
}

static inline struct num ftrl_quot(struct num above, struct ftrl_below below) {
    return above.value == 0 && above.error == 0 ? above : quot(above, below.value, below.least);
}

static inline void ftrl(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, lr = p[RULE_LR];
    for (int32_t d = 0; d < c->dim; d++) {
        struct num *w = &x->weight[d], *z = &x->elem[0][d], *n = &x->elem[1][d];
        const struct num before = *n, more = mul(exactly(2 * (double)p[FTRL_SHRINKAGE]), *w);
        /* From 0, |z| is at most |g| (1 + |w/lr|), and sqrt(n) at least |g|. If g^2 is subnormal,
         * its root is off by less than half, or w is 0. */
        const bool fresh = n->value == 0 && n->error == 0 && z->value == 0 && z->error == 0 &&
                           more.value == 0 && more.error == 0;
        const double longest = 2 * (fabs(lr) + fabs(w->value) + w->error);
        ftrl_add(lr, *w, c->g[d], add(c->g[d], more), z, n);
        const struct num l2_lr = mul(exactly(2 * (double)p[FTRL_L2]), exactly(lr));
        const struct ftrl_below below = ftrl_below(*n, before, p[FTRL_BETA], l2_lr);
        *w = ftrl_quot(mul(exactly(lr), shrunk(*z, p[FTRL_L1])), below);
        if (fresh && !(w->error < longest)) w->value = 0, w->error = longest;
    }
}
