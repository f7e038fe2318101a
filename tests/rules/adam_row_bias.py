# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    b1, b2 = rule["beta1"], rule["beta2"]
    row += 1
    count = np.floor(row)[:, None]
    states[0] *= b1
    states[0] += (1 - b1) * g
    states[1] *= b2
    states[1] += (1 - b2) * g * g
    w -= rule["lr"] * (states[0] / (1 - b1**count)) / (np.sqrt(states[1] / (1 - b2**count)) + rule["eps"])
