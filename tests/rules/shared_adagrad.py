# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    w -= (rule["lr"] / np.sqrt(row + rule["eps"]))[:, None] * g
    row *= rule["g_square_momentum"]
    row += (g * g).mean(axis=1)
