/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/lamb.h"

static inline void lars(const struct rule_case *c, struct oracle_row *x) {
    const struct num lr = exactly(c->param[RULE_LR]), eta = exactly(c->param[LARS_ETA]),
                     mu = exactly(c->param[LARS_MOMENTUM]), decay = exactly(c->param[LARS_DECAY]);
    struct total weights = {0, 0, 0}, grads = {0, 0, 0};
    struct num *b = x->elem[0], a = lr;
    for (int32_t d = 0; d < c->dim; d++) {
        total_add(&weights, mul(x->weight[d], x->weight[d]));
        total_add(&grads, mul(c->g[d], c->g[d]));
    }
    if (!is_nought(&weights) && !is_nought(&grads)) {
        const struct num w = root(total_of(&weights, c->dim)), g = root(total_of(&grads, c->dim));
        a = quot(mul(mul(lr, eta), w), add(g, mul(decay, w)), 0);
        /* The branch must not depend on rounding, so that both lengths must be above 0. */
        if (!(w.value > w.error) || !(g.value > g.error)) a.error = INFINITY;
    }
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num towards = add(c->g[d], mul(decay, x->weight[d]));
        b[d] = add(mul(mu, b[d]), mul(a, towards));
        x->weight[d] = sub(x->weight[d], b[d]);
    }
}
