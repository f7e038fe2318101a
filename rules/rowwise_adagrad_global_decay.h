/* SPDX-License-Identifier: MIT
 *
 * Row-wise Adagrad with a decoupled weight decay of all rows, touched or not: a touched row first pays
 * the decay of all steps since its last one. So a row has the weights that a dense step would give it,
 * once it is touched or caught up (embfuse_catch_up()), but for roundings, and while lr and weight_decay
 * stay as they are. No decay is in s.
 *
 * As FBGEMM's global weight decay, of which start_iter and gwd_lower_bound are left out. FBGEMM's forward
 * scales the rows that it reads; here embfuse_catch_up() before the forward does so.
 */
#pragma once

#include "kernels/rule.h"

enum { ROWWISE_ADAGRAD_GLOBAL_DECAY_EPS = 1, ROWWISE_ADAGRAD_GLOBAL_DECAY_DECAY };

RULE_INFO(rowwise_adagrad_global_decay) = {
    .name = "rowwise_adagrad_global_decay",
    .formula = "k = t-last, last = t per row; s += mean(g^2) over the row; "
               "w = (1-min(1, lr*weight_decay))^k*w - lr/(sqrt(s)+eps)*g",
    .source = "FBGEMM EXACT_ROWWISE_ADAGRAD, weight_decay_mode DECOUPLE_GLOBAL",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"weight_decay", 1e-3f, RULE_NOT_NEGATIVE}},
    .row = {{"s", 0, 0, 0x1p-4f}, {"last", 0, 0, 4}},
    .num_params = 3,
    .row_states = 2,
    .sums_before = 1,
    .before_of_g = true,
    .rates = 2,
    .counts = true,
    .catches_up = true,
};

RULE_SUMS_SQUARES(rowwise_adagrad_global_decay)
RULE_NO_STATES(rowwise_adagrad_global_decay)
RULE_NO_AFTER(rowwise_adagrad_global_decay)

static inline void rowwise_adagrad_global_decay_prepare(const float *param, int64_t t,
                                                        float *derived) {
    const float product = param[RULE_LR] * param[ROWWISE_ADAGRAD_GLOBAL_DECAY_DECAY];
    derived[0] = (float)t;
    derived[1] = 1.0f - (product < 0 ? 0.0f : product < 1 ? product : 1.0f);
}

/* The rate, and the part of the weight that is kept. */
HOST_DEVICE struct pair rowwise_adagrad_global_decay_row(struct whole_row x, float *state) {
    const float keep = whole_power(x.derived[1], x.derived[0] - state[1]);
    state[0] += x.sum.a / (float)x.dim;
    state[1] = x.derived[0];
    struct pair rate = {
        x.param[RULE_LR] / (sqrtf(state[0]) + x.param[ROWWISE_ADAGRAD_GLOBAL_DECAY_EPS]), keep};
    return rate;
}

HOST_DEVICE float rowwise_adagrad_global_decay_direction(struct element e) {
    return e.rate.a * e.g;
}

HOST_DEVICE float rowwise_adagrad_global_decay_weight(struct element e, float u, float scale) {
    return e.rate.b * e.w - scale * u;
}
