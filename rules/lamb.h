/* SPDX-License-Identifier: MIT
 *
 * LAMB with a trust ratio per row: the step (Adam's direction plus weight decay) is scaled to the
 * length of the row's weights. If one of the two lengths is 0, the ratio is 1, as in the paper's
 * first implementations; FBGEMM divides by 0 there.
 */
#pragma once

#include "kernels/rule.h"

enum { LAMB_BETA1 = 1, LAMB_BETA2, LAMB_EPS, LAMB_DECAY };

RULE_INFO(lamb) = {
    .name = "lamb",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*g^2; "
               "u = (m/(1-beta1^t))/(sqrt(v/(1-beta2^t))+eps) + weight_decay*w; "
               "w -= lr*|w|/|u|*u, |.| over the row, |w|/|u| = 1 where either is 0",
    .source = "You et al. 2020; FBGEMM LAMB",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"weight_decay", 0, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}},
    .num_params = 5,
    .elem_states = 2,
    .sums_after = 2,
    .momenta = 1,
};

RULE_NO_BEFORE(lamb)
RULE_NO_ROW(lamb)
RULE_NO_WEIGHT(lamb)

static inline void lamb_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = bias_factor(param[LAMB_BETA1], t);
    derived[1] = bias_factor(param[LAMB_BETA2], t);
}

HOST_DEVICE struct states lamb_states(struct element e) {
    e.s.x[0] = moving_average(e.param[LAMB_BETA1], e.s.x[0], e.g);
    e.s.x[1] = moving_average(e.param[LAMB_BETA2], e.s.x[1], e.g * e.g);
    return e.s;
}

HOST_DEVICE float lamb_direction(struct element e) {
    return (e.s.x[0] * e.derived[0]) / (sqrtf(e.s.x[1] * e.derived[1]) + e.param[LAMB_EPS]) +
           e.param[LAMB_DECAY] * e.w;
}

HOST_DEVICE struct pair lamb_after(struct element e, float u) {
    struct pair squares = {e.w * e.w, u * u};
    return squares;
}

HOST_DEVICE float lamb_scale(struct whole_row x) {
    const bool lengths = x.sum.a > 0 && x.sum.b > 0;
    return lengths ? x.rate.a * (sqrtf(x.sum.a) / sqrtf(x.sum.b)) : x.rate.a;
}
