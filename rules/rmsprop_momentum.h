/* SPDX-License-Identifier: MIT
 *
 * RMSprop with momentum, as in PyTorch: the buffer sums gradients that are divided by the root of
 * their mean square, epsilon outside of the root. The learning rate is outside of the buffer. The
 * rule rmsprop_keras has both inside. If s and eps are 0, a zero gradient gives 0/0.
 */
#pragma once

#include "kernels/rule.h"

enum { RMSPROP_MOMENTUM_ALPHA = 1, RMSPROP_MOMENTUM_MOMENTUM, RMSPROP_MOMENTUM_EPS };

RULE_INFO(rmsprop_momentum) = {
    .name = "rmsprop_momentum",
    .formula = "s = alpha*s+(1-alpha)*g^2; b = momentum*b + g/(sqrt(s)+eps); w -= lr*b",
    .source = "Hinton 2012, lecture 6e; torch.optim.RMSprop(momentum)",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"alpha", 0.99f, RULE_BELOW_ONE},
               {"momentum", 0.9f, RULE_NOT_NEGATIVE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"s", 0, 0x1p-4f, 0x1p-3f}, {"b", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 2,
    .momenta = 1u << 1,
};

RULE_NO_PREPARE(rmsprop_momentum)
RULE_NO_BEFORE(rmsprop_momentum)
RULE_NO_ROW(rmsprop_momentum)
RULE_NO_AFTER(rmsprop_momentum)
RULE_NO_WEIGHT(rmsprop_momentum)

HOST_DEVICE struct states rmsprop_momentum_states(struct element e) {
    const float *p = e.param;
    e.s.x[0] = moving_average(p[RMSPROP_MOMENTUM_ALPHA], e.s.x[0], e.g * e.g);
    e.s.x[1] =
        p[RMSPROP_MOMENTUM_MOMENTUM] * e.s.x[1] + e.g / (sqrtf(e.s.x[0]) + p[RMSPROP_MOMENTUM_EPS]);
    return e.s;
}

HOST_DEVICE float rmsprop_momentum_direction(struct element e) {
    return e.rate.a * e.s.x[1];
}
