/* SPDX-License-Identifier: MIT
 *
 * Adamax: Adam with a decaying maximum of gradients in place of the root of the second moment.
 *
 * Epsilon is inside of the maximum, as in PyTorch, so n of an idle row ends at eps in a dense step.
 * In Keras, TensorFlow and the rule adamax_keras it is added to the maximum. The paper has no
 * epsilon. If eps is 0, a row whose n is 0 has the step 0/0 at a zero gradient, as in PyTorch.
 */
#pragma once

#include "kernels/rule.h"

enum { ADAMAX_BETA1 = 1, ADAMAX_BETA2, ADAMAX_EPS };

RULE_INFO(adamax) = {
    .name = "adamax",
    .formula = "m = beta1*m+(1-beta1)*g; n = max(beta2*n,|g|+eps); w -= lr*(m/(1-beta1^t))/n",
    .source = "Kingma and Ba 2015; torch.optim.Adamax",
    .params = {{"lr", 0.002f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"n", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 2,
    .momenta = 1,
};

RULE_NO_BEFORE(adamax)
RULE_NO_ROW(adamax)
RULE_NO_AFTER(adamax)
RULE_NO_WEIGHT(adamax)

static inline void adamax_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = bias_factor(param[ADAMAX_BETA1], t);
}

HOST_DEVICE struct states adamax_states(struct element e) {
    const float decayed = e.param[ADAMAX_BETA2] * e.s.x[1], now = fabsf(e.g) + e.param[ADAMAX_EPS];
    e.s.x[0] = moving_average(e.param[ADAMAX_BETA1], e.s.x[0], e.g);
    e.s.x[1] = now > decayed ? now : decayed;
    return e.s;
}

HOST_DEVICE float adamax_direction(struct element e) {
    return e.rate.a * (e.s.x[0] * e.derived[0]) / e.s.x[1];
}
