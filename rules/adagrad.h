/* SPDX-License-Identifier: MIT
 *
 * Adagrad, epsilon outside of the root.
 *
 * The preset of eps is FBGEMM's. PyTorch's 1e-10 is rounded away next to a root of 2e-3 or more.
 */
#ifndef EMBFUSE_RULE_ADAGRAD_H
#define EMBFUSE_RULE_ADAGRAD_H

#include "kernels/rule.h"

enum { ADAGRAD_EPS = 1 };

RULE_INFO(adagrad) = {
    .name = "adagrad",
    .formula = "s += g^2; w -= lr*g/(sqrt(s)+eps)",
    .source = "Duchi, Hazan and Singer 2011; torch.optim.Adagrad",
    .params = {{"lr", 0.01f, RULE_ANY}, {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"s", 0, 0, 0x1p-4f}},
    .num_params = 2,
    .elem_states = 1,
    .idle_is_identity = true,
};

RULE_NO_PREPARE(adagrad)
RULE_NO_BEFORE(adagrad)
RULE_NO_ROW(adagrad)
RULE_NO_AFTER(adagrad)
RULE_NO_WEIGHT(adagrad)

HOST_DEVICE struct states adagrad_states(struct element e) {
    e.s.x[0] += e.g * e.g;
    return e.s;
}

HOST_DEVICE float adagrad_direction(struct element e) {
    return e.rate.a * e.g / (sqrtf(e.s.x[0]) + e.param[ADAGRAD_EPS]);
}

#endif
