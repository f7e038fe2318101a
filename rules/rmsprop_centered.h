/* SPDX-License-Identifier: MIT
 *
 * Centered RMSprop with momentum: divides gradients by an estimate of their standard deviation.
 */
#pragma once

#include "kernels/rule.h"

enum { RMSPROP_CENTERED_ALPHA = 1, RMSPROP_CENTERED_MOMENTUM, RMSPROP_CENTERED_EPS };

RULE_INFO(rmsprop_centered) = {
    .name = "rmsprop_centered",
    .formula = "s = alpha*s+(1-alpha)*g^2; m = alpha*m+(1-alpha)*g; "
               "b = momentum*b + g/(sqrt(s-m^2)+eps); w -= lr*b",
    .source = "Graves 2013; torch.optim.RMSprop(centered, momentum)",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"alpha", 0.99f, RULE_BELOW_ONE},
               {"momentum", 0.9f, RULE_NOT_NEGATIVE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"s", 0, 0x1p-4f, 0x1p-3f}, {"m", 0, 0, 0x1p-4f}, {"b", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 3,
    .momenta = 1u << 2,
};

RULE_NO_PREPARE(rmsprop_centered)
RULE_NO_BEFORE(rmsprop_centered)
RULE_NO_ROW(rmsprop_centered)
RULE_NO_AFTER(rmsprop_centered)
RULE_NO_WEIGHT(rmsprop_centered)

HOST_DEVICE struct states rmsprop_centered_states(struct element e) {
    const float *p = e.param, alpha = p[RMSPROP_CENTERED_ALPHA];
    e.s.x[0] = moving_average(alpha, e.s.x[0], e.g * e.g);
    e.s.x[1] = moving_average(alpha, e.s.x[1], e.g);
    e.s.x[2] = p[RMSPROP_CENTERED_MOMENTUM] * e.s.x[2] +
               e.g / (sqrtf(e.s.x[0] - e.s.x[1] * e.s.x[1]) + p[RMSPROP_CENTERED_EPS]);
    return e.s;
}

HOST_DEVICE float rmsprop_centered_direction(struct element e) {
    return e.rate.a * e.s.x[2];
}
