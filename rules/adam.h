/* SPDX-License-Identifier: MIT
 *
 * Adam, epsilon added after the bias correction. Lazy: untouched rows keep their moments, but the
 * corrections count all steps of the table.
 */
#pragma once

#include "kernels/rule.h"

enum { ADAM_BETA1 = 1, ADAM_BETA2, ADAM_EPS };

RULE_INFO(adam) = {
    .name = "adam",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*g^2; "
               "w -= lr*(m/(1-beta1^t))/(sqrt(v/(1-beta2^t))+eps)",
    .source = "Kingma and Ba 2015; torch.optim.Adam, FBGEMM ADAM",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 2,
    .momenta = 1,
};

RULE_NO_BEFORE(adam)
RULE_NO_ROW(adam)
RULE_NO_AFTER(adam)
RULE_NO_WEIGHT(adam)

static inline void adam_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = bias_factor(param[ADAM_BETA1], t);
    derived[1] = bias_factor(param[ADAM_BETA2], t);
}

HOST_DEVICE struct states adam_states(struct element e) {
    e.s.x[0] = moving_average(e.param[ADAM_BETA1], e.s.x[0], e.g);
    e.s.x[1] = moving_average(e.param[ADAM_BETA2], e.s.x[1], e.g * e.g);
    return e.s;
}

HOST_DEVICE float adam_direction(struct element e) {
    return e.rate.a * (e.s.x[0] * e.derived[0]) /
           (sqrtf(e.s.x[1] * e.derived[1]) + e.param[ADAM_EPS]);
}
