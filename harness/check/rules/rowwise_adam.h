/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* The new second moment of the row, and sqrt(v/(1-beta2^t)) + eps. */
static inline struct num second_moment(const struct rule_case *c, float beta2, float eps,
                                       struct num *v) {
    const struct num rest = sub(exactly(1), exactly(beta2));
    *v = accumulate(mul(exactly(beta2), *v), mul(rest, mean_square(c)));
    return denominator(quot(*v, rounded(1 - pow(beta2, (double)c->t), 0), 0), eps);
}

/* The new first moment of an element; returns it, corrected, over what second_moment() returned. */
static inline struct num rowwise_step(const struct rule_case *c, float beta1, float eps,
                                      struct num below, struct num g, struct num *m) {
    *m = averaged(beta1, *m, g);
    return quot(quot(*m, rounded(1 - pow(beta1, (double)c->t), 0), 0), below, eps);
}

static inline void rowwise_adam(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, eps = p[ROWWISE_ADAM_EPS];
    const struct num below = second_moment(c, p[ROWWISE_ADAM_BETA2], eps, &x->row[0]);
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num u =
            rowwise_step(c, p[ROWWISE_ADAM_BETA1], eps, below, c->g[d], &x->elem[0][d]);
        x->weight[d] = sub(x->weight[d], mul(exactly(p[RULE_LR]), u));
    }
}
