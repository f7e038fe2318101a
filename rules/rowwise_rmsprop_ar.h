/* SPDX-License-Identifier: MIT
 *
 * Row-wise RMSprop whose weight decay counts the steps since the row was last touched. They are
 * paid at once when it is touched again, as one linear decay that keeps at least min_shrinkage of
 * the weight. The step reads the new s, and no decay is in s. Epsilon is outside of the root.
 *
 * As in FBGEMM (pull request #5949), a row that was never touched (last 0) decays for one step, and
 * so does a row that was touched in the step before. The learning rate in the decay is FBGEMM's
 * adaptation of the paper. FBGEMM's preset of ar_alpha is 0: no decay.
 */
#pragma once

#include "kernels/rule.h"

enum {
    ROWWISE_RMSPROP_AR_BETA = 1,
    ROWWISE_RMSPROP_AR_EPS,
    ROWWISE_RMSPROP_AR_ALPHA,
    ROWWISE_RMSPROP_AR_LEAST
};

RULE_INFO(rowwise_rmsprop_ar) = {
    .name = "rowwise_rmsprop_ar",
    .formula = "k = t-last per row, 1 where last is 0; last = t; "
               "s = ema_beta*s+(1-ema_beta)*mean(g^2) over the row; "
               "w = max(min_shrinkage, 1-min(1, lr*ar_alpha*k))*w - lr/(sqrt(s)+eps)*g",
    .source = "Li and Lyu 2026, algorithm 2; FBGEMM ROWWISE_RMSPROP_AR",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"ema_beta", 0.99f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"ar_alpha", 0.1f, RULE_NOT_NEGATIVE},
               {"min_shrinkage", 0.1f, RULE_BELOW_ONE}},
    .row = {{"s", 0, 0, 0x1p-4f}, {"last", 0, 0, 4}},
    .num_params = 5,
    .row_states = 2,
    .sums_before = 1,
    .before_of_g = true,
    .rates = 2,
    .counts = true,
};

RULE_SUMS_SQUARES(rowwise_rmsprop_ar)
RULE_NO_STATES(rowwise_rmsprop_ar)
RULE_NO_AFTER(rowwise_rmsprop_ar)

static inline void rowwise_rmsprop_ar_prepare(const float *param, int64_t t, float *derived) {
    (void)param;
    derived[0] = (float)t;
}

/* The rate, and the part of the weight that is kept. A row from a later step has no decay. */
HOST_DEVICE struct pair rowwise_rmsprop_ar_row(struct whole_row x, float *state) {
    const float *p = x.param, steps = state[1] == 0.0f ? 1.0f : x.derived[0] - state[1];
    const float product = p[RULE_LR] * p[ROWWISE_RMSPROP_AR_ALPHA] * steps;
    const float decay = product > 0 ? product : 0.0f, least = p[ROWWISE_RMSPROP_AR_LEAST];
    const float keep = 1.0f - (decay < 1.0f ? decay : 1.0f);
    state[0] = moving_average(p[ROWWISE_RMSPROP_AR_BETA], state[0], x.sum.a / (float)x.dim);
    state[1] = x.derived[0];
    struct pair rate = {p[RULE_LR] / (sqrtf(state[0]) + p[ROWWISE_RMSPROP_AR_EPS]),
                        keep > least ? keep : least};
    return rate;
}

HOST_DEVICE float rowwise_rmsprop_ar_direction(struct element e) {
    return e.rate.a * e.g;
}

HOST_DEVICE float rowwise_rmsprop_ar_weight(struct element e, float u, float scale) {
    return e.rate.b * e.w - scale * u;
}
