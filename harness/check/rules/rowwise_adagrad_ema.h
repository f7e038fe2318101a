/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/rowwise_adagrad.h"

static inline void rowwise_adagrad_ema(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    struct num *a = x->elem[0], *passes = &x->row[1];
    const double now = floor((double)c->t / p[ROWWISE_ADAGRAD_EMA_STEP]);
    const struct num missed = counted((struct num){-passes->value, passes->error}, now);
    const struct num part = correction(p[ROWWISE_ADAGRAD_EMA_COEF], missed);
    *passes = now < 0x1p24 ? exactly(now) : rounded(now, 0);
    for (int32_t d = 0; d < c->dim; d++) a[d] = add(a[d], mul(part, sub(x->weight[d], a[d])));
    rowwise_adagrad(c, x); /* has its hyper-parameters and its state first */
}
