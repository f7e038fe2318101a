/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

static inline void momentum(const struct rule_case *c, struct oracle_row *x) {
    struct num *b = x->elem[0], lr = exactly(c->param[RULE_LR]),
               mu = exactly(c->param[MOMENTUM_MU]);
    const double dampening = c->param[MOMENTUM_DAMPENING];
    const struct num part = sub(exactly(1), exactly(dampening));
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num g = c->g[d];
        b[d] = add(mul(mu, b[d]), dampening > 0 ? mul(part, g) : g);
        const struct num u = c->param[MOMENTUM_NESTEROV] != 0 ? add(g, mul(mu, b[d])) : b[d];
        x->weight[d] = sub(x->weight[d], mul(lr, u));
    }
}
