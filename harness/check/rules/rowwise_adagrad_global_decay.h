/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/rowwise_rmsprop_ar.h"

static inline void rowwise_adagrad_global_decay(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, lr = p[RULE_LR], eps = p[ROWWISE_ADAGRAD_GLOBAL_DECAY_EPS];
    const struct num decay = mul(exactly(lr), exactly(p[ROWWISE_ADAGRAD_GLOBAL_DECAY_DECAY]));
    struct num *s = &x->row[0], *last = &x->row[1];
    const struct num steps = counted((struct num){-last->value, last->error}, (double)c->t);
    const struct num part = clamped(decay, 0, 1);
    const struct num keep = power(part.value > 0 ? sub(exactly(1), part) : exactly(1), steps);
    *last = rounded((double)c->t, 0);
    if (c->t < INT64_C(1) << 24) last->error = 0;
    *s = accumulate(*s, mean_square(c));
    const struct num rate = quot(exactly(lr), denominator(*s, eps), eps);
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num step = shortened(mul(rate, c->g[d]), lr, eps, c->dim);
        x->weight[d] = sub(mul(keep, x->weight[d]), step);
    }
}
