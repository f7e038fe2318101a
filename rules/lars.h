/* SPDX-License-Identifier: MIT
 *
 * LARS with a rate per row: momentum with the learning rate inside of the buffer, in proportion to
 * the length of the row's weights over that of its gradient. If one of the two is 0, the rate is
 * lr, as in TensorFlow's first LARSOptimizer. FBGEMM has no such guard: a row of zeros never moves,
 * and a zero gradient without weight decay divides by 0.
 */
#pragma once

#include "kernels/rule.h"

enum { LARS_ETA = 1, LARS_MOMENTUM, LARS_DECAY };

RULE_INFO(lars) = {
    .name = "lars",
    .formula = "a = lr*eta*|w|/(|g|+weight_decay*|w|), |.| over the row, a = lr where either is 0; "
               "b = momentum*b + a*(g+weight_decay*w); w -= b",
    .source = "You, Gitman and Ginsburg 2017; FBGEMM LARS_SGD",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"eta", 0.001f, RULE_NOT_NEGATIVE},
               {"momentum", 0.9f, RULE_NOT_NEGATIVE},
               {"weight_decay", 0, RULE_NOT_NEGATIVE}},
    .elem = {{"b", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 1,
    .sums_before = 2,
    .momenta = 1,
};

RULE_NO_PREPARE(lars)
RULE_NO_AFTER(lars)
RULE_NO_WEIGHT(lars)

HOST_DEVICE struct pair lars_before(struct element e) {
    struct pair squares = {e.w * e.w, e.g * e.g};
    return squares;
}

HOST_DEVICE struct pair lars_row(struct whole_row x, float *state) {
    (void)state;
    const float w = sqrtf(x.sum.a), g = sqrtf(x.sum.b), lr = x.param[RULE_LR];
    const float a = lr * x.param[LARS_ETA] * w / (g + x.param[LARS_DECAY] * w);
    struct pair rate = {w > 0 && g > 0 ? a : lr, 0};
    return rate;
}

HOST_DEVICE struct states lars_states(struct element e) {
    const float step = e.rate.a * (e.g + e.param[LARS_DECAY] * e.w);
    e.s.x[0] = e.param[LARS_MOMENTUM] * e.s.x[0] + step;
    return e.s;
}

HOST_DEVICE float lars_direction(struct element e) {
    return e.s.x[0];
}
