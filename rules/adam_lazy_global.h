/* SPDX-License-Identifier: MIT
 *
 * Adam that catches up: a touched row first takes, as one step, the steps since its last one, along
 * the direction that its moments had then. Its moments fade for all of these steps. The gradient
 * moves the weight only when the row is touched again.
 *
 * As in HugeCTR, the missed steps take the corrections of the row's last step. Here the states are
 * the corrected moments, so that a row hands only two numbers to its elements. Epsilon is therefore
 * added after the correction, in HugeCTR before it. The last step of a row that was never touched
 * is 0, in HugeCTR 1, to the same effect. HugeCTR keeps the last step per element.
 */
#pragma once

#include "kernels/rule.h"

enum { ADAM_LAZY_GLOBAL_BETA1 = 1, ADAM_LAZY_GLOBAL_BETA2, ADAM_LAZY_GLOBAL_EPS };

RULE_INFO(adam_lazy_global) = {
    .name = "adam_lazy_global",
    .formula = "k = t-last, last = t per row; "
               "w -= lr*(1-beta1^k)/(1-beta1)*m/(sqrt(v)+eps); "
               "m += ((1-beta1)*g-(1-beta1^k)*m)/(1-beta1^t); "
               "v += ((1-beta2)*g^2-(1-beta2^k)*v)/(1-beta2^t)",
    .source = "HugeCTR Adam(LazyGlobal)",
    .params = {{"lr", 0.001f, RULE_NOT_NEGATIVE},
               {"beta1", 0.9f, RULE_BELOW_ONE},
               {"beta2", 0.999f, RULE_BELOW_ONE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .elem = {{"m", 0, 0, 0x1p-4f}, {"v", 0, 0, 0x1p-4f}},
    .row = {{"last", 0, 0, 4}},
    .num_params = 4,
    .elem_states = 2,
    .row_states = 1,
    .rates = 2,
    .momenta = 1,
    .counts = true,
    .catches_up = true,
};

RULE_NO_BEFORE(adam_lazy_global)
RULE_NO_AFTER(adam_lazy_global)
RULE_NO_WEIGHT(adam_lazy_global)

static inline float adam_lazy_global_correction(float decay, int64_t t) {
    return (float)(1.0 - pow(decay, (double)t));
}

static inline void adam_lazy_global_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = adam_lazy_global_correction(param[ADAM_LAZY_GLOBAL_BETA1], t);
    derived[1] = adam_lazy_global_correction(param[ADAM_LAZY_GLOBAL_BETA2], t);
    derived[2] = (float)t;
}

/* The part of a corrected moment that fades in k steps: not above 1, so that no moment turns
 * negative. */
HOST_DEVICE float adam_lazy_global_fading(float beta, float k, float correct) {
    const float part = whole_correction(beta, k);
    return part < correct ? part / correct : 1.0f;
}

HOST_DEVICE struct pair adam_lazy_global_row(struct whole_row x, float *state) {
    const float k = x.derived[2] - state[0];
    struct pair rate = {adam_lazy_global_fading(x.param[ADAM_LAZY_GLOBAL_BETA1], k, x.derived[0]),
                        adam_lazy_global_fading(x.param[ADAM_LAZY_GLOBAL_BETA2], k, x.derived[1])};
    state[0] = x.derived[2];
    return rate;
}

HOST_DEVICE struct states adam_lazy_global_states(struct element e) {
    const float beta1 = e.param[ADAM_LAZY_GLOBAL_BETA1], beta2 = e.param[ADAM_LAZY_GLOBAL_BETA2];
    e.s.x[0] = (1.0f - e.rate.a) * e.s.x[0] + (1.0f - beta1) / e.derived[0] * e.g;
    e.s.x[1] = (1.0f - e.rate.b) * e.s.x[1] + (1.0f - beta2) / e.derived[1] * (e.g * e.g);
    return e.s;
}

HOST_DEVICE float adam_lazy_global_direction(struct element e) {
    const float *p = e.param;
    const float steps = e.rate.a * e.derived[0] / (1.0f - p[ADAM_LAZY_GLOBAL_BETA1]);
    return p[RULE_LR] * steps * (e.old.x[0] / (sqrtf(e.old.x[1]) + p[ADAM_LAZY_GLOBAL_EPS]));
}
