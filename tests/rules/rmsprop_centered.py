# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    states[0] *= rule["alpha"]
    states[0] += (1 - rule["alpha"]) * g * g
    states[1] *= rule["alpha"]
    states[1] += (1 - rule["alpha"]) * g
    states[2] *= rule["momentum"]
    states[2] += g / (np.sqrt(states[0] - states[1]**2) + rule["eps"])
    w -= rule["lr"] * states[2]
