# SPDX-License-Identifier: MIT
"""A click log whose labels depend on its ids: a planted factorisation machine.

Field f of a sample is an id of Zipf's law over `rows` ids. The logit of a click is

    z = -1.5 + linear * L + pairs * P,   L = sum of w_f[id_f],   P = sum over f < g of <u_f[id_f], u_g[id_g]>

with L and P at mean 0 and variance 1, and w, u standard normal. Everything is a counter-based hash: of (seed, field, id)
what is planted, of (seed, part, sample, field) the log. So a sample depends neither on other samples nor on their
order, and the test part has the same planted numbers as the training part. As z is known, so is the best AUC there is
(the oracle's). Logs with random labels, as common generators have, teach nothing.
"""
import numpy as np

FACTORS, INTERCEPT = 4, -1.5
TRAIN, TEST, SCALE = range(3)  # parts of a log


def mixed(x):
    """The finalizer of splitmix64."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def uniform(seed, *counters):
    """Numbers in [0, 1), one for each element of the broadcast counters."""
    with np.errstate(over="ignore"):
        x = np.uint64(seed)
        for counter in counters:
            x = mixed(x * np.uint64(0x9E3779B97F4A7C15) + np.asarray(counter, np.uint64) + np.uint64(1))
    return (x >> np.uint64(11)) * 2.0**-53


def normal(seed, *counters):
    radius = np.sqrt(-2 * np.log(1 - uniform(seed, *counters, 0)))
    return radius * np.cos(2 * np.pi * uniform(seed, *counters, 1))


class ClickLog:
    def __init__(self, fields=8, rows=1000, alpha=1.05, linear=1.2, pairs=0.6, seed=1):
        self.fields, self.rows, self.seed, self.weights = fields, rows, seed, (linear, pairs)
        self.law = np.cumsum(np.arange(1, rows + 1.0)**-alpha)
        field, id_ = np.arange(fields)[:, None], np.arange(rows)
        self.w = normal(seed, 10, field, id_)
        self.u = np.stack([normal(seed, 11 + k, field, id_) for k in range(FACTORS)], axis=-1)
        parts = self._parts(self.ids(SCALE, 0, 1 << 16))
        self.mean, self.deviation = parts.mean(axis=1), parts.std(axis=1)

    def ids(self, part, first, count):
        """[count, fields] of samples first, first + 1 ..."""
        sample = np.arange(first, first + count)[:, None]
        x = uniform(self.seed, 1, part, sample, np.arange(self.fields))
        return np.searchsorted(self.law, x * self.law[-1], side="right")

    def _parts(self, ids):
        field = np.arange(self.fields)
        u = self.u[field, ids]
        return np.stack([self.w[field, ids].sum(1), (u.sum(1)**2 - (u**2).sum(1)).sum(1) / 2])

    def samples(self, part, first, count):
        """ids, labels (0 or 1) and the planted logits."""
        ids = self.ids(part, first, count)
        z = INTERCEPT + self.weights @ ((self._parts(ids).T - self.mean) / self.deviation).T
        return ids, uniform(self.seed, 2, part, np.arange(first, first + count)) < 1 / (1 + np.exp(-z)), z


# --- how good logits are

def auc(labels, logits):
    """The share of pairs of a click and a non-click that the logits order rightly; a tie is half right."""
    _, where, count = np.unique(logits, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[where]  # the average rank of equal logits, from 1
    clicks = int(labels.sum())
    return (ranks[labels].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks))


def log_loss(labels, logits):
    logits = np.asarray(logits, np.float64)
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


def normalised_entropy(labels, logits):
    """The log loss over that of the mean click rate: below 1 is better than knowing no id."""
    rate = labels.mean()
    return log_loss(labels, logits) / -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
