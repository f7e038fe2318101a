/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/ftrl.h"

/* max(1 - l1/|z|, 0): between 0 and 1, and on both sides of l1 next to 0. */
static inline struct num group_scale(struct num length, float l1) {
    if (length.value + length.error <= l1) return exactly(0);
    struct num scale = quot(shrunk(length, l1), length, l1);
    scale.value = -scale.value; /* shrunk() has the other sign */
    if (!(scale.error < 1)) scale = (struct num){0, 1};
    return scale;
}

static inline void group_ftrl(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, lr = p[RULE_LR];
    const struct num l2_lr = mul(exactly(p[GROUP_FTRL_L2]), exactly(lr));
    struct total squares = {0, 0, 0};
    for (int32_t d = 0; d < c->dim; d++) {
        struct num *w = &x->weight[d], *z = &x->elem[0][d], *n = &x->elem[1][d];
        const struct num before = *n;
        ftrl_add(lr, *w, c->g[d], c->g[d], z, n);
        total_add(&squares, mul(*z, *z));
        const struct ftrl_below below = ftrl_below(*n, before, p[GROUP_FTRL_BETA], l2_lr);
        *w = ftrl_quot(mul(exactly(-(double)lr), *z), below);
    }
    const struct num scale = group_scale(root(total_of(&squares, c->dim)), p[GROUP_FTRL_L1]);
    for (int32_t d = 0; d < c->dim; d++) x->weight[d] = mul(scale, x->weight[d]);
}
