# SPDX-License-Identifier: MIT
"""Figures of how time and memory grow with lookups, rows and threads."""
import statistics
import textwrap

from export import by_rule, kernels_of
from paper import GREY, binary_axis, finish, lines, log_axis, look, panels, range_of, short

from drawings.choose import AXES, TITLES, curves, longest, value, values

SIZES = ("lookups", "rows")
# A batch that grows loads the table more; so does a table that shrinks.
FREE = {"lookups": ("load",), "rows": ("load",), "threads": ()}
FEWEST = 3  # values of a curve


def shown_of(groups):
    """{axis: its longest curve}, and for threads all of them; without what has none."""
    found = {axis: longest(curves(groups, axis, FREE[axis]), axis) for axis in SIZES}
    found = {axis: own for axis, own in found.items() if own and len(values(own, axis)) >= FEWEST}
    threads = curves(groups, "threads")
    return found | ({"threads": threads} if threads else {})


def pick_scaling(result, mode):
    found = {rule: shown_of(groups) for rule, groups in by_rule(result, mode).items()}
    return {rule: shown for rule, shown in found.items() if shown}


def what_else(group, axis):
    """The other axes of a curve in words."""
    v = {a: value(group, a) for a in AXES}
    words = {"lookups": "{} lookups", "rows": "{} rows", "dim": "dim {}", "alpha": "alpha {}"}
    text = ", ".join(words[a].format(short(v[a])).replace(" ", "\u00a0")
                     for a in words if a != axis and v[a] is not None)
    return textwrap.fill(text, 24)


def size_panel(ax, axis, groups):
    xs = [value(g, axis) for g in groups]
    log_axis(ax.yaxis, *range_of(lines(ax, groups, xs)), room=7)
    log_axis(ax.xaxis, *range_of(xs, 1.01), room=5)
    ax.set(xlabel=TITLES[axis], title=what_else(groups[0], axis), ylabel="ns per lookup")


def threads_panel(ax, found):
    """Speed-ups over the fewest threads: a small mark per workload, and a line through their geometric means."""
    counts = values([g for own in found for g in own], "threads")
    drawn = [counts[-1] / counts[0]]
    for kernel, mark in kernels_of([g for own in found for g in own]):
        points = {}
        for own in found:
            times = {value(g, "threads"): s.ns for g in own for s in [g.of(kernel.name)] if s and s.ns}
            base = times.get(counts[0])
            for n, ns in times.items() if base else ():
                points.setdefault(n, []).append(base / ns)
        how = look(kernel, mark)
        for n, ratios in points.items():
            ax.plot([n] * len(ratios), ratios, ls="none", marker=how["marker"], color=how["color"], ms=2, alpha=0.5)
            drawn += ratios
        if points:
            means = [statistics.geometric_mean(points[n]) for n in sorted(points)]
            ax.plot(sorted(points), means, color=how["color"], ls=how["ls"], marker=how["marker"], label=how["label"])
    ax.plot(counts, [n / counts[0] for n in counts], color=GREY, lw=0.8, label="ideal")
    binary_axis(ax.xaxis, counts)
    log_axis(ax.yaxis, min(drawn) / 1.1, max(drawn) * 1.1, room=8)
    ax.set(xlabel="threads", ylabel=f"speed-up over {counts[0]:g} thread{'s'[:counts[0] > 1]}",
           title=f"{len(found)} workload{'s'[:len(found) > 1]},\ngeometric mean")


def scaling(width, result, shown):
    """Panels of time against lookups and against rows, and of speed-ups over threads."""
    figure, axes = panels(width, len(shown), (1, 3), 2.0)
    for ax, (axis, own) in zip(axes, shown.items()):
        if axis == "threads":
            threads_panel(ax, own)
        else:
            size_panel(ax, axis, own)
    groups = [g for axis, own in shown.items() for g in (sum(own, []) if axis == "threads" else own)]
    return finish(figure, axes, result, groups, "scaling")


def pick_memory(result, mode):
    known = lambda own: all(g.median("peak_mib") and g.median("persistent_mib") for g in own)
    found = {rule: {axis: own for axis, own in shown_of(groups).items() if axis in SIZES and known(own)}
             for rule, groups in by_rule(result, mode).items()}
    return {rule: shown for rule, shown in found.items() if shown}


def memory(width, result, shown):
    """Scratch and peak against rows and lookups: a panel for each. Memory does not vary between samples."""
    kinds = (("scratch_mib", "scratch"), ("peak_mib", "peak"))
    figure, axes = panels(width, 2 * len(shown), (2, 4), 1.85)
    cells = [(axis, own, *kind) for kind in kinds for axis, own in reversed(shown.items())]
    for ax, (axis, own, key, name) in zip(axes, cells):
        xs = [value(g, axis) for g in own]
        drawn = lines(ax, own, xs, key)
        if key == "peak_mib":
            held = [g.median("persistent_mib") for g in own]
            ax.plot(xs, held, color=GREY, lw=0.8, label="weights and states")
            drawn += held
        log_axis(ax.yaxis, *range_of(drawn), room=5)
        log_axis(ax.xaxis, *range_of(xs, 1.01), room=4)
        ax.set(xlabel=TITLES[axis], ylabel=f"{name}, MiB", title=what_else(own[0], axis))
    groups = [g for own in shown.values() for g in own]
    return finish(figure, axes, result, groups, "memory against size", points="")
