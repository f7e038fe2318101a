# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    z, n = states
    old, lr = np.sqrt(n), rule["lr"]
    n += g * g
    z += g - (np.sqrt(n) - old) / lr * w
    long = np.linalg.norm(z, axis=1)
    scale = np.where(long > rule["l1"], 1 - rule["l1"] / np.where(long > 0, long, 1), 0)
    w[:] = -scale[:, None] * lr * z / (np.sqrt(n) + rule["beta"] + rule["l2"] * lr)
