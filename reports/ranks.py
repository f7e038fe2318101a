# SPDX-License-Identifier: MIT
"""The rank test of all reports: do two sets of times differ?"""
import math
from bisect import bisect_left, bisect_right

EXACT_UP_TO = 40  # samples of both sides together; above it the normal approximation is as good
LEVEL = 0.01  # for a change: fewer than 5 samples on each side never reach it
STAR_LEVEL = 0.05  # for kernels of one run: at 0.01, one bad sample of 7 can hide a factor of three


def midranks(values):
    """Twice the rank of each value; ties share their mean rank, and twice that is an integer."""
    order = sorted(values)
    return [bisect_left(order, v) + bisect_right(order, v) + 1 for v in values]


def exact_p(ranks, n, total):
    """Two-sided p that n ranks have the sum `total`, over all choices of n ranks; exact with ties."""
    ways = [{0: 1}] + [{} for _ in range(n)]  # ways[k][s]: choices of k ranks with the sum s
    for rank in ranks:
        for k in range(n, 0, -1):
            for s, count in ways[k - 1].items():
                ways[k][s + rank] = ways[k].get(s + rank, 0) + count
    mean = n * sum(ranks) / len(ranks)
    far = sum(c for s, c in ways[n].items() if abs(s - mean) >= abs(total - mean))
    return far / math.comb(len(ranks), n)


def mann_whitney(a, b):
    """Two-sided p that a and b come from one distribution (Mann and Whitney 1947): exact for few
    samples, otherwise normal with corrections for ties and for continuity."""
    ranks, n, m = midranks(a + b), len(a), len(b)
    total = sum(ranks[:n])
    if n + m <= EXACT_UP_TO:
        return exact_p(ranks, n, total)
    mean = sum(ranks) / (n + m)
    variance = n * m / (n + m) / (n + m - 1) * sum((r - mean)**2 for r in ranks)
    if variance == 0:
        return 1.0
    z = max(0.0, abs(total - n * mean) - 1.0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def told_apart(a, b):
    """Whether two kernels of a run differ. With fewer than 4 samples each, their ranges must not overlap."""
    return max(a) < min(b) or max(b) < min(a) or mann_whitney(a, b) < STAR_LEVEL
