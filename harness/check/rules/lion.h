/* SPDX-License-Identifier: MIT */
#ifndef EMBFUSE_ORACLE_LION_H
#define EMBFUSE_ORACLE_LION_H

#include "harness/check/rule_case.h"

/* Where rounding may decide, the bound holds every outcome. */
static inline struct num sign_of(struct num x) {
    const double sign = (x.value > 0) - (x.value < 0);
    const bool sure = fabs(x.value) > x.error || (x.value == 0 && x.error == 0);
    return sure ? exactly(sign) : (struct num){sign, 1 + fabs(sign)};
}

static inline void lion(const struct rule_case *c, struct oracle_row *x) {
    const struct num lr = exactly(c->param[RULE_LR]), decay = exactly(c->param[LION_DECAY]),
                     beta1 = exactly(c->param[LION_BETA1]), beta2 = exactly(c->param[LION_BETA2]),
                     one = exactly(1);
    struct num *m = x->elem[0];
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num g = c->g[d], towards = add(mul(beta1, m[d]), mul(sub(one, beta1), g));
        const struct num u = add(sign_of(towards), mul(decay, x->weight[d]));
        m[d] = add(mul(beta2, m[d]), mul(sub(one, beta2), g));
        x->weight[d] = sub(x->weight[d], mul(lr, u));
    }
}

#endif
