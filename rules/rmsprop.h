/* SPDX-License-Identifier: MIT
 *
 * RMSprop: divides gradients by the root of their decaying mean square, which starts at 0.
 *
 * Epsilon is outside of the root, as in PyTorch, or inside with eps_inside, as in Keras (0.9 for
 * alpha and 1e-7 for eps there; TensorFlow 1 starts s at 1). The step uses the new s. If s and eps
 * are 0, a zero gradient gives 0/0.
 */
#pragma once

#include "kernels/rule.h"

enum { RMSPROP_ALPHA = 1, RMSPROP_EPS, RMSPROP_EPS_INSIDE };

RULE_INFO(rmsprop) = {
    .name = "rmsprop",
    .formula = "s = alpha*s+(1-alpha)*g^2; w -= lr*g/(sqrt(s)+eps), "
               "or lr*g/sqrt(s+eps) with eps_inside",
    .source = "Hinton 2012, lecture 6e; torch.optim.RMSprop, keras.optimizers.RMSprop",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"alpha", 0.99f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"eps_inside", 0, RULE_FLAG}},
    .elem = {{"s", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 1,
};

RULE_NO_PREPARE(rmsprop)
RULE_NO_BEFORE(rmsprop)
RULE_NO_ROW(rmsprop)
RULE_NO_AFTER(rmsprop)
RULE_NO_WEIGHT(rmsprop)

HOST_DEVICE struct states rmsprop_states(struct element e) {
    e.s.x[0] = moving_average(e.param[RMSPROP_ALPHA], e.s.x[0], e.g * e.g);
    return e.s;
}

HOST_DEVICE float rmsprop_direction(struct element e) {
    return e.rate.a * e.g /
           root_and_epsilon(e.s.x[0], e.param[RMSPROP_EPS], e.param[RMSPROP_EPS_INSIDE]);
}
