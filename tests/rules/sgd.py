# SPDX-License-Identifier: MIT


def update(rule, t, w, states, row, g):
    w -= rule["lr"] * g
