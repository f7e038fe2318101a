# SPDX-License-Identifier: MIT
"""The technique ladder of a kernel: what each of its techniques is worth, measured by leaving it out.

Each kernel of the folder ladder/ is the whole kernel without one technique. The last rung is another kernel,
which has none of them.
"""
from dataclasses import replace

from export import kernels_of
from paper import GREY, PAGE, WORSE, finish, log_axis, look, marks, panels, striped, unmeasured
from program import ResultError
from results import LADDER, OVER_NOTE
from style import COLOURS, marker, markdown_table, number, wrap
from verdict import LEVEL, mann_whitney


# --- what came out
def rungs_of(result, below):
    """{name: kernel, with its place in the drawing}; `below` comes last."""
    techniques = [k for k in result.kernels.values() if k.family == LADDER]
    if not techniques:
        raise ResultError(f"{result.path}: no kernel of the folder {LADDER}; 'make ladder' measures them")
    return {k.name: replace(k, index=i) for i, k in enumerate([*techniques, below])}


def read(result, kernel, below):
    """(whole kernel, rungs, [(group of the rungs, series of the whole kernel or None)])"""
    groups = result.groups("cold")
    measured = {s.kernel.name: s.kernel for g in groups for s in g.measured()}
    for name in (kernel, below):
        if name not in measured:
            raise ResultError(f"{result.path}: no samples of {name}")
    whole, rungs = measured[kernel], rungs_of(result, measured[below])
    own = lambda g: [replace(s, kernel=rungs[s.kernel.name]) for s in g.measured() if s.kernel.name in rungs]
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
def look_of(kernel):
    """Each technique has a colour and a mark of its own; the last rung is grey."""
    own = kernel.family == LADDER
    return look(kernel, line=False) | {"label": what(kernel), "color": COLOURS[kernel.index % len(COLOURS)] if own else GREY,
                                       "marker": marker(kernel)[1] if own else "x"}


def drawn(width, result, outcome, _kernel):
    """A bar from 1 to the ratio for every rung, with the quartiles of the time without the technique."""
    whole, _, found = outcome
    time = {g.workload: own.ns for g, own in found if own}
    groups = [g for g, own in found if own and g.series]
    kernels, medians = [k for k, _ in kernels_of(groups)], [1.0]
    figure, (ax,) = panels(width, 1, (1, 1), 0.45 + 0.09 * len(groups) * len(kernels))
    striped(ax, [wrap(g.workload, 26) for g in groups])
    for i, kernel in enumerate(kernels):
        shift = 0.8 * ((i + 0.5) / len(kernels) - 0.5)
        points = [(y + shift, [v / time[s.workload] for v in s.quartiles("ns_per_lookup")])
                  for y, g in enumerate(groups) if (s := g.of(kernel.name))]
        medians += marks(ax, points, True, **look_of(kernel))
        ax.barh([y for y, _ in points], [q[1] - 1 for _, q in points], left=1, height=0.3 / len(kernels),
                color=look_of(kernel)["color"])
    low, high = min(0.97 * min(medians), 0.9), max(1.04 * max(medians), 1.25)
    ax.axvspan(low, 1, color=WORSE, lw=0, zorder=0)
    ax.axvline(1, color=GREY, lw=0.9)
    log_axis(ax.xaxis, low, high, room=10 if width == PAGE else 5)
    return finish(figure, [ax], result, groups, f"what each technique of {whole.name} is worth",
                  "time without it / time with it; left of 1 it costs time", notes=unmeasured(groups, kernels))

