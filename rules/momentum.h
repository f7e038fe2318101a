/* SPDX-License-Identifier: MIT
 *
 * SGD with momentum. The learning rate is outside of the buffer, as in PyTorch.
 */
#ifndef EMBFUSE_RULE_MOMENTUM_H
#define EMBFUSE_RULE_MOMENTUM_H

#include "kernels/rule.h"

enum { MOMENTUM_MU = 1 };

RULE_INFO(momentum) = {
    .name = "momentum",
    .formula = "b = momentum*b + g; w -= lr*b",
    .source = "Polyak 1964; torch.optim.SGD(momentum)",
    .params = {{"lr", 0.01f, RULE_ANY}, {"momentum", 0.9f, RULE_NOT_NEGATIVE}},
    .elem = {{"b", 0, 0, 0x1p-4f}},
    .num_params = 2,
    .elem_states = 1,
};

RULE_NO_PREPARE(momentum)
RULE_NO_BEFORE(momentum)
RULE_NO_ROW(momentum)
RULE_NO_AFTER(momentum)
RULE_NO_WEIGHT(momentum)

HOST_DEVICE struct states momentum_states(struct element e) {
    e.s.x[0] = e.param[MOMENTUM_MU] * e.s.x[0] + e.g;
    return e.s;
}

HOST_DEVICE float momentum_direction(struct element e) {
    return e.rate.a * e.s.x[0];
}

#endif
