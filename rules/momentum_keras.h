/* SPDX-License-Identifier: MIT
 *
 * SGD with momentum, or with Nesterov's, as in Keras: the learning rate is inside of the buffer,
 * which therefore keeps earlier rates. With a constant rate it is the rule momentum without
 * dampening; the buffer is -lr times that rule's.
 */
#pragma once

#include "kernels/rule.h"

enum { MOMENTUM_KERAS_MU = 1, MOMENTUM_KERAS_NESTEROV };

RULE_INFO(momentum_keras) = {
    .name = "momentum_keras",
    .formula = "b = momentum*b - lr*g; w += b, or momentum*b - lr*g with nesterov",
    .source = "Polyak 1964; Sutskever et al. 2013; keras.optimizers.SGD, "
              "TensorFlow ResourceSparseApplyKerasMomentum, HugeCTR MomentumSGD and Nesterov",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"momentum", 0.9f, RULE_NOT_NEGATIVE},
               {"nesterov", 0, RULE_FLAG}},
    .elem = {{"b", 0, 0, 0x1p-4f}},
    .num_params = 3,
    .elem_states = 1,
    .momenta = 1,
};

RULE_NO_PREPARE(momentum_keras)
RULE_NO_BEFORE(momentum_keras)
RULE_NO_ROW(momentum_keras)
RULE_NO_AFTER(momentum_keras)
RULE_NO_WEIGHT(momentum_keras)

HOST_DEVICE struct states momentum_keras_states(struct element e) {
    e.s.x[0] = e.param[MOMENTUM_KERAS_MU] * e.s.x[0] - e.rate.a * e.g;
    return e.s;
}

HOST_DEVICE float momentum_keras_direction(struct element e) {
    const float ahead = e.param[MOMENTUM_KERAS_MU] * e.s.x[0] - e.rate.a * e.g;
    return -(e.param[MOMENTUM_KERAS_NESTEROV] != 0 ? ahead : e.s.x[0]);
}
