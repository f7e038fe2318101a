# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    row += (g * g).mean(axis=1)
    w -= (rule["lr"] / (np.sqrt(row) + rule["eps"]))[:, None] * g
    long = np.linalg.norm(w, axis=1)
    if rule["max_norm"] > 0:
        w *= np.where(long > rule["max_norm"], rule["max_norm"] / np.maximum(long, rule["max_norm"]), 1)[:, None]
