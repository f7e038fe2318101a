# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    b1, b2 = rule["beta1"], rule["beta2"]
    states[0] *= b1
    states[0] += (1 - b1) * g
    row *= b2
    row += (1 - b2) * (g * g).mean(axis=1)
    w -= rule["lr"] * (states[0] / (1 - b1**t)) / (np.sqrt(row / (1 - b2**t)) + rule["eps"])[:, None]
