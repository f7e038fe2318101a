/* SPDX-License-Identifier: MIT
 *
 * Stochastic gradient descent.
 */
#pragma once

#include "kernels/rule.h"

RULE_INFO(sgd) = {
    .name = "sgd",
    .formula = "w -= lr*g",
    .source = "Robbins and Monro 1951; torch.optim.SGD",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE}},
    .num_params = 1,
    .linear = true,
    .idle_is_identity = true,
};

RULE_NO_PREPARE(sgd)
RULE_NO_BEFORE(sgd)
RULE_NO_ROW(sgd)
RULE_NO_STATES(sgd)
RULE_NO_AFTER(sgd)
RULE_NO_WEIGHT(sgd)

HOST_DEVICE float sgd_direction(struct element e) {
    return e.rate.a * e.g;
}
