/* SPDX-License-Identifier: MIT */
#ifndef EMBFUSE_ORACLE_LAMB_H
#define EMBFUSE_ORACLE_LAMB_H

#include "harness/check/rules/adam.h"

/* Every element of the row is certainly 0. */
static inline bool is_nought(const struct total *x) {
    return x->magnitude == 0;
}

static inline void lamb(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    struct total weights = {0, 0, 0}, steps = {0, 0, 0};
    struct num scale = exactly(p[RULE_LR]);
    double shortest = 0; /* the least that the sum of u^2 can be, without roundings of its own */
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t d = 0; d < c->dim; d++) {
            struct moments after = moments(x->elem[0][d], x->elem[1][d], c->g[d], c->t,
                                           p[LAMB_BETA1], p[LAMB_BETA2], p[LAMB_EPS]);
            struct num u = add(quot(after.corrected, after.below, p[LAMB_EPS]),
                               mul(exactly(p[LAMB_DECAY]), x->weight[d]));
            if (pass == 0) {
                total_add(&weights, mul(x->weight[d], x->weight[d]));
                total_add(&steps, mul(u, u));
                shortest += pow(fmax(fabs(u.value) - u.error, 0), 2);
                continue;
            }
            x->elem[0][d] = after.m, x->elem[1][d] = after.v;
            x->weight[d] = sub(x->weight[d], mul(scale, u));
        }
        if (pass == 1 || is_nought(&weights) || is_nought(&steps)) continue;
        /* The branch must not depend on rounding, so the denominator must be above 0. */
        struct num w = root(total_of(&weights, c->dim)), length = root(total_of(&steps, c->dim));
        scale = mul(scale, quot(w, length, shortest > 1e-30 ? (1 - 1e-4) * sqrt(shortest) : 0));
        if (!(w.value > w.error)) scale.error = INFINITY;
    }
}

#endif
