/* SPDX-License-Identifier: MIT
 *
 * Partial row-wise Adam: the first moment is per element, the second moment is one number per row,
 * of the mean square of the row's gradient. Epsilon is added after the bias correction, which
 * counts all steps of the table.
 */
#pragma once

#include "kernels/rule.h"

enum { ROWWISE_ADAM_BETA1 = 1, ROWWISE_ADAM_BETA2, ROWWISE_ADAM_EPS };

RULE_INFO(rowwise_adam) = {
    .name = "rowwise_adam",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*mean(g^2) over the row; "
               "w -= lr*(m/(1-beta1^t))/(sqrt(v/(1-beta2^t))+eps)",
    .source = "FBGEMM PARTIAL_ROWWISE_ADAM",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}},
    .row = {{"v", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 1,
    .row_states = 1,
    .sums_before = 1,
    .before_of_g = true,
    .rates = 2,
    .momenta = 1,
};

RULE_SUMS_SQUARES(rowwise_adam)
RULE_NO_AFTER(rowwise_adam)
RULE_NO_WEIGHT(rowwise_adam)

static inline void rowwise_adam_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = bias_factor(param[ROWWISE_ADAM_BETA1], t);
    derived[1] = bias_factor(param[ROWWISE_ADAM_BETA2], t);
}

/* The learning rate, and what divides the first moment. */
HOST_DEVICE struct pair rowwise_adam_row(struct whole_row x, float *state) {
    const float *p = x.param;
    state[0] = moving_average(p[ROWWISE_ADAM_BETA2], state[0], x.sum.a / (float)x.dim);
    struct pair rate = {p[RULE_LR], sqrtf(state[0] * x.derived[1]) + p[ROWWISE_ADAM_EPS]};
    return rate;
}

HOST_DEVICE struct states rowwise_adam_states(struct element e) {
    e.s.x[0] = moving_average(e.param[ROWWISE_ADAM_BETA1], e.s.x[0], e.g);
    return e.s;
}

HOST_DEVICE float rowwise_adam_direction(struct element e) {
    return e.rate.a * (e.s.x[0] * e.derived[0] / e.rate.b);
}
