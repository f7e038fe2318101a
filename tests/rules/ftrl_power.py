# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    z, n = states
    old, lr = n ** rule["power"], rule["lr"]
    n += g * g
    z += g - (n ** rule["power"] - old) / lr * w
    quadratic = (n ** rule["power"] + rule["beta"]) / lr + rule["l2"]
    moves = (np.abs(z) > rule["l1"]) & (quadratic > 0)
    w[:] = np.where(moves, (np.sign(z) * rule["l1"] - z) / np.where(moves, quadratic, 1), 0)
