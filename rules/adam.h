/* SPDX-License-Identifier: MIT
 *
 * Adam, epsilon added after the bias correction. Lazy: untouched rows keep their moments, but the
 * corrections count all steps of the table.
 */
#ifndef EMBFUSE_RULE_ADAM_H
#define EMBFUSE_RULE_ADAM_H

#include "kernels/rule.h"

enum { ADAM_BETA1 = 1, ADAM_BETA2, ADAM_EPS };

RULE_INFO(adam) = {
    .name = "adam",
    .formula = "m = beta1*m+(1-beta1)*g; v = beta2*v+(1-beta2)*g^2; "
               "w -= lr*(m/(1-beta1^t))/(sqrt(v/(1-beta2^t))+eps)",
    .source = "Kingma and Ba 2015; torch.optim.Adam, FBGEMM ADAM",
    .params = {{"lr", 0.001f, RULE_ANY},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}},
    .num_params = 4,
    .elem_states = 2,
};

RULE_NO_BEFORE(adam)
RULE_NO_ROW(adam)
RULE_NO_AFTER(adam)

static inline void adam_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = (float)(1.0 - pow(param[ADAM_BETA1], (double)t));
    derived[1] = (float)(1.0 - pow(param[ADAM_BETA2], (double)t));
}

HOST_DEVICE struct states adam_states(const struct rule_step *r, struct pair rate, float w,
                                      struct states s, float g) {
    (void)rate, (void)w;
    const float beta1 = r->rule.param[ADAM_BETA1], beta2 = r->rule.param[ADAM_BETA2];
    s.x[0] = beta1 * s.x[0] + (1.0f - beta1) * g;
    s.x[1] = beta2 * s.x[1] + (1.0f - beta2) * (g * g);
    return s;
}

HOST_DEVICE float adam_direction(const struct rule_step *r, struct pair rate, float w,
                                 struct states s, float g) {
    (void)w, (void)g;
    return rate.a * (s.x[0] / r->derived[0]) /
           (sqrtf(s.x[1] / r->derived[1]) + r->rule.param[ADAM_EPS]);
}

#endif
