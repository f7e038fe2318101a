# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    s, last = row.T
    elapsed = np.where(last == 0, 1, t - last)
    last[:] = t
    s *= rule["ema_beta"]
    s += (1 - rule["ema_beta"]) * (g * g).mean(axis=1)
    keep = np.maximum(1 - np.clip(rule["lr"] * rule["ar_alpha"] * elapsed, 0, 1), rule["min_shrinkage"])
    w *= keep[:, None]
    w -= (rule["lr"] / (np.sqrt(s) + rule["eps"]))[:, None] * g
