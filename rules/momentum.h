/* SPDX-License-Identifier: MIT
 *
 * SGD with momentum, or with Nesterov's. The learning rate is outside of the buffer, as in PyTorch
 * and TensorFlow 1; the rule momentum_keras has it inside.
 *
 * The buffer starts at 0, and every gradient is dampened. PyTorch takes b = g at the first step of
 * a tensor, without dampening; with a dampening of 0 both are the same. PyTorch refuses dampening
 * together with nesterov. Its SGD with sparse gradients moves all rows that it has ever seen.
 */
#pragma once

#include "kernels/rule.h"

enum { MOMENTUM_MU = 1, MOMENTUM_DAMPENING, MOMENTUM_NESTEROV };

RULE_INFO(momentum) = {
    .name = "momentum",
    .formula = "b = momentum*b + (1-dampening)*g; w -= lr*b, or lr*(g+momentum*b) with nesterov",
    .source = "Polyak 1964; Sutskever et al. 2013; torch.optim.SGD(momentum)",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"momentum", 0.9f, RULE_NOT_NEGATIVE},
               {"dampening", 0, RULE_NOT_NEGATIVE},
               {"nesterov", 0, RULE_FLAG}},
    .elem = {{"b", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 1,
    .momenta = 1,
};

RULE_NO_PREPARE(momentum)
RULE_NO_BEFORE(momentum)
RULE_NO_ROW(momentum)
RULE_NO_AFTER(momentum)
RULE_NO_WEIGHT(momentum)

HOST_DEVICE struct states momentum_states(struct element e) {
    e.s.x[0] = e.param[MOMENTUM_MU] * e.s.x[0] + (1.0f - e.param[MOMENTUM_DAMPENING]) * e.g;
    return e.s;
}

HOST_DEVICE float momentum_direction(struct element e) {
    const float ahead = e.g + e.param[MOMENTUM_MU] * e.s.x[0];
    return e.rate.a * (e.param[MOMENTUM_NESTEROV] != 0 ? ahead : e.s.x[0]);
}
