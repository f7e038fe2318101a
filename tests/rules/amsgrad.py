# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    b1, b2 = rule["beta1"], rule["beta2"]
    states[0] *= b1
    states[0] += (1 - b1) * g
    states[1] *= b2
    states[1] += (1 - b2) * g * g
    np.maximum(states[2], states[1], out=states[2])
    w -= rule["lr"] * (states[0] / (1 - b1**t)) / (np.sqrt(states[2] / (1 - b2**t)) + rule["eps"])
