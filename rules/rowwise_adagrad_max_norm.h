/* SPDX-License-Identifier: MIT
 *
 * Row-wise Adagrad, and a bound on the length of the row's weights after the step: a longer row is
 * scaled to max_norm. 0 stands for no bound, as in FBGEMM; a bound below 1e-16 is refused, since the
 * squares of such a row underflow. FBGEMM reads the row again, so that
 * narrow weights are rounded once before they are scaled and once after; here, only after.
 */
#pragma once

#include "kernels/rule.h"

enum { ROWWISE_ADAGRAD_MAX_NORM_EPS = 1, ROWWISE_ADAGRAD_MAX_NORM_MAX };

RULE_INFO(rowwise_adagrad_max_norm) = {
    .name = "rowwise_adagrad_max_norm",
    .formula = "s += mean(g^2) over the row; w -= lr/(sqrt(s)+eps)*g; "
               "w *= min(1, max_norm/|w|), |.| over the row, if max_norm > 0",
    .source = "FBGEMM EXACT_ROWWISE_ADAGRAD(max_norm)",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"max_norm", 1, RULE_NORM}},
    .row = {{"s", 0, 0, 0x1p-4f}},
    .num_params = 3,
    .row_states = 1,
    .sums_before = 1,
    .sums_after = 1,
    .before_of_g = true,
};

RULE_NO_PREPARE(rowwise_adagrad_max_norm)
RULE_SUMS_SQUARES(rowwise_adagrad_max_norm)
RULE_NO_STATES(rowwise_adagrad_max_norm)

HOST_DEVICE struct pair rowwise_adagrad_max_norm_row(struct whole_row x, float *state) {
    state[0] += x.sum.a / (float)x.dim;
    const float below = sqrtf(state[0]) + x.param[ROWWISE_ADAGRAD_MAX_NORM_EPS];
    struct pair rate = {x.param[RULE_LR] / below, 0};
    return rate;
}

HOST_DEVICE float rowwise_adagrad_max_norm_direction(struct element e) {
    return e.rate.a * e.g;
}

HOST_DEVICE struct pair rowwise_adagrad_max_norm_after(struct element e, float u) {
    struct pair square = {(e.w - u) * (e.w - u), 0};
    return square;
}

HOST_DEVICE float rowwise_adagrad_max_norm_scale(struct whole_row x) {
    const float length = sqrtf(x.sum.a), most = x.param[ROWWISE_ADAGRAD_MAX_NORM_MAX];
    return most > 0 && length > most ? most / length : 1.0f;
}

HOST_DEVICE float rowwise_adagrad_max_norm_weight(struct element e, float u, float scale) {
    return scale * (e.w - u);
}
