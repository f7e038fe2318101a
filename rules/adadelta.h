/* SPDX-License-Identifier: MIT
 *
 * Adadelta: the rate of an element is the ratio of two roots, of the mean square of its earlier
 * steps and of the mean square of its gradients, this one included. Both means start at 0.
 *
 * Epsilon is inside of both roots, in all systems. Keras presets lr 0.001, rho 0.95 and eps 1e-7;
 * the paper has no learning rate. If eps is 0, the first step is 0, or 0/0 at a zero gradient.
 */
#pragma once

#include "kernels/rule.h"

enum { ADADELTA_RHO = 1, ADADELTA_EPS };

RULE_INFO(adadelta) = {
    .name = "adadelta",
    .formula = "s = rho*s+(1-rho)*g^2; u = sqrt(d+eps)/sqrt(s+eps)*g; d = rho*d+(1-rho)*u^2; "
               "w -= lr*u",
    .source = "Zeiler 2012; torch.optim.Adadelta, keras.optimizers.Adadelta",
    .params = {{"lr", 1, RULE_NOT_NEGATIVE},
               {"rho", 0.9f, RULE_BELOW_ONE},
               {"eps", 1e-6f, RULE_NOT_NEGATIVE}},
    .elem = {{"s", 0, 0, 0x1p-4f}, {"d", 0, 0, 0x1p-4f}},
    .num_params = 3,
    .elem_states = 2,
};

RULE_NO_PREPARE(adadelta)
RULE_NO_BEFORE(adadelta)
RULE_NO_ROW(adadelta)
RULE_NO_AFTER(adadelta)
RULE_NO_WEIGHT(adadelta)

/* The step before lr, from the new s and the old d. */
HOST_DEVICE float adadelta_step(struct element e) {
    const float eps = e.param[ADADELTA_EPS];
    return sqrtf(e.old.x[1] + eps) / sqrtf(e.s.x[0] + eps) * e.g;
}

HOST_DEVICE struct states adadelta_states(struct element e) {
    e.s.x[0] = moving_average(e.param[ADADELTA_RHO], e.s.x[0], e.g * e.g);
    const float u = adadelta_step(e);
    e.s.x[1] = moving_average(e.param[ADADELTA_RHO], e.s.x[1], u * u);
    return e.s;
}

HOST_DEVICE float adadelta_direction(struct element e) {
    return e.rate.a * adadelta_step(e);
}
