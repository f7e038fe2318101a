/* SPDX-License-Identifier: MIT
 *
 * FTRL-Proximal: the weight is a function of the states, with exact zeros. So the first step of a
 * new table replaces its weights, with 0 if g is 0.
 *
 * As in TensorFlow, l2_shrinkage changes z but not n, and l2 counts twice; the paper and Monolith
 * count it once. beta is that of Keras. The power of n is fixed at 1/2. z is not multiplied by lr
 * (multiply_linear_by_lr is off); the fraction for w is, above and below. If n, beta and l2 are
 * all 0, w is 0 instead of infinite.
 */
#pragma once

#include "kernels/rule.h"

enum { FTRL_L1 = 1, FTRL_L2, FTRL_SHRINKAGE, FTRL_BETA, FTRL_INITIAL };

RULE_INFO(ftrl) = {
    .name = "ftrl",
    .formula = "z += g + 2*l2_shrinkage*w - (sqrt(n+g^2)-sqrt(n))/lr*w; n += g^2; "
               "w = lr*(sign(z)*l1-z)/(sqrt(n)+beta+2*l2*lr) where |z| > l1, otherwise 0",
    .source = "McMahan et al. 2013; TensorFlow ResourceSparseApplyFtrlV2, keras.optimizers.Ftrl",
    .params = {{"lr", 0.1f, RULE_NOT_NEGATIVE},
               {"l1", 0, RULE_NOT_NEGATIVE},
               {"l2", 0, RULE_NOT_NEGATIVE},
               {"l2_shrinkage", 0, RULE_NOT_NEGATIVE},
               {"beta", 0, RULE_NOT_NEGATIVE},
               {"initial_accumulator", 0.1f, RULE_NOT_NEGATIVE}},
    .elem = {{"z", 0, -0x1p-4f, 0x1p-4f}, {"n", 0.1f, 0x1p-10f, 0x1p-4f, FTRL_INITIAL}},
    .num_params = 6,
    .elem_states = 2,
};

RULE_NO_PREPARE(ftrl)
RULE_NO_BEFORE(ftrl)
RULE_NO_ROW(ftrl)
RULE_NO_AFTER(ftrl)

HOST_DEVICE struct states ftrl_states(struct element e) {
    const float n = e.s.x[1] + e.g * e.g, sigma = (sqrtf(n) - sqrtf(e.s.x[1])) / e.rate.a;
    e.s.x[0] += (e.g + 2.0f * e.param[FTRL_SHRINKAGE] * e.w) - sigma * e.w;
    e.s.x[1] = n;
    return e.s;
}

/* The new weight. */
HOST_DEVICE float ftrl_direction(struct element e) {
    const float z = e.s.x[0], l1 = e.param[FTRL_L1];
    const float below = sqrtf(e.s.x[1]) + e.param[FTRL_BETA] + 2.0f * e.param[FTRL_L2] * e.rate.a;
    const float w = e.rate.a * ((z > 0 ? l1 : -l1) - z) / below;
    return fabsf(z) > l1 && below > 0 ? w : 0.0f;
}

HOST_DEVICE float ftrl_weight(struct element e, float u, float scale) {
    (void)e, (void)scale;
    return u;
}
