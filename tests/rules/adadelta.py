# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    rho, eps = rule["rho"], rule["eps"]
    states[0] *= rho
    states[0] += (1 - rho) * g * g
    u = np.sqrt(states[1] + eps) / np.sqrt(states[0] + eps) * g
    states[1] *= rho
    states[1] += (1 - rho) * u * u
    w -= rule["lr"] * u
