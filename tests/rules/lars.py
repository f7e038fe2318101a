# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    decay = rule["weight_decay"]
    long, steep = np.linalg.norm(w, axis=1), np.linalg.norm(g, axis=1)
    both = (long > 0) & (steep > 0)
    a = rule["lr"] * np.where(both, rule["eta"] * long / np.where(both, steep + decay * long, 1), 1)
    states[0] *= rule["momentum"]
    states[0] += a[:, None] * (g + decay * w)
    w -= states[0]
