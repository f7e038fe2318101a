/* SPDX-License-Identifier: MIT
 *
 * Row-wise Adagrad with a moving average of the weights beside them. FBGEMM computes it in a pass
 * over the whole table every step_ema steps, before the step. Here a touched row catches up: its
 * weight has not changed since it was last touched, so that all passes it missed are one, with a
 * power of step_ema_coef. FBGEMM's presets are a pass every 10,000 steps, and 0.6.
 *
 * Left out: what changes the weights of untouched rows (every step_swap steps they become the
 * average); step_start; step_mode 0, which clears the average. EMAINPLACE_ROWWISE_ADAGRAD averages
 * one half of a row into its other half: here no element sees another one.
 */
#pragma once

#include "kernels/rule.h"

enum { ROWWISE_ADAGRAD_EMA_EPS = 1, ROWWISE_ADAGRAD_EMA_STEP, ROWWISE_ADAGRAD_EMA_COEF };

RULE_INFO(rowwise_adagrad_ema) = {
    .name = "rowwise_adagrad_ema",
    .formula = "k = floor(t/step_ema)-passes, passes += k per row; a += (1-step_ema_coef^k)*(w-a); "
               "s += mean(g^2) over the row; w -= lr/(sqrt(s)+eps)*g",
    .source = "FBGEMM ENSEMBLE_ROWWISE_ADAGRAD(step_mode 2) without swaps",
    .params = {{"lr", 0.01f, RULE_NOT_NEGATIVE},
               {"eps", 1e-8f, RULE_NOT_NEGATIVE},
               {"step_ema", 1, 1, INFINITY},
               {"step_ema_coef", 0.6f, RULE_BELOW_ONE}},
    .elem = {{"a", 0, -0x1p-1f, 0x1p-1f}},
    .row = {{"s", 0, 0, 0x1p-4f}, {"passes", 0, 0, 4}},
    .num_params = 4,
    .elem_states = 1,
    .row_states = 2,
    .sums_before = 1,
    .before_of_g = true,
    .rates = 2,
    .counts = true,
};

RULE_SUMS_SQUARES(rowwise_adagrad_ema)
RULE_NO_AFTER(rowwise_adagrad_ema)
RULE_NO_WEIGHT(rowwise_adagrad_ema)

/* The passes so far. */
static inline void rowwise_adagrad_ema_prepare(const float *param, int64_t t, float *derived) {
    derived[0] = (float)(int64_t)((double)t / param[ROWWISE_ADAGRAD_EMA_STEP]);
}

/* The learning rate, and the part of the average that is new. */
HOST_DEVICE struct pair rowwise_adagrad_ema_row(struct whole_row x, float *state) {
    const float *p = x.param, missed = x.derived[0] - state[1];
    state[0] += x.sum.a / (float)x.dim;
    state[1] = x.derived[0];
    struct pair rate = {p[RULE_LR] / (sqrtf(state[0]) + p[ROWWISE_ADAGRAD_EMA_EPS]),
                        whole_correction(p[ROWWISE_ADAGRAD_EMA_COEF], missed)};
    return rate;
}

HOST_DEVICE struct states rowwise_adagrad_ema_states(struct element e) {
    e.s.x[0] += e.rate.b * (e.w - e.s.x[0]);
    return e.s;
}

HOST_DEVICE float rowwise_adagrad_ema_direction(struct element e) {
    return e.rate.a * e.g;
}
