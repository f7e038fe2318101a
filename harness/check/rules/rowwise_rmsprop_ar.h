/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/adagrad.h"

/* Between two bounds, and so is every outcome of a rounding. */
static inline struct num clamped(struct num x, double least, double most) {
    const double value = greater(least, lesser(x.value, most));
    const double high = greater(least, lesser(x.value + x.error, most));
    const double low = greater(least, lesser(x.value - x.error, most));
    return (struct num){value, greater(high - value, value - low)};
}

static inline void rowwise_rmsprop_ar(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, lr = p[RULE_LR], eps = p[ROWWISE_RMSPROP_AR_EPS];
    const struct num beta = exactly(p[ROWWISE_RMSPROP_AR_BETA]), rest = sub(exactly(1), beta);
    struct num *s = &x->row[0], *last = &x->row[1], steps = exactly(1);
    if (last->value != 0) steps = counted((struct num){-last->value, last->error}, (double)c->t);
    const struct num lambda = mul(mul(exactly(lr), exactly(p[ROWWISE_RMSPROP_AR_ALPHA])), steps);
    const struct num keep =
        clamped(sub(exactly(1), clamped(lambda, 0, 1)), p[ROWWISE_RMSPROP_AR_LEAST], 1);
    *last = rounded((double)c->t, 0);
    if (c->t < INT64_C(1) << 24) last->error = 0;
    *s = accumulate(mul(beta, *s), mul(rest, mean_square(c)));
    const struct num rate = quot(exactly(lr), denominator(*s, eps), eps);
    const double n = c->dim / (1 - beta.value);
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num step = shortened(mul(rate, c->g[d]), lr, eps, n);
        x->weight[d] = sub(mul(keep, x->weight[d]), step);
    }
}
