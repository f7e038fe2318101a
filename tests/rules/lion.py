# SPDX-License-Identifier: MIT
import numpy as np


def update(rule, t, w, states, row, g):
    b1, b2 = rule["beta1"], rule["beta2"]
    w -= rule["lr"] * np.sign(b1 * states[0] + (1 - b1) * g)
    states[0] *= b2
    states[0] += (1 - b2) * g
