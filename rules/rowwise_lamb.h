/* SPDX-License-Identifier: MIT
 *
 * LAMB with one second moment per row, of the mean square of the row's gradient, and a trust ratio
 * per row. As in rules/lamb.h, the ratio is 1 if one of the two lengths is 0; FBGEMM divides by 0
 * there.
 */
#pragma once

#include "kernels/rule.h"

enum { ROWWISE_LAMB_BETA1 = 1, ROWWISE_LAMB_BETA2, ROWWISE_LAMB_EPS, ROWWISE_LAMB_DECAY };

RULE_INFO(rowwise_lamb) = {
    .name = "rowwise_lamb",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*mean(g^2) over the row; "
               "u = (m/(1-beta1^t))/(sqrt(v/(1-beta2^t))+eps) + weight_decay*w; "
               "w -= lr*|w|/|u|*u, |.| over the row, |w|/|u| = 1 where either is 0",
    .source = "You et al. 2020; FBGEMM PARTIAL_ROWWISE_LAMB",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"weight_decay", 0, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}},
    .row = {{"v", 0, 0, 0x1p-4f}},
    .num_params = 5,
    .elem_states = 1,
    .row_states = 1,
    .sums_before = 1,
    .sums_after = 2,
    .before_of_g = true,
    .rates = 2,
    .momenta = 1,
};

RULE_SUMS_SQUARES(rowwise_lamb)
RULE_NO_WEIGHT(rowwise_lamb)

static inline void rowwise_lamb_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = bias_factor(param[ROWWISE_LAMB_BETA1], t);
    derived[1] = bias_factor(param[ROWWISE_LAMB_BETA2], t);
}

/* The learning rate, and what divides the first moment. */
HOST_DEVICE struct pair rowwise_lamb_row(struct whole_row x, float *state) {
    const float *p = x.param;
    state[0] = moving_average(p[ROWWISE_LAMB_BETA2], state[0], x.sum.a / (float)x.dim);
    struct pair rate = {p[RULE_LR], sqrtf(state[0] * x.derived[1]) + p[ROWWISE_LAMB_EPS]};
    return rate;
}

HOST_DEVICE struct states rowwise_lamb_states(struct element e) {
    e.s.x[0] = moving_average(e.param[ROWWISE_LAMB_BETA1], e.s.x[0], e.g);
    return e.s;
}

HOST_DEVICE float rowwise_lamb_direction(struct element e) {
    return e.s.x[0] * e.derived[0] / e.rate.b + e.param[ROWWISE_LAMB_DECAY] * e.w;
}

HOST_DEVICE struct pair rowwise_lamb_after(struct element e, float u) {
    struct pair squares = {e.w * e.w, u * u};
    return squares;
}

HOST_DEVICE float rowwise_lamb_scale(struct whole_row x) {
    const bool lengths = x.sum.a > 0 && x.sum.b > 0;
    return lengths ? x.rate.a * (sqrtf(x.sum.a) / sqrtf(x.sum.b)) : x.rate.a;
}
