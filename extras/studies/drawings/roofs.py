# SPDX-License-Identifier: MIT
"""Figures of kernels beside the roof that memory and caches set to them."""
import math

from export import by_rule
from paper import GREY, PALE, SMALL, binary_axis, empty_rows, finish, log_axis, look, marks, panels, range_of, unmeasured
from results import MANY_RULES, OVER_MARK, OVER_NOTE, by_speed, by_state, by_workload, quartiles
from style import wrap

from drawings.choose import fullest, in_parts
from drawings.kernels import speeds

NAME, NAME_LINE = 18, 0.085  # characters and inches of a line of a point's name
GOOD = 0.75  # share of the roof, a line in its figure
KERNELS = 3  # the usually fastest ones


def roof_of(group):
    """The two terms of the roof in ns per lookup, (memory, caches), medians of the lazy kernels' samples; or
    None."""
    roofs = [roof for s in group.lazy() for x in s.samples for roof in [x.roof()] if roof]
    return [quartiles(list(term))[1] for term in zip(*roofs)] or None


def intensity(group):
    """Lookups per KiB of compulsory cache lines."""
    return group.median("lookups") / group.median("line_mib") / 1024


def pick_roofline(result, mode):
    """{rule: {dim: groups}}"""
    found = {}
    for rule, groups in by_rule(result, mode).items():
        for g in groups:
            if g.median("dim") and roof_of(g):
                found.setdefault(rule, {}).setdefault(g.median("dim"), []).append(g)
    return {rule: fullest(dims) for rule, dims in found.items()}


def name_below(ax, points, inches):
    """Names points (x, y, name) of a panel so wide: upright below them, with a line from each name to its point."""
    low, high = map(math.log, ax.get_xlim())
    points = sorted((math.log(x), y, wrap(name, NAME)) for x, y, name in points)
    at, lines = [x for x, *_ in points], [1 + name.count("\n") for *_, name in points]
    for _ in range(99):  # those that touch push each other aside
        for i in range(len(at) - 1):
            lack = NAME_LINE * (lines[i] + lines[i + 1]) / 2 * (high - low) / inches - (at[i + 1] - at[i])
            at[i], at[i + 1] = at[i] - max(0, lack) / 2, at[i + 1] + max(0, lack) / 2
    for place, (x, y, name) in zip(at, points):
        ax.annotate(name, (math.exp(x), y), (math.exp(place), 0.02), textcoords=ax.get_xaxis_transform(), rotation=90,
                    ha="center", va="bottom", fontsize=5.5, linespacing=1, annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "color": "#bbbbbb", "lw": 0.5, "shrinkA": 0, "shrinkB": 3})


def roofline(width, result, dims):
    """Speed against lookups per byte, a panel per dim, since a lookup reads a gradient of dim floats. The roof: bytes
    at the copy ceiling, and gradients at the gather ceiling. A dash is the roof of a workload, from ceilings
    that were measured beside its samples."""
    figure, axes = panels(width, len(dims), (1 + (len(dims) > 3), 3), 2.7, sharey=True, sharex=True)
    groups = [g for own in dims.values() for g in own]
    kernels, xs = by_speed(groups)[:KERNELS], [intensity(g) for g in groups]
    ends, drawn = (min(xs) / 1.4, max(xs) * 1.4), []
    for ax, (dim, own) in zip(axes, dims.items()):
        copy = quartiles([g.median("copy_gbs") for g in own if g.median("copy_gbs")])[1]
        gather = quartiles([g.median("gather_gbs") for g in own])[1]
        if copy:  # GB/s times lookups per KiB
            ax.plot(ends, [x * copy * 1e3 / 1024 for x in ends], color=GREY, lw=0.8, ls="--", label="copy ceiling")
        ax.axhline(gather * 1e3 / (4 * dim), color=GREY, lw=0.8, label="gather ceiling (median)")
        own_roofs = [1e3 / max(roof_of(g)) for g in own]
        ax.plot([intensity(g) for g in own], own_roofs, color="black", ls="none", marker="_", ms=7, mew=1,
                label="roof of the workload")
        for kernel in reversed(kernels):
            points = [(intensity(g), speeds(s)) for g in own for s in [g.of(kernel.name)] if s and s.ns]
            drawn += marks(ax, points, **look(kernel, line=False))
        drawn += [*own_roofs, gather * 1e3 / (4 * dim)]
        ax.set_title(f"dim {dim:g}")
    binary_axis(axes[0].xaxis, ends, room=6)
    low, high = range_of(drawn, 1.2)
    log_axis(axes[0].yaxis, low * (low / high)**0.5, high, room=7)
    across = len({ax.get_subplotspec().colspan for ax in axes})
    for ax, own in zip(axes, dims.values()):
        lowest = lambda g: min([1e3 / max(roof_of(g)), *(1e3 / s.ns for k in kernels if (s := g.of(k.name)) and s.ns)])
        name_below(ax, [(intensity(g), lowest(g), g.workload) for g in own], width / across - 0.4)
    return finish(figure, axes, result, groups, "roofline", "lookups per KiB of compulsory cache lines",
                  "million lookups per second", [])


# --- every rule against its roof
def pick_rules_roof(result, mode):
    """Workloads of uniform ids and many rules that have a roof; rules in the order of their states."""
    groups = [g for g in result.groups(mode) if g.measured()]
    roofed = [g for g in groups if g.median("alpha") == 0 and g.best() and g.best().median("share_roof")]
    shown = {w: by_state(own) for w, own in by_workload(roofed).items() if len(own) >= MANY_RULES}
    return in_parts({"": shown})


def rules_roof(width, result, shown):
    """Shares of the roof, a line per rule and a panel per workload; bars end at the fastest kernel."""
    groups = [g for own in shown.values() for g in own]
    rules = list(dict.fromkeys(g.rule for g in groups))
    figure, axes = panels(width, len(shown), (1, 3), 0.5 + 0.15 * len(rules), sharex=True, sharey=True)
    kernels, most = by_speed(groups)[:KERNELS], max(s.median("share_roof") or 0 for g in groups for s in g.lazy())
    for ax, (workload, own) in zip(axes, shown.items()):
        ys = [rules.index(g.rule) for g in own]
        empty_rows(ax, len(rules), ys)
        ax.barh(ys, [100 * g.best().median("share_roof") for g in own], color=PALE, height=0.7,
                label="the fastest kernel")
        for kernel in reversed(kernels):
            marks(ax, [(y, [100 * v for v in s.quartiles("share_roof")]) for y, g in zip(ys, own)
                       if (s := g.of(kernel.name)) in g.lazy() and s.median("share_roof")], True,
                  **look(kernel, line=False))
        ax.axvline(100 * GOOD, color=GREY, ls="--", lw=0.9, label=f"{100 * GOOD:g} % of the roof")
        states = [(y, g.median("state_bytes")) for y, g in zip(ys, own)]
        texts = [(y, f"{state:.0f}") for y, state in states if state is not None]
        for y, text in [*texts, *[(-1, "state, B")] * bool(texts)]:
            ax.text(1.02, y, text, va="center", fontsize=SMALL, transform=ax.get_yaxis_transform())
        ax.set(xlim=(0, 105 * max(1, most)), ylim=(len(rules) - 0.5, -0.7), title=wrap(workload, 34))
        ax.set_yticks(range(len(rules)), rules, fontsize=SMALL)
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
    return finish(figure, axes, result, groups, "distance from the roof at alpha 0",
                  "% of the roof; rules by the bytes of a row's states",
                  notes=[*unmeasured(groups, kernels), *[OVER_NOTE.removeprefix(OVER_MARK).strip().capitalize()] * (most > 1)])
