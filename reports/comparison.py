# SPDX-License-Identifier: MIT
"""Two results of the same workloads, before and after, for a page: the verdicts of compare.py, and where they lie
on a logarithmic axis."""
import math
from collections import namedtuple

import compare
from results import quartiles
from style import number

MIN_EFFECT, LEVEL = 0.05, compare.LEVEL
LEAST_SPAN = 1.25  # of the axis, to both sides of 1

Judgement = namedtuple("Judgement", "word ratio low high p")
Line = namedtuple("Line", "key old new judgement mark")  # mark: (low, ratio, high) in % of the axis
Comparison = namedtuple("Comparison", "old new lines failed notes counts band span")


def judged(old, new):
    """The judgement on two series, the only place that knows how compare.py makes it."""
    if hasattr(compare, "judge"):
        return compare.judge(old, new, min_effect=MIN_EFFECT, level=LEVEL)
    word, ratio, p = compare.verdict(old.times, new.times, MIN_EFFECT, LEVEL)
    return Judgement(word, ratio, None, None, p)


def place(ratio, span):
    """Where a ratio lies on the axis from 1/span to span, in %."""
    return round(100 * min(1.0, max(0.0, 0.5 + 0.5 * math.log(ratio) / math.log(span))), 2)


def compared(old, new):
    """The comparison of two results, or a ResultError if they have no row in common."""
    pairs, missing = compare.match(old, new)
    good = [(a, b, judged(a, b)) for a, b in pairs if not a.failed and not b.failed]
    ends = [v for _, _, j in good for v in (j.ratio, j.low, j.high) if v]
    span = max([LEAST_SPAN, *(math.exp(1.05 * abs(math.log(v))) for v in ends)])
    lines = [Line(a.key, number(quartiles(a.times)[1]), number(quartiles(b.times)[1]), j,
                  [place(v, span) if v else None for v in (j.low, j.ratio, j.high)]) for a, b, j in good]
    failed = [" ".join(a.key) + f" FAILED in {'new' if b.failed else 'old'}, not compared" for a, b in pairs
              if a.failed or b.failed]
    words = [j.word for _, _, j in good]
    return Comparison(old, new, lines, failed, [*compare.context_notes(old, new), *missing],
                      [(w, words.count(w)) for w in ("FASTER", "SLOWER", "SAME", "UNSURE") if w in words],
                      [place(v, span) for v in (1 / (1 + MIN_EFFECT), 1 + MIN_EFFECT)], span)
