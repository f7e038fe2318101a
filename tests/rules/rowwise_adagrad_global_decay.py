# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    s, last = row.T
    keep = (1 - np.clip(rule["lr"] * rule["weight_decay"], 0, 1)) ** np.floor(np.maximum(t - last, 0))
    last[:] = t
    s += (g * g).mean(axis=1)
    w *= keep[:, None]
    w -= (rule["lr"] / (np.sqrt(s) + rule["eps"]))[:, None] * g
