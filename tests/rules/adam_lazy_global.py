# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    missed = np.maximum(np.floor(t - row), 0)[:, None]
    row[:] = t
    w -= (rule["lr"] * (1 - rule["beta1"]**missed) / (1 - rule["beta1"])
          * states[0] / (np.sqrt(states[1]) + rule["eps"]))
    for state, beta, value in (states[0], rule["beta1"], g), (states[1], rule["beta2"], g * g):
        part = np.minimum((1 - beta**missed) / (1 - beta**t), 1)
        state *= 1 - part
        state += (1 - beta) / (1 - beta**t) * value
