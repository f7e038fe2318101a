/* SPDX-License-Identifier: MIT
 *
 * Row-wise Adagrad that counts the steps of each row: above a threshold, the counter takes the
 * place of the accumulator. This is FBGEMM's learning-rate mode COUNTER_SGD with raw counts
 * (counter_halflife -1). FBGEMM's preset of the threshold is 0; then s is never used.
 *
 * Left out: the modes that compare a row with max_counter, which FBGEMM takes from the whole table,
 * and a threshold in proportion to it; counts with a half-life, which need exponentials and the
 * row's last step; adjustment_iter; weight decay that depends on the counter; CowClip.
 */
#pragma once

#include "kernels/rule.h"

enum {
    ROWWISE_ADAGRAD_COUNTER_EPS = 1,
    ROWWISE_ADAGRAD_COUNTER_UB,
    ROWWISE_ADAGRAD_COUNTER_THRESHOLD
};

RULE_INFO(rowwise_adagrad_counter) = {
    .name = "rowwise_adagrad_counter",
    .formula = "s += mean(g^2) over the row; c += 1; "
               "w -= lr/(sqrt(c > tail_id_threshold ? adjustment_ub*c : s)+eps)*g",
    .source = "FBGEMM ROWWISE_ADAGRAD(COUNTER, COUNTER_SGD)",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"adjustment_ub", 1, RULE_NOT_NEGATIVE},
               {"tail_id_threshold", 8, RULE_NOT_NEGATIVE}},
    .row = {{"s", 0, 0, 0x1p-4f}, {"c", 0, 0, 16}},
    .num_params = 4,
    .row_states = 2,
    .sums_before = 1,
    .before_of_g = true,
    .counts = true,
};

RULE_NO_PREPARE(rowwise_adagrad_counter)
RULE_SUMS_SQUARES(rowwise_adagrad_counter)
RULE_NO_STATES(rowwise_adagrad_counter)
RULE_NO_AFTER(rowwise_adagrad_counter)
RULE_NO_WEIGHT(rowwise_adagrad_counter)

HOST_DEVICE struct pair rowwise_adagrad_counter_row(struct whole_row x, float *state) {
    const float *p = x.param;
    state[0] += x.sum.a / (float)x.dim;
    state[1] += 1.0f;
    const bool counts = state[1] > p[ROWWISE_ADAGRAD_COUNTER_THRESHOLD];
    const float s = counts ? p[ROWWISE_ADAGRAD_COUNTER_UB] * state[1] : state[0];
    struct pair rate = {p[RULE_LR] / (sqrtf(s) + p[ROWWISE_ADAGRAD_COUNTER_EPS]), 0};
    return rate;
}

HOST_DEVICE float rowwise_adagrad_counter_direction(struct element e) {
    return e.rate.a * e.g;
}
