# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    states[0] *= rule["alpha"]
    states[0] += (1 - rule["alpha"]) * g * g
    s, eps = states[0], rule["eps"]
    w -= rule["lr"] * g / (np.sqrt(s + eps) if rule["eps_inside"] else np.sqrt(s) + eps)
