/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/ftrl.h"

/* n^power, evaluated with at most three roundings besides the one of rounded(). The largest error found over all n and
 * eleven powers is 2.5 roundings. */
static inline struct num raised(struct num n, float power) {
    const double value = pow(n.value, power), own = 3 * unit * value;
    if (n.error == 0) return rounded(value, own);
    if (!isfinite(n.error)) return (struct num){value, INFINITY};
    const double low = pow(greater(n.value - n.error, 0), power);
    const double off = greater(pow(n.value + n.error, power) - value, value - low);
    return rounded(value, own + off * (1 + 4 * unit));
}

static inline void ftrl_power(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, power = p[FTRL_POWER_POWER], beta = p[FTRL_POWER_BETA];
    const struct num lr = exactly(p[RULE_LR]), l2_lr = mul(exactly(p[FTRL_POWER_L2]), lr);
    for (int32_t d = 0; d < c->dim; d++) {
        struct num *w = &x->weight[d], *z = &x->elem[0][d], *n = &x->elem[1][d];
        const struct num before = raised(*n, power), square = mul(c->g[d], c->g[d]);
        *n = accumulate(*n, square);
        const struct num after = raised(*n, power);
        const bool same = square.value == 0 && square.error == 0; /* then, bit for bit */
        const struct num more = same ? exactly(0) : sub(after, before);
        struct num sigma = quot(more, exactly(fabs(lr.value)), 0);
        if (lr.value < 0) sigma.value = -sigma.value;
        *z = add(*z, sub(c->g[d], mul(sigma, *w)));
        const double low = (before.value - before.error + beta) * (1 - 8 * unit);
        const struct ftrl_below below = {add(add(after, exactly(beta)), l2_lr),
                                         l2_lr.value < 0 ? 0 : low};
        *w = ftrl_quot(mul(lr, shrunk(*z, p[FTRL_POWER_L1])), below);
    }
}
