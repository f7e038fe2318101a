/* SPDX-License-Identifier: MIT
 *
 * Adagrad. Epsilon is outside of the root, as in PyTorch and FBGEMM, or inside with eps_inside, as
 * in Keras and DGL. The step uses the new s. If s and eps are 0, a zero gradient gives 0/0.
 *
 * lr_decay and initial_accumulator are PyTorch's (0 and 0 there). TensorFlow and Keras start s at
 * 0.1, and TensorFlow's first op has no epsilon. The preset of eps is FBGEMM's. PyTorch's 1e-10 is
 * rounded away next to a root of 2e-3 or more; Keras has 1e-7.
 */
#pragma once

#include "kernels/rule.h"

enum { ADAGRAD_EPS = 1, ADAGRAD_LR_DECAY, ADAGRAD_INITIAL, ADAGRAD_EPS_INSIDE };

RULE_INFO(adagrad) = {
    .name = "adagrad",
    .formula = "s += g^2; w -= lr/(1+(t-1)*lr_decay)*g/(sqrt(s)+eps), "
               "or ...*g/sqrt(s+eps) with eps_inside; s starts at initial_accumulator",
    .source = "Duchi, Hazan and Singer 2011; torch.optim.Adagrad, FBGEMM EXACT_ADAGRAD, "
              "keras.optimizers.Adagrad, TensorFlow ResourceSparseApplyAdagradV2",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"lr_decay", 0, RULE_NOT_NEGATIVE},
               {"initial_accumulator", 0, RULE_NOT_NEGATIVE},
               {"eps_inside", 0, RULE_FLAG}},
    .elem = {{"s", 0, 0, 0x1p-4f, ADAGRAD_INITIAL}},
    .num_params = 5,
    .elem_states = 1,
    .idle_is_identity = true,
};

RULE_NO_BEFORE(adagrad)
RULE_NO_ROW(adagrad)
RULE_NO_AFTER(adagrad)
RULE_NO_WEIGHT(adagrad)

static inline void adagrad_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = (float)(param[RULE_LR] / (1.0 + (double)(t - 1) * param[ADAGRAD_LR_DECAY]));
}

HOST_DEVICE struct states adagrad_states(struct element e) {
    e.s.x[0] += e.g * e.g;
    return e.s;
}

HOST_DEVICE float adagrad_direction(struct element e) {
    return e.derived[0] * e.g /
           root_and_epsilon(e.s.x[0], e.param[ADAGRAD_EPS], e.param[ADAGRAD_EPS_INSIDE]);
}
