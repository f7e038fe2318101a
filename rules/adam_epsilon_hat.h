/* SPDX-License-Identifier: MIT
 *
 * Adam with epsilon added before the bias correction, the paper's "epsilon hat". It is the rule
 * adam with eps/sqrt(1-beta2^t) in place of eps. Both corrections are part of the rate. Lazy, as
 * adam: untouched rows keep their moments, but the corrections count all steps of the table.
 *
 * PyTorch's SparseAdam is this rule, while its Adam is the rule adam. Keras presets eps 1e-7.
 */
#pragma once

#include "kernels/rule.h"

enum { ADAM_EPSILON_HAT_BETA1 = 1, ADAM_EPSILON_HAT_BETA2, ADAM_EPSILON_HAT_EPS };

RULE_INFO(adam_epsilon_hat) = {
    .name = "adam_epsilon_hat",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*g^2; "
               "w -= lr*sqrt(1-beta2^t)/(1-beta1^t)*m/(sqrt(v)+eps)",
    .source =
        "Kingma and Ba 2015, end of section 2; torch.optim.SparseAdam, keras.optimizers.Adam, "
        "TensorFlow Addons LazyAdam, HugeCTR Adam",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 2,
    .momenta = 1,
};

RULE_NO_BEFORE(adam_epsilon_hat)
RULE_NO_ROW(adam_epsilon_hat)
RULE_NO_AFTER(adam_epsilon_hat)
RULE_NO_WEIGHT(adam_epsilon_hat)

static inline void adam_epsilon_hat_prepare(const float *param, int64_t t, float *derived) {
    const double first = 1.0 - pow(param[ADAM_EPSILON_HAT_BETA1], (double)t);
    const double second = 1.0 - pow(param[ADAM_EPSILON_HAT_BETA2], (double)t);
    derived[0] = (float)(param[RULE_LR] * sqrt(second) / first);
}

HOST_DEVICE struct states adam_epsilon_hat_states(struct element e) {
    e.s.x[0] = moving_average(e.param[ADAM_EPSILON_HAT_BETA1], e.s.x[0], e.g);
    e.s.x[1] = moving_average(e.param[ADAM_EPSILON_HAT_BETA2], e.s.x[1], e.g * e.g);
    return e.s;
}

HOST_DEVICE float adam_epsilon_hat_direction(struct element e) {
    return e.derived[0] * e.s.x[0] / (sqrtf(e.s.x[1]) + e.param[ADAM_EPSILON_HAT_EPS]);
}
