# SPDX-License-Identifier: MIT
"""Do two sets of times differ, and by how much? The statistics of all reports, by SciPy."""
import functools
import itertools
import math
import statistics
from dataclasses import dataclass

from program import ResultError

LEVEL = 0.01        # for one row: fewer than 5 samples on each side never reach it
FAMILY = 0.05       # for all rows of a comparison: the accepted share of false findings among the rows reported as changed
STAR_LEVEL = 0.05   # for kernels of one run: at 0.01, one bad sample of 7 can hide a factor of three
MIN_EFFECT = 0.05   # smaller changes of a median do not count
PRECISION = 0.03    # a row may be quoted if the interval of its ratio is within this
FEWEST = 5          # samples on each side, for a verdict
FEWEST_VISITS = 3   # for a row that may be quoted, if its samples are of several
EXACT_UP_TO = 60    # samples of both sides together
RESAMPLES, CONFIDENCE = 4999, 0.95


def scipy_stats():
    try:
        import scipy.stats
    except ImportError:
        raise ResultError("SciPy is missing: install it (Debian: apt-get install python3-scipy) and use its "
                          "python3") from None
    return scipy.stats


def percent(text):
    value = float(text)
    if not 0 < value < 100:
        raise ValueError
    return value / 100


def add_precision(parser):
    """The argument of reports that say which rows may be quoted."""
    parser.add_argument("--precision", type=percent, default=PRECISION, metavar="PERCENT",
                        help=f"of a row that may be quoted ({100 * PRECISION:g})")


def without_scipy():
    """If SciPy is missing, one line that says so and what told_apart() and uncertainty() do instead; otherwise no line."""
    try:
        scipy_stats()
    except ResultError as e:
        return [f"{e}; without it, two kernels count as different only if the ranges of their times do not overlap, "
                "and it is not known which rows may be quoted"]
    return []


def bootstrap(statistic, *samples):
    """(low, high) of a statistic: a percentile bootstrap (Efron 1979), always with the same random numbers."""
    found = scipy_stats().bootstrap(samples, statistic, n_resamples=RESAMPLES, confidence_level=CONFIDENCE,
                                    method="percentile", random_state=0)
    return tuple(map(float, found.confidence_interval))


def ratio_of_medians(a, b, axis=-1):
    import numpy
    return numpy.median(b, axis=axis) / numpy.median(a, axis=axis)


@functools.cache
def interval(times, reference):
    """(ratio, low, high) of a row: its times over those of the reference, or without one its times alone. Both are tuples
    of the samples of each visit, of the same visits. By Student's t of the logarithms of the visits' ratios of medians;
    with one visit, a bootstrap of that ratio."""
    if len(times) == 1:
        own, over = times[0], reference[0] if reference else (1.0,)
        ends = (bootstrap(ratio_of_medians, over, own) if reference else
                bootstrap(lambda a, axis: ratio_of_medians(over, a, axis), own))
        return statistics.median(own) / statistics.median(over), *ends
    over = map(statistics.median, reference) if reference else [1.0] * len(times)
    logs = [math.log(statistics.median(own) / one) for own, one in zip(times, over)]
    t = scipy_stats().t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)
    middle, half = statistics.fmean(logs), float(t) * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(map(math.exp, (middle, middle - half, middle + half)))


def few(visits):
    """Whether samples, as in interval(), are too few for a row that may be quoted."""
    return sum(map(len, visits)) < FEWEST or 1 < len(visits) < FEWEST_VISITS


def uncertainty(times, reference):
    """The share by which a row, as in interval(), may be off; infinite: too few samples; None without SciPy."""
    if few(times) or reference and few(reference):
        return math.inf
    try:
        ratio, low, high = interval(times, reference)
    except ResultError:
        return None
    return max(1 - low / ratio, high / ratio - 1)


def mann_whitney(a, b):
    """Two-sided p that a and b come from one distribution (Mann and Whitney 1947): exact for few samples if
    the two share no value."""
    exact = {*a}.isdisjoint(b) and len(a) + len(b) <= EXACT_UP_TO
    return float(scipy_stats().mannwhitneyu(a, b, method="exact" if exact else "asymptotic").pvalue)


def told_apart(a, b):
    """True if two kernels of a run differ. With fewer than 4 samples each, or without SciPy, only if the ranges of their
    times do not overlap."""
    if max(a) < min(b) or max(b) < min(a):
        return True
    try:
        return mann_whitney(a, b) < STAR_LEVEL
    except ResultError:
        return False


@dataclass(frozen=True)
class Effect:
    """The difference between new times and old ones."""
    ratio: float  # of the medians, new / old
    low: float    # a bootstrap interval of the ratio
    high: float
    p: float      # Mann and Whitney's
    enough: bool  # samples for a verdict

    def word(self, least=MIN_EFFECT, level=LEVEL, p=None):
        """SLOWER or FASTER: the median moved by `least` or more, the test is significant, and the interval is on one
        side of 1. SAME: the whole interval lies within a smaller change. UNSURE: anything else. p: corrected for many rows."""
        if not self.enough:
            return "UNSURE"
        if 1 / (1 + least) < self.low and self.high < 1 + least:
            return "SAME"
        if (self.p if p is None else p) < level:
            if self.ratio >= 1 + least and self.low > 1:
                return "SLOWER"
            if self.ratio <= 1 / (1 + least) and self.high < 1:
                return "FASTER"
        return "UNSURE"


def effect(old, new):
    """The Effect between two lists of times."""
    if old == new:
        return Effect(1.0, 1.0, 1.0, 1.0, True)
    ratio, few = statistics.median(new) / statistics.median(old), min(len(old), len(new))
    low, high = bootstrap(ratio_of_medians, old, new) if few > 1 else (ratio, ratio)
    return Effect(ratio, low, high, mann_whitney(old, new), few >= FEWEST)


def corrected(ps):
    """The p-values of many rows, adjusted: if all rows below a level count as changed, the expected share of false ones
    among them is at most that level (Benjamini and Hochberg 1995)."""
    out, least = [0.0] * len(ps), 1.0
    for rank, i in sorted(enumerate(sorted(range(len(ps)), key=ps.__getitem__), 1), reverse=True):
        least = min(least, ps[i] * len(ps) / rank)
        out[i] = least
    return out


def fewest(rows, level=FAMILY):
    """The fewest samples on each side that can show a change of one row among so many: the least p of n samples on each
    side is 2 / C(2n, n)."""
    return next(n for n in itertools.count(FEWEST) if 2 / math.comb(2 * n, n) * rows < level)


def words_of(effects, least=MIN_EFFECT, level=FAMILY):
    """The verdicts of many effects, with p-values corrected for their number."""
    return [e.word(least, level, p) for e, p in zip(effects, corrected([e.p for e in effects]))]
