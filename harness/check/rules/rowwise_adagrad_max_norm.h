/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/rowwise_adagrad.h"

/* min(1, most/length): the bound of the fraction holds where rounding decides, too. */
static inline struct num at_most(float most, struct num length) {
    if (most == 0 || length.value + length.error <= most) return exactly(1);
    struct num scale = quot(exactly(most), length, most);
    scale.value = lesser(scale.value, 1);
    return scale;
}

static inline void rowwise_adagrad_max_norm(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    struct total squares = {0, 0, 0};
    rowwise_adagrad(c, x); /* has its hyper-parameters first */
    for (int32_t d = 0; d < c->dim; d++) total_add(&squares, mul(x->weight[d], x->weight[d]));
    const struct num length = root(total_of(&squares, c->dim));
    const struct num scale = at_most(p[ROWWISE_ADAGRAD_MAX_NORM_MAX], length);
    for (int32_t d = 0; d < c->dim; d++) x->weight[d] = mul(scale, x->weight[d]);
}
