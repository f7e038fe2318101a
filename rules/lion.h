/* SPDX-License-Identifier: MIT
 *
 * Lion: every element moves by the learning rate, in the direction that the sign of a momentum gives.
 * The weight decay is decoupled. The sign of 0, and of a NaN, is 0.
 */
#ifndef EMBFUSE_RULE_LION_H
#define EMBFUSE_RULE_LION_H

#include "kernels/rule.h"

enum { LION_BETA1 = 1, LION_BETA2, LION_DECAY };

RULE_INFO(lion) = {
    .name = "lion",
    .formula = "w -= lr*(sign(beta1*m+(1-beta1)*g) + weight_decay*w); m = beta2*m+(1-beta2)*g",
    .source = "Chen et al. 2023; keras.optimizers.Lion",
    .params = {{"lr", 0.0001f, RULE_ANY},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.99f, RULE_BELOW_ONE},
               {"weight_decay", 0, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 1,
};

RULE_NO_PREPARE(lion)
RULE_NO_BEFORE(lion)
RULE_NO_ROW(lion)
RULE_NO_AFTER(lion)
RULE_NO_WEIGHT(lion)

HOST_DEVICE struct states lion_states(struct element e) {
    const float beta2 = e.param[LION_BETA2];
    e.s.x[0] = beta2 * e.s.x[0] + (1.0f - beta2) * e.g;
    return e.s;
}

HOST_DEVICE float lion_direction(struct element e) {
    const float beta1 = e.param[LION_BETA1], c = beta1 * e.old.x[0] + (1.0f - beta1) * e.g;
    const float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f;
    return e.rate.a * (sign + e.param[LION_DECAY] * e.w);
}

#endif
