/* SPDX-License-Identifier: MIT
 *
 * LAMB with a trust ratio per row: the step (Adam's direction plus weight decay) is scaled to the
 * length of the row's weights. If one of the two lengths is 0, the ratio is 1, as in the paper's
 * first implementations; FBGEMM divides by 0 there.
 */
#ifndef EMBFUSE_RULE_LAMB_H
#define EMBFUSE_RULE_LAMB_H

#include "kernels/rule.h"

enum { LAMB_BETA1 = 1, LAMB_BETA2, LAMB_EPS, LAMB_DECAY };

RULE_INFO(lamb) = {
    .name = "lamb",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*g^2; "
               "u = (m/(1-beta1^t))/(sqrt(v/(1-beta2^t))+eps) + weight_decay*w; "
               "w -= lr*|w|/|u|*u, |.| over the row, |w|/|u| = 1 where either is 0",
    .source = "You et al. 2020; FBGEMM LAMB",
    .params = {{"lr", 0.001f, RULE_ANY},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"weight_decay", 0, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}},
    .num_params = 5,
    .elem_states = 2,
    .sums_after = 2,
};

RULE_NO_BEFORE(lamb)
RULE_NO_ROW(lamb)

static inline void lamb_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = (float)(1.0 - pow(param[LAMB_BETA1], (double)t));
    derived[1] = (float)(1.0 - pow(param[LAMB_BETA2], (double)t));
}

HOST_DEVICE struct states lamb_states(const struct rule_step *r, struct pair rate, float w,
                                      struct states s, float g) {
    (void)rate, (void)w;
    const float beta1 = r->rule.param[LAMB_BETA1], beta2 = r->rule.param[LAMB_BETA2];
    s.x[0] = beta1 * s.x[0] + (1.0f - beta1) * g;
    s.x[1] = beta2 * s.x[1] + (1.0f - beta2) * (g * g);
    return s;
}

HOST_DEVICE float lamb_direction(const struct rule_step *r, struct pair rate, float w,
                                 struct states s, float g) {
    (void)rate, (void)g;
    return (s.x[0] / r->derived[0]) / (sqrtf(s.x[1] / r->derived[1]) + r->rule.param[LAMB_EPS]) +
           r->rule.param[LAMB_DECAY] * w;
}

HOST_DEVICE struct pair lamb_after(const struct rule_step *r, float w, float u) {
    (void)r;
    struct pair squares = {w * w, u * u};
    return squares;
}

HOST_DEVICE float lamb_scale(const struct rule_step *r, struct pair rate, struct pair sum,
                             int32_t dim) {
    (void)r, (void)dim;
    return sum.a > 0 && sum.b > 0 ? rate.a * (sqrtf(sum.a) / sqrtf(sum.b)) : rate.a;
}

#endif
