# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    z, n = states
    old, lr = np.sqrt(n), rule["lr"]
    n += g * g
    z += g + 2 * rule["l2_shrinkage"] * w - (np.sqrt(n) - old) / lr * w
    quadratic = (np.sqrt(n) + rule["beta"]) / lr + 2 * rule["l2"]
    moves = (np.abs(z) > rule["l1"]) & (quadratic > 0)
    w[:] = np.where(moves, (np.sign(z) * rule["l1"] - z) / np.where(moves, quadratic, 1), 0)
