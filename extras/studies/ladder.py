# SPDX-License-Identifier: MIT
"""The technique ladder of a kernel: what each of its techniques is worth, measured by leaving it out.

Each kernel of the folder ladder/ is the whole kernel without one technique. The last rung is another kernel,
which has none of them.
"""
import os
from dataclasses import replace

from export import clean, dot_figure, kernels_of
from program import ResultError
from results import LADDER, OVER_NOTE
from style import COLOURS, MARKERS, markdown_table, number
from verdict import LEVEL, mann_whitney

HERE = os.path.dirname(os.path.abspath(__file__))
LAST = "#777777", 2  # colour and gnuplot pointtype of the last rung; each technique has its own of both


# --- what came out
def rungs_of(result, below):
    """{kernel: itself, with its place in the drawing}; `below` comes last."""
    techniques = [k for k in result.kernels.values() if k.family == LADDER]
    if not techniques:
        raise ResultError(f"{result.path}: no kernel of the folder {LADDER}; 'make ladder' measures them")
    return {k: replace(k, index=i) for i, k in enumerate([*techniques, below])}


def read(result, kernel, below):
    """(whole kernel, rungs, [(group of the rungs, series of the whole kernel or None)])"""
    groups = result.groups("cold")
    measured = {s.kernel.name: s.kernel for g in groups for s in g.measured()}
    for name in (kernel, below):
        if name not in measured:
            raise ResultError(f"{result.path}: no samples of {name}")
    whole, rungs = measured[kernel], rungs_of(result, measured[below])
    own = lambda g: [replace(s, kernel=rungs[s.kernel]) for s in g.measured() if s.kernel in rungs]
    found = [(replace(g, series=own(g)), g.of(kernel)) for g in groups]
    if not any(s and g.series for g, s in found):
        raise ResultError(f"{result.path}: {whole.name} and the others were measured on no workload together")
    return whole, list(rungs.values()), found


def what(kernel):
    """Its name in the table and in the figure."""
    return kernel.label if kernel.family == LADDER else f"{kernel.name}: neither fused nor in two levels"


def cell(series, own):
    """'1.25x', with a question mark if it does not differ from 1 significantly."""
    if not series or not own:
        return "-"
    unsure = mann_whitney(own.values("ns_per_lookup"), series.values("ns_per_lookup")) >= LEVEL
    return f"{series.ns / own.ns:.2f}x" + " ?" * unsure


def table(whole, rungs, found):
    times = (number(own.ns) + own.over() if own else "-" for _, own in found)
    rows = [(what(k), *(cell(g.of(k.name), own) for g, own in found)) for k in rungs]
    return markdown_table(("", *(g.workload for g, _ in found)),
                          [(f"{whole.name}, ns per lookup", *times), *rows])


def without_time(result, whole, rungs, found):
    """Lines for kernels without a time that no other note explains."""
    said = {(k, w) for k, w, _ in result.failures()} | {(k, w) for w, k, _ in result.not_run}
    for g, own in found:
        there = {s.kernel.name for s in (own, *g.series) if s}
        for k in (whole, *rungs):
            if k.name not in there and (k.name, g.workload) not in said:
                yield f"- no time: {k.name} on {g.workload}"


def text(result, outcome, _kernel):
    whole, rungs, found = outcome
    return [*table(whole, rungs, found), "",
            f"- x: median time without the technique / median time of {whole.name}, which has all; below 1x "
            f"it costs time. {found[0][0].rule}, cold caches; {result.machine()}.",
            "- One technique is left out at a time: where two serve the same end, each hides the other's worth.",
            f"- ?: cannot be told from 1x (Mann-Whitney at p < {LEVEL:g}; less than 5 samples never can).",
            *[f"- {OVER_NOTE}"] * any(own and own.over() for _, own in found),
            *(f"- {line}" for line in result.left_out()), *without_time(result, whole, rungs, found)]


# --- the picture
def picture(result, outcome, _kernel, stem):
    """A bar from 1 to the ratio for every rung, with the quartiles of the time without the technique."""
    whole, _, found = outcome
    time = {g.workload: own.ns for g, own in found if own}
    groups = [g for g, own in found if own and g.series]
    ratios = lambda s: [v / time[s.workload] for v in s.quartiles("ns_per_lookup")]
    every = [v for g in groups for s in g.series for v in ratios(s)]
    looks = [(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)][0]) if k.family == LADDER else LAST
             for k, _ in kernels_of(groups) for i in [k.index]]
    colours, points = zip(*looks)
    subject = f"what each technique of {whole.name} is worth"
    return dot_figure(result, groups, stem, os.path.join(HERE, "ladder"), subject, ratios, lambda g, p: (), what,
                      caution=clean(result.doubt()), colours=" ".join(colours), points=" ".join(map(str, points)),
                      low=min(0.97 * min(every), 0.9),
                      high=max(1.04 * max(every), 1.25))
