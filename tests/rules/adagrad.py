# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    states[0] += g * g
    w -= rule["lr"] * g / (np.sqrt(states[0]) + rule["eps"])
