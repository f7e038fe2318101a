/* SPDX-License-Identifier: MIT */
#ifndef EMBFUSE_ORACLE_MOMENTUM_H
#define EMBFUSE_ORACLE_MOMENTUM_H

#include "harness/check/rule_case.h"

static inline void momentum(const struct rule_case *c, struct oracle_row *x) {
    struct num *b = x->elem[0], lr = exactly(c->param[RULE_LR]);
    for (int32_t d = 0; d < c->dim; d++) {
        b[d] = add(mul(exactly(c->param[MOMENTUM_MU]), b[d]), c->g[d]);
        x->weight[d] = sub(x->weight[d], mul(lr, b[d]));
    }
}

#endif
