/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rules/adagrad.h"

static inline void rowwise_adagrad_counter(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, lr = p[RULE_LR], eps = p[ROWWISE_ADAGRAD_COUNTER_EPS];
    const double threshold = p[ROWWISE_ADAGRAD_COUNTER_THRESHOLD];
    struct num *s = &x->row[0], *count = &x->row[1];
    *s = accumulate(*s, mean_square(c));
    *count = counted(*count, 1);
    const bool counts = count->value > threshold;
    const struct num by_count = mul(exactly(p[ROWWISE_ADAGRAD_COUNTER_UB]), *count);
    struct num rate = quot(exactly(lr), denominator(counts ? by_count : *s, eps), eps);
    /* Where rounding may decide, the two rates have no common bound. */
    if (count->error > 0 && fabs(count->value - threshold) <= count->error) rate.error = INFINITY;
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num step = mul(rate, c->g[d]);
        x->weight[d] = sub(x->weight[d], counts ? step : shortened(step, lr, eps, c->dim));
    }
}
