# SPDX-License-Identifier: MIT


def update(rule, t, w, states, row, g):
    states[0] *= rule["momentum"]
    states[0] += g
    w -= rule["lr"] * states[0]
