/* SPDX-License-Identifier: MIT
 *
 * Adagrad with one accumulator per row: it sums the mean square of the row's gradient.
 */
#pragma once

#include "kernels/rule.h"

enum { ROWWISE_ADAGRAD_EPS = 1 };

RULE_INFO(rowwise_adagrad) = {
    .name = "rowwise_adagrad",
    .formula = "s += mean(g^2) over the row; w -= lr/(sqrt(s)+eps)*g",
    .source = "FBGEMM, EXACT_ROWWISE_ADAGRAD without weight decay",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE}, {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .row = {{"s", 0, 0, 0x1p-4f}},
    .num_params = 2,
    .row_states = 1,
    .sums_before = 1,
    .before_of_g = true,
    .idle_is_identity = true,
};

RULE_NO_PREPARE(rowwise_adagrad)
RULE_SUMS_SQUARES(rowwise_adagrad)
RULE_NO_STATES(rowwise_adagrad)
RULE_NO_AFTER(rowwise_adagrad)
RULE_NO_WEIGHT(rowwise_adagrad)

HOST_DEVICE struct pair rowwise_adagrad_row(struct whole_row x, float *state) {
    state[0] += x.sum.a / (float)x.dim;
    struct pair rate = {x.param[RULE_LR] / (sqrtf(state[0]) + x.param[ROWWISE_ADAGRAD_EPS]), 0};
    return rate;
}

HOST_DEVICE float rowwise_adagrad_direction(struct element e) {
    return e.rate.a * e.g;
}
