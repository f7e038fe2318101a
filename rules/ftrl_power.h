/* SPDX-License-Identifier: MIT
 *
 * FTRL-Proximal (rules/ftrl.h) with a free power of n: 1/2 is the paper's, 0 is a fixed rate. Others
 * call it lr_power or learning_rate_power, with a minus sign. As in the paper, dynamicemb
 * (recsys-examples #487) and FBGEMM (#6295), l2 counts once; TensorFlow counts it twice, and its op
 * has no beta. l2_shrinkage is left out. If n, beta and l2 are all 0, w is 0 instead of infinite;
 * but 0^0 is 1.
 *
 * powf() differs between C libraries and devices, so the power is computed here, within a few units
 * in the last place; with 1/2 it is not sqrtf() to the bit.
 */
#pragma once

#include "kernels/rule.h"

enum { FTRL_POWER_L1 = 1, FTRL_POWER_L2, FTRL_POWER_BETA, FTRL_POWER_POWER, FTRL_POWER_INITIAL };

RULE_INFO(ftrl_power) = {
    .name = "ftrl_power",
    .formula = "z += g - ((n+g^2)^power-n^power)/lr*w; n += g^2; "
               "w = lr*(sign(z)*l1-z)/(n^power+beta+l2*lr) where |z| > l1, otherwise 0",
    .source = "McMahan et al. 2013; dynamicemb FTRL, FBGEMM FTRL, TensorFlow "
              "ResourceSparseApplyFtrl(lr_power)",
    .params = {{"lr", 0.1f, RULE_NOT_NEGATIVE},
               {"l1", 0, RULE_NOT_NEGATIVE},
               {"l2", 0, RULE_NOT_NEGATIVE},
               {"beta", 1, RULE_NOT_NEGATIVE},
               {"power", 0.5f, 0, 0x1.000002p0f, false, false, "a number from 0 to 1"},
               {"initial_accumulator", 0.1f, RULE_NOT_NEGATIVE}},
    .elem = {{"z", 0, -0x1p-4f, 0x1p-4f}, {"n", 0.1f, 0x1p-10f, 0x1p-4f, FTRL_POWER_INITIAL}},
    .num_params = 6,
    .elem_states = 2,
};

RULE_NO_BEFORE(ftrl_power)
RULE_NO_ROW(ftrl_power)
RULE_NO_AFTER(ftrl_power)

/* The upper 12 bits of the power, and the rest: products with an exponent are exact. */
static inline void ftrl_power_prepare(const float *param, int64_t t, float *derived) {
    (void)t;
    derived[0] = bits_float(float_bits(param[FTRL_POWER_POWER]) & 0xfffff000u);
    derived[1] = param[FTRL_POWER_POWER] - derived[0];
}

/* The nearest whole number, |x| < 2^22. */
HOST_DEVICE float ftrl_power_whole(float x) {
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* log2 of m, near 1: 2/ln(2) artanh(s), s = (m-1)/(m+1). */
HOST_DEVICE float ftrl_power_log2(float m) {
    const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
    const float series = 1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9))));
    return 2.88539008f * s * series;
}

/* 2^x, |x| <= 0.51. */
HOST_DEVICE float ftrl_power_exp2(float x) {
    const float y = 0.693147181f * x;
    const float more = 1.0f / 24 + y * (1.0f / 120 + y * (1.0f / 720 + y * (1.0f / 5040)));
    return 1.0f + (y + y * y * (0.5f + y * (1.0f / 6 + y * more)));
}

/* n^power, and NaN for a negative n. n is m*2^e, and the whole part of power*e goes to the exponent
 * of the result without a rounding. */
HOST_DEVICE float ftrl_power_of(float n, struct element e) {
    const float upper = e.derived[0], lower = e.derived[1];
    const bool subnormal = n < 0x1p-126f;
    const uint32_t bits =
        float_bits(subnormal ? n * 0x1p24f : n) - 0x3f3504f3u; /* from sqrt(1/2) */
    const float m = bits_float((bits & 0x7fffffu) + 0x3f3504f3u);
    const float exponent = (float)((int32_t)bits >> 23) - (subnormal ? 24.0f : 0.0f);
    const float rest = lower * exponent + e.param[FTRL_POWER_POWER] * ftrl_power_log2(m);
    const float whole = ftrl_power_whole(upper * exponent + rest);
    const float power = ftrl_power_exp2((upper * exponent - whole) + rest);
    const int32_t k = (int32_t)whole, half = k >> 1; /* a result may be subnormal */
    const float value = power * bits_float((uint32_t)(half + 127) << 23) *
                        bits_float((uint32_t)(k - half + 127) << 23);
    const float limit = e.param[FTRL_POWER_POWER] > 0 ? n : 1.0f;
    return n > 0 && n < INFINITY ? value : n >= 0 ? limit : NAN;
}

HOST_DEVICE struct states ftrl_power_states(struct element e) {
    const float n = e.s.x[1] + e.g * e.g;
    const float sigma = (ftrl_power_of(n, e) - ftrl_power_of(e.s.x[1], e)) / e.rate.a;
    e.s.x[0] += e.g - sigma * e.w;
    e.s.x[1] = n;
    return e.s;
}

/* The new weight. */
HOST_DEVICE float ftrl_power_direction(struct element e) {
    const float z = e.s.x[0], l1 = e.param[FTRL_POWER_L1];
    const float below =
        ftrl_power_of(e.s.x[1], e) + e.param[FTRL_POWER_BETA] + e.param[FTRL_POWER_L2] * e.rate.a;
    const float w = e.rate.a * ((z > 0 ? l1 : -l1) - z) / below;
    return fabsf(z) > l1 && below > 0 ? w : 0.0f;
}

HOST_DEVICE float ftrl_power_weight(struct element e, float u, float scale) {
    (void)e, (void)scale;
    return u;
}
