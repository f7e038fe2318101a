# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    states[0] += g * g
    s, eps = states[0], rule["eps"]
    lr = rule["lr"] / (1 + (t - 1) * rule["lr_decay"])
    w -= lr * g / (np.sqrt(s + eps) if rule["eps_inside"] else np.sqrt(s) + eps)
