# SPDX-License-Identifier: MIT


def update(rule, t, w, states, row, g):
    mu, lr = rule["momentum"], rule["lr"]
    states[0] *= mu
    states[0] -= lr * g
    w += mu * states[0] - lr * g if rule["nesterov"] else states[0]
