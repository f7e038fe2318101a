/* SPDX-License-Identifier: MIT
 *
 * FTRL with a group lasso per row, with the states of rules/ftrl.h: a row whose z is not longer
 * than l1 is zero, any other is scaled. As in Monolith, l1 does not depend on the width of the row,
 * and l2 counts once. Monolith divides by 0 if z and l1 are both 0; here the row is zero. If n,
 * beta and l2 are all 0, w is 0 instead of infinite.
 */
#pragma once

#include "kernels/rule.h"

enum { GROUP_FTRL_L1 = 1, GROUP_FTRL_L2, GROUP_FTRL_BETA, GROUP_FTRL_INITIAL };

RULE_INFO(group_ftrl) = {
    .name = "group_ftrl",
    .formula =
        "z += g - (sqrt(n+g^2)-sqrt(n))/lr*w; n += g^2; "
        "w = -max(1-l1/|z|, 0)*lr*z/(sqrt(n)+beta+l2*lr), |.| over the row, 0 where |z| is 0",
    .source = "Monolith GroupFtrl",
    .params = {{"lr", 0.1f, RULE_NOT_NEGATIVE},
               {"l1", 0, RULE_NOT_NEGATIVE},
               {"l2", 0, RULE_NOT_NEGATIVE},
               {"beta", 1, RULE_NOT_NEGATIVE},
               {"initial_accumulator", 0, RULE_NOT_NEGATIVE}},
    .elem = {{"z", 0, -0x1p-4f, 0x1p-4f}, {"n", 0, 0, 0x1p-4f, GROUP_FTRL_INITIAL}},
    .num_params = 5,
    .elem_states = 2,
    .sums_after = 1,
};

RULE_NO_PREPARE(group_ftrl)
RULE_NO_BEFORE(group_ftrl)
RULE_NO_ROW(group_ftrl)

HOST_DEVICE struct states group_ftrl_states(struct element e) {
    const float n = e.s.x[1] + e.g * e.g, sigma = (sqrtf(n) - sqrtf(e.s.x[1])) / e.rate.a;
    e.s.x[0] += e.g - sigma * e.w;
    e.s.x[1] = n;
    return e.s;
}

/* The new weight if l1 is 0, with the other sign. */
HOST_DEVICE float group_ftrl_direction(struct element e) {
    const float *p = e.param;
    const float below = sqrtf(e.s.x[1]) + p[GROUP_FTRL_BETA] + p[GROUP_FTRL_L2] * e.rate.a;
    return below > 0 ? e.rate.a * e.s.x[0] / below : 0.0f;
}

HOST_DEVICE struct pair group_ftrl_after(struct element e, float u) {
    (void)u;
    struct pair square = {e.s.x[0] * e.s.x[0], 0};
    return square;
}

HOST_DEVICE float group_ftrl_scale(struct whole_row x) {
    const float length = sqrtf(x.sum.a), l1 = x.param[GROUP_FTRL_L1];
    return length > l1 ? (length - l1) / length : 0.0f;
}

HOST_DEVICE float group_ftrl_weight(struct element e, float u, float scale) {
    (void)e;
    return 0.0f - scale * u;
}
