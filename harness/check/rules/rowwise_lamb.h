/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/lamb.h"
#include "harness/check/rules/rowwise_adam.h"

static inline void rowwise_lamb(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, eps = p[ROWWISE_LAMB_EPS];
    const struct num below = second_moment(c, p[ROWWISE_LAMB_BETA2], eps, &x->row[0]);
    struct lengths lengths = {{0, 0, 0}, {0, 0, 0}, 0};
    struct num scale = exactly(p[RULE_LR]);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t d = 0; d < c->dim; d++) {
            struct num m = x->elem[0][d], *w = &x->weight[d];
            const struct num step = rowwise_step(c, p[ROWWISE_LAMB_BETA1], eps, below, c->g[d], &m);
            const struct num u = add(step, mul(exactly(p[ROWWISE_LAMB_DECAY]), *w));
            if (pass == 0) {
                lengths_add(&lengths, *w, u);
                continue;
            }
            x->elem[0][d] = m;
            *w = sub(*w, mul(scale, u));
        }
        if (pass == 0) scale = trusted(&lengths, c->dim, scale);
    }
}
