# SPDX-License-Identifier: MIT
"""Two results of the same workloads, before and after, for a page: the verdicts of compare.py, and where they lie
on a logarithmic axis."""
import math
from collections import namedtuple

import compare
from compare_forms import change, summary
from results import quartiles
from style import number

LEAST_SPAN = 1.25  # of the axis, to both sides of 1

Line = namedtuple("Line", "key old new effect word mark")  # mark: (low, ratio, high) in % of the axis
Shown = namedtuple("Shown", "old new lines failed notes counts band span summary")


def place(ratio, span):
    """Where a ratio lies on the axis from 1/span to span, in %."""
    return round(100 * min(1.0, max(0.0, 0.5 + 0.5 * math.log(ratio) / math.log(span))), 2)


def compared(old, new):
    """The comparison of two results, or a ResultError if they have no row in common."""
    found = compare.compared(old, new)
    good = [r for r in found.rows if r.effect]
    ends = [v for r in good for v in (r.effect.ratio, r.effect.low, r.effect.high)]
    span = max([LEAST_SPAN, *(math.exp(1.05 * abs(math.log(v))) for v in ends)])
    ms = lambda series: number(quartiles(series.times)[1])
    lines = [Line(r.key, ms(r.old), ms(r.new), r.effect, r.word,
                  [place(v, span) for v in (r.effect.low, r.effect.ratio, r.effect.high)]) for r in good]
    failed = [" ".join(r.key) + f" {r.word}, not compared" for r in found.rows if not r.effect]
    words = found.words()
    return Shown(old, new, lines, failed, [*found.notes, *map(change, found.changes), *found.missing],
                 [(w, words.count(w)) for w in ("FASTER", "SLOWER", "SAME", "UNSURE") if w in words],
                 [place(v, span) for v in (1 / (1 + found.least), 1 + found.least)], span, summary(found))
