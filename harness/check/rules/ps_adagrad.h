/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* Between the bounds, the error is no larger than the way to them. */
static inline struct num bounded(struct num w, double low, double high) {
    const double value = lesser(greater(w.value, low), high);
    if (!isfinite(w.error)) return (struct num){value, INFINITY};
    const double least = lesser(greater(w.value - w.error, low), high);
    const double most = lesser(greater(w.value + w.error, low), high);
    return (struct num){value, greater(value - least, most - value)};
}

static inline void ps_adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    const struct num initial = exactly(p[PS_ADAGRAD_INITIAL]), all = add(initial, x->row[0]);
    const struct num rate = mul(exactly(p[RULE_LR]), root(quot(initial, all, 0)));
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num w = sub(x->weight[d], mul(rate, c->g[d]));
        x->weight[d] = bounded(w, p[PS_ADAGRAD_MIN], p[PS_ADAGRAD_MAX]);
    }
    x->row[0] = accumulate(x->row[0], mean_square(c));
}
