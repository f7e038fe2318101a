# SPDX-License-Identifier: MIT


def update(rule, t, w, states, row, g):
    mu = rule["momentum"]
    states[0] *= mu
    states[0] += (1 - rule["dampening"]) * g
    w -= rule["lr"] * (g + mu * states[0] if rule["nesterov"] else states[0])
