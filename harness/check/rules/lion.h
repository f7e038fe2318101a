/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* Where rounding may decide, the bound holds every outcome. */
static inline struct num sign_of(struct num x) {
    const double sign = (x.value > 0) - (x.value < 0);
    const bool sure = fabs(x.value) > x.error || (x.value == 0 && x.error == 0);
    return sure ? exactly(sign) : (struct num){sign, 1 + fabs(sign)};
}

static inline void lion(const struct rule_case *c, struct oracle_row *x) {
    const struct num lr = exactly(c->param[RULE_LR]);
    struct num *m = x->elem[0];
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num sign = sign_of(averaged(c->param[LION_BETA1], m[d], c->g[d]));
        m[d] = averaged(c->param[LION_BETA2], m[d], c->g[d]);
        x->weight[d] = sub(x->weight[d], mul(lr, sign));
    }
}
