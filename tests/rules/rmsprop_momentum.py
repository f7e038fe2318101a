# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    states[0] *= rule["alpha"]
    states[0] += (1 - rule["alpha"]) * g * g
    states[1] *= rule["momentum"]
    states[1] += g / (np.sqrt(states[0]) + rule["eps"])
    w -= rule["lr"] * states[1]
