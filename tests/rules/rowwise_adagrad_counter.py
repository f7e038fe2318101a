# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    s, count = row.T
    s += (g * g).mean(axis=1)
    count += 1
    s = np.where(count > rule["tail_id_threshold"], rule["adjustment_ub"] * count, s)
    w -= (rule["lr"] / (np.sqrt(s) + rule["eps"]))[:, None] * g
