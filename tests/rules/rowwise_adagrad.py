# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    row += (g * g).mean(axis=1)
    w -= (rule["lr"] / (np.sqrt(row) + rule["eps"]))[:, None] * g
