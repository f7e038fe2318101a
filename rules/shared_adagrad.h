/* SPDX-License-Identifier: MIT
 *
 * Adagrad with one accumulator per row, which decays and is read before the step changes it;
 * rules/rowwise_adagrad.h reads the new one. Epsilon is inside of the root. If it and the
 * accumulator are 0, the step divides by 0, as in PERSIA. PERSIA multiplies by an approximate
 * reciprocal root.
 */
#pragma once

#include "kernels/rule.h"

enum { SHARED_ADAGRAD_EPS = 1, SHARED_ADAGRAD_MOMENTUM, SHARED_ADAGRAD_INITIAL };

RULE_INFO(shared_adagrad) = {
    .name = "shared_adagrad",
    .formula = "w -= lr/sqrt(s+eps)*g; s = g_square_momentum*s + mean(g^2) over the row",
    .source = "PERSIA Adagrad(vectorwise_shared)",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"eps", 1e-10f, RULE_NOT_NEGATIVE},
               {"g_square_momentum", 1, RULE_NOT_NEGATIVE},
               {"initial_accumulator", 0.01f, RULE_NOT_NEGATIVE}},
    .row = {{"s", 0.01f, 0x1p-8f, 0x1p-4f, SHARED_ADAGRAD_INITIAL}},
    .num_params = 4,
    .row_states = 1,
    .sums_before = 1,
    .before_of_g = true,
};

RULE_NO_PREPARE(shared_adagrad)
RULE_SUMS_SQUARES(shared_adagrad)
RULE_NO_STATES(shared_adagrad)
RULE_NO_AFTER(shared_adagrad)
RULE_NO_WEIGHT(shared_adagrad)

HOST_DEVICE struct pair shared_adagrad_row(struct whole_row x, float *state) {
    const float *p = x.param;
    struct pair rate = {p[RULE_LR] / sqrtf(state[0] + p[SHARED_ADAGRAD_EPS]), 0};
    state[0] = p[SHARED_ADAGRAD_MOMENTUM] * state[0] + x.sum.a / (float)x.dim;
    return rate;
}

HOST_DEVICE float shared_adagrad_direction(struct element e) {
    return e.rate.a * e.g;
}
