# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    b1, b2 = rule["beta1"], rule["beta2"]
    states[0] *= b1
    states[0] += (1 - b1) * g
    row *= b2
    row += (1 - b2) * (g * g).mean(axis=1)
    u = (states[0] / (1 - b1**t)) / (np.sqrt(row / (1 - b2**t)) + rule["eps"])[:, None]
    u += rule["weight_decay"] * w
    long, step = np.linalg.norm(w, axis=1), np.linalg.norm(u, axis=1)
    u *= np.where((long > 0) & (step > 0), long / np.where(step > 0, step, 1), 1)[:, None]
    w -= rule["lr"] * u
