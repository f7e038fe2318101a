# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    states[0] *= rule["rho"]
    states[0] += (1 - rule["rho"]) * g * g
    states[1] *= rule["momentum"]
    states[1] += rule["lr"] * g / np.sqrt(states[0] + rule["eps"])
    w -= states[1]
