/* SPDX-License-Identifier: MIT
 *
 * Row-wise Adagrad of parameter servers: the rate is lr in a new table and falls with the
 * accumulator, which is read before the step adds to it. There is no epsilon. Weights stay between
 * two bounds.
 *
 * Paddle first divides the gradient by the number of times that the row was shown. HeterPS gets
 * gradients with the other sign. Both compute in double precision.
 */
#pragma once

#include "kernels/rule.h"

enum { PS_ADAGRAD_INITIAL = 1, PS_ADAGRAD_MIN, PS_ADAGRAD_MAX };

RULE_INFO(ps_adagrad) = {
    .name = "ps_adagrad",
    .formula = "w -= lr*sqrt(initial_g2sum/(initial_g2sum+s))*g; "
               "w = min(max(w, min_bound), max_bound); s += mean(g^2) over the row",
    .source = "Paddle SparseAdaGradSGDRule, HeterPS",
    .params = {{"lr", 0.05f, RULE_NOT_NEGATIVE},
               {"initial_g2sum", 3, 0x1p-126f, INFINITY},
               {"min_bound", -10, RULE_ANY},
               {"max_bound", 10, RULE_ANY}},
    .row = {{"s", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .row_states = 1,
    .sums_before = 1,
    .before_of_g = true,
};

RULE_NO_PREPARE(ps_adagrad)
RULE_SUMS_SQUARES(ps_adagrad)
RULE_NO_STATES(ps_adagrad)
RULE_NO_AFTER(ps_adagrad)

HOST_DEVICE struct pair ps_adagrad_row(struct whole_row x, float *state) {
    const float initial = x.param[PS_ADAGRAD_INITIAL];
    struct pair rate = {x.param[RULE_LR] * sqrtf(initial / (initial + state[0])), 0};
    state[0] += x.sum.a / (float)x.dim;
    return rate;
}

HOST_DEVICE float ps_adagrad_direction(struct element e) {
    return e.rate.a * e.g;
}

HOST_DEVICE float ps_adagrad_weight(struct element e, float u, float scale) {
    const float low = e.param[PS_ADAGRAD_MIN], high = e.param[PS_ADAGRAD_MAX];
    float w = e.w - scale * u;
    w = w < low ? low : w;
    return w > high ? high : w;
}
