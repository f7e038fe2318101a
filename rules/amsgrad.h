/* SPDX-License-Identifier: MIT
 *
 * AMSGrad: Adam whose second moment never shrinks. The largest v so far divides the step.
 *
 * The maximum is of v without its bias correction, which x gets after the maximum, as in PyTorch.
 * The paper has no bias corrections. Keras adds epsilon before the correction (see
 * adam_epsilon_hat).
 */
#pragma once

#include "kernels/rule.h"

enum { AMSGRAD_BETA1 = 1, AMSGRAD_BETA2, AMSGRAD_EPS };

RULE_INFO(amsgrad) = {
    .name = "amsgrad",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*g^2; x = max(x,v); "
               "w -= lr*(m/(1-beta1^t))/(sqrt(x/(1-beta2^t))+eps)",
    .source = "Reddi, Kale and Kumar 2018; torch.optim.Adam(amsgrad)",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}, {"x", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 3,
    .momenta = 1,
};

RULE_NO_BEFORE(amsgrad)
RULE_NO_ROW(amsgrad)
RULE_NO_AFTER(amsgrad)
RULE_NO_WEIGHT(amsgrad)

static inline void amsgrad_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = bias_factor(param[AMSGRAD_BETA1], t);
    derived[1] = bias_factor(param[AMSGRAD_BETA2], t);
}

HOST_DEVICE struct states amsgrad_states(struct element e) {
    e.s.x[0] = moving_average(e.param[AMSGRAD_BETA1], e.s.x[0], e.g);
    e.s.x[1] = moving_average(e.param[AMSGRAD_BETA2], e.s.x[1], e.g * e.g);
    e.s.x[2] = e.s.x[1] > e.s.x[2] ? e.s.x[1] : e.s.x[2];
    return e.s;
}

HOST_DEVICE float amsgrad_direction(struct element e) {
    return e.rate.a * (e.s.x[0] * e.derived[0]) /
           (sqrtf(e.s.x[2] * e.derived[1]) + e.param[AMSGRAD_EPS]);
}
