/* SPDX-License-Identifier: MIT
 *
 * Adamax of Keras and TensorFlow: epsilon is added to the decaying maximum of gradients, and is not
 * kept in it. The rule adamax has PyTorch's form.
 */
#pragma once

#include "kernels/rule.h"

enum { ADAMAX_KERAS_BETA1 = 1, ADAMAX_KERAS_BETA2, ADAMAX_KERAS_EPS };

RULE_INFO(adamax_keras) = {
    .name = "adamax_keras",
    .formula = "m = beta1*m+(1-beta1)*g; n = max(beta2*n,|g|); w -= lr*(m/(1-beta1^t))/(n+eps)",
    .source = "Kingma and Ba 2015; keras.optimizers.Adamax, TensorFlow ApplyAdaMax",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-7f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"n", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 2,
    .momenta = 1,
};

RULE_NO_BEFORE(adamax_keras)
RULE_NO_ROW(adamax_keras)
RULE_NO_AFTER(adamax_keras)
RULE_NO_WEIGHT(adamax_keras)

static inline void adamax_keras_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = bias_factor(param[ADAMAX_KERAS_BETA1], t);
}

HOST_DEVICE struct states adamax_keras_states(struct element e) {
    const float decayed = e.param[ADAMAX_KERAS_BETA2] * e.s.x[1], now = fabsf(e.g);
    e.s.x[0] = moving_average(e.param[ADAMAX_KERAS_BETA1], e.s.x[0], e.g);
    e.s.x[1] = now > decayed ? now : decayed;
    return e.s;
}

HOST_DEVICE float adamax_keras_direction(struct element e) {
    return e.rate.a * (e.s.x[0] * e.derived[0]) / (e.s.x[1] + e.param[ADAMAX_KERAS_EPS]);
}
