# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    first = rule["initial_g2sum"]
    w -= rule["lr"] * np.sqrt(first / (first + row))[:, None] * g
    np.clip(w, rule["min_bound"], rule["max_bound"], out=w)
    row += (g * g).mean(axis=1)
