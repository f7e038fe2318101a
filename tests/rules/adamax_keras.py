# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    b1, b2 = rule["beta1"], rule["beta2"]
    states[0] *= b1
    states[0] += (1 - b1) * g
    np.maximum(b2 * states[1], np.abs(g), out=states[1])
    w -= rule["lr"] * (states[0] / (1 - b1**t)) / (states[1] + rule["eps"])
