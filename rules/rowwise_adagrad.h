/* SPDX-License-Identifier: MIT
 *
 * Adagrad with one accumulator per row: it sums the mean square of the row's gradient.
 */
#ifndef EMBFUSE_RULE_ROWWISE_ADAGRAD_H
#define EMBFUSE_RULE_ROWWISE_ADAGRAD_H

#include "kernels/rule.h"

enum { ROWWISE_ADAGRAD_EPS = 1 };

RULE_INFO(rowwise_adagrad) = {
    .name = "rowwise_adagrad",
    .formula = "s += mean(g^2) over the row; w -= lr/(sqrt(s)+eps)*g",
    .source = "FBGEMM, EXACT_ROWWISE_ADAGRAD without weight decay",
    .params = {{"lr", 0.01f, RULE_ANY}, {"eps", 1e-8f, RULE_NOT_NEGATIVE}},
    .row = {{"s", 0, 0, 0x1p-4f}},
    .num_params = 2,
    .row_states = 1,
    .sums_before = 1,
    .idle_is_identity = true,
};

RULE_NO_PREPARE(rowwise_adagrad)
RULE_NO_STATES(rowwise_adagrad)
RULE_NO_AFTER(rowwise_adagrad)

HOST_DEVICE struct pair rowwise_adagrad_before(const struct rule_step *r, float w, struct states s,
                                               float g) {
    (void)r, (void)w, (void)s;
    struct pair square = {g * g, 0};
    return square;
}

HOST_DEVICE struct pair rowwise_adagrad_row(const struct rule_step *r, struct pair sum, int32_t dim,
                                            float *row) {
    row[0] += sum.a / (float)dim;
    struct pair rate = {
        r->rule.param[RULE_LR] / (sqrtf(row[0]) + r->rule.param[ROWWISE_ADAGRAD_EPS]), 0};
    return rate;
}

HOST_DEVICE float rowwise_adagrad_direction(const struct rule_step *r, struct pair rate, float w,
                                            struct states s, float g) {
    (void)r, (void)w, (void)s;
    return rate.a * g;
}

#endif
