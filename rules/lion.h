/* SPDX-License-Identifier: MIT
 *
 * Lion: every element moves by the learning rate, in the direction that the sign of a momentum gives.
 * The sign of 0, and of a NaN, is 0. The paper's weight decay is the decoupled one that all rules share.
 */
#pragma once

#include "kernels/rule.h"

enum { LION_BETA1 = 1, LION_BETA2 };

RULE_INFO(lion) = {
    .name = "lion",
    .formula = "w -= lr*sign(beta1*m+(1-beta1)*g); m = beta2*m+(1-beta2)*g",
    .source = "Chen et al. 2023; keras.optimizers.Lion",
    .params = {{"lr", 0.0001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.99f, RULE_BELOW_ONE}},
    .elem = {{"m", 0, 0, 0x1p-4f}},
    .num_params = 3,
    .elem_states = 1,
    .momenta = 1,
};

RULE_NO_PREPARE(lion)
RULE_NO_BEFORE(lion)
RULE_NO_ROW(lion)
RULE_NO_AFTER(lion)
RULE_NO_WEIGHT(lion)

HOST_DEVICE struct states lion_states(struct element e) {
    e.s.x[0] = moving_average(e.param[LION_BETA2], e.s.x[0], e.g);
    return e.s;
}

HOST_DEVICE float lion_direction(struct element e) {
    const float c = moving_average(e.param[LION_BETA1], e.old.x[0], e.g);
    return c > 0 ? e.rate.a : c < 0 ? -e.rate.a : 0.0f;
}
