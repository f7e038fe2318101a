/* SPDX-License-Identifier: MIT
 *
 * RMSprop with momentum, as in Keras and TensorFlow: epsilon is inside of the root, and the
 * learning rate inside of the buffer, which therefore keeps earlier rates. The rule
 * rmsprop_momentum has PyTorch's form.
 *
 * s starts at 0, as in Keras; TensorFlow 1 starts it at 1. Keras presets a momentum of 0, which is
 * the rule rmsprop with eps_inside. If s and eps are 0, a zero gradient gives 0/0.
 */
#pragma once

#include "kernels/rule.h"

enum { RMSPROP_KERAS_RHO = 1, RMSPROP_KERAS_MOMENTUM, RMSPROP_KERAS_EPS };

RULE_INFO(rmsprop_keras) = {
    .name = "rmsprop_keras",
    .formula = "s = rho*s+(1-rho)*g^2; b = momentum*b + lr*g/sqrt(s+eps); w -= b",
    .source = "Hinton 2012, lecture 6e; keras.optimizers.RMSprop, "
              "TensorFlow ResourceSparseApplyRMSProp",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"rho", 0.9f, RULE_BELOW_ONE},
               {"momentum", 0.9f, RULE_NOT_NEGATIVE},
               {"eps", 1e-7f, RULE_NOT_NEGATIVE}},
    .elem = {{"s", 0, 0, 0x1p-4f}, {"b", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 2,
    .momenta = 1u << 1,
};

RULE_NO_PREPARE(rmsprop_keras)
RULE_NO_BEFORE(rmsprop_keras)
RULE_NO_ROW(rmsprop_keras)
RULE_NO_AFTER(rmsprop_keras)
RULE_NO_WEIGHT(rmsprop_keras)

HOST_DEVICE struct states rmsprop_keras_states(struct element e) {
    const float *p = e.param;
    e.s.x[0] = moving_average(p[RMSPROP_KERAS_RHO], e.s.x[0], e.g * e.g);
    e.s.x[1] = p[RMSPROP_KERAS_MOMENTUM] * e.s.x[1] +
               e.rate.a * e.g / sqrtf(e.s.x[0] + p[RMSPROP_KERAS_EPS]);
    return e.s;
}

HOST_DEVICE float rmsprop_keras_direction(struct element e) {
    return e.s.x[1];
}
