# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    s, passes = row.T
    now = t // rule["step_ema"]
    missed = np.maximum(np.floor(now - passes), 0)[:, None]
    passes[:] = now
    states[0] += (1 - rule["step_ema_coef"]**missed) * (w - states[0])
    s += (g * g).mean(axis=1)
    w -= (rule["lr"] / (np.sqrt(s) + rule["eps"]))[:, None] * g
