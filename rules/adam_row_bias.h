/* SPDX-License-Identifier: MIT
 *
 * Adam whose bias corrections count the steps of the row, not those of the table: a row that is
 * seldom touched takes no long steps. Epsilon is added after the correction, as in FBGEMM.
 */
#pragma once

#include "kernels/rule.h"

enum { ADAM_ROW_BIAS_BETA1 = 1, ADAM_ROW_BIAS_BETA2, ADAM_ROW_BIAS_EPS };

RULE_INFO(adam_row_bias) = {
    .name = "adam_row_bias",
    .formula = "c += 1 per row; m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*g^2; "
               "w -= lr*(m/(1-beta1^c))/(sqrt(v/(1-beta2^c))+eps)",
    .source = "FBGEMM ADAM(use_rowwise_bias_correction), DGL SparseAdam, WholeGraph",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}},
    .row = {{"c", 0, 0, 16}},
    .num_params = 4,
    .elem_states = 2,
    .row_states = 1,
    .rates = 2,
    .momenta = 1,
    .counts = true,
};

RULE_NO_PREPARE(adam_row_bias)
RULE_NO_BEFORE(adam_row_bias)
RULE_NO_AFTER(adam_row_bias)
RULE_NO_WEIGHT(adam_row_bias)

/* What divides the two moments. */
HOST_DEVICE struct pair adam_row_bias_row(struct whole_row x, float *state) {
    state[0] += 1.0f;
    struct pair rate = {whole_correction(x.param[ADAM_ROW_BIAS_BETA1], state[0]),
                        whole_correction(x.param[ADAM_ROW_BIAS_BETA2], state[0])};
    return rate;
}

HOST_DEVICE struct states adam_row_bias_states(struct element e) {
    e.s.x[0] = moving_average(e.param[ADAM_ROW_BIAS_BETA1], e.s.x[0], e.g);
    e.s.x[1] = moving_average(e.param[ADAM_ROW_BIAS_BETA2], e.s.x[1], e.g * e.g);
    return e.s;
}

HOST_DEVICE float adam_row_bias_direction(struct element e) {
    return e.param[RULE_LR] * (e.s.x[0] / e.rate.a) /
           (sqrtf(e.s.x[1] / e.rate.b) + e.param[ADAM_ROW_BIAS_EPS]);
}
