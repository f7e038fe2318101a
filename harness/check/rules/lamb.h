/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/adam.h"

/* Every element of the row is certainly 0. */
static inline bool is_nought(const struct total *x) {
    return x->magnitude == 0;
}

/* Of the weights and of the step u, over the row. */
struct lengths {
    struct total weights, steps;
    double shortest; /* the least that the sum of u^2 can be, without roundings of its own */
};

static inline void lengths_add(struct lengths *x, struct num w, struct num u) {
    total_add(&x->weights, mul(w, w));
    total_add(&x->steps, mul(u, u));
    x->shortest += pow(greater(fabs(u.value) - u.error, 0), 2);
}

/* lr times the trust ratio. The branch must not depend on rounding, so that both lengths must be
 * above 0. */
static inline struct num trusted(const struct lengths *x, int32_t dim, struct num lr) {
    if (is_nought(&x->weights) || is_nought(&x->steps)) return lr;
    const struct num w = root(total_of(&x->weights, dim)), u = root(total_of(&x->steps, dim));
    const double least = x->shortest > 1e-30 ? (1 - 1e-4) * sqrt(x->shortest) : 0;
    struct num scale = mul(lr, quot(w, u, least));
    if (!(w.value > w.error)) scale.error = INFINITY;
    return scale;
}

static inline void lamb(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    struct lengths lengths = {{0, 0, 0}, {0, 0, 0}, 0};
    struct num scale = exactly(p[RULE_LR]);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t d = 0; d < c->dim; d++) {
            struct moments after = moments(x->elem[0][d], x->elem[1][d], c->g[d], c->t,
                                           p[LAMB_BETA1], p[LAMB_BETA2], p[LAMB_EPS]);
            struct num u = add(quot(after.corrected, after.below, p[LAMB_EPS]),
                               mul(exactly(p[LAMB_DECAY]), x->weight[d]));
            if (pass == 0) {
                lengths_add(&lengths, x->weight[d], u);
                continue;
            }
            x->elem[0][d] = after.m, x->elem[1][d] = after.v;
            x->weight[d] = sub(x->weight[d], mul(scale, u));
        }
        if (pass == 0) scale = trusted(&lengths, c->dim, scale);
    }
}
