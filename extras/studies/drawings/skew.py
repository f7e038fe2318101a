# SPDX-License-Identifier: MIT
"""Figures of speed against what the ids of a batch are like: their skew, and the share of distinct rows."""
from export import by_rule, ceiling_ns, kernels_of
from paper import GREY, HOLLOW, finish, lines, log_axis, look, marks, panels, range_of

from drawings.choose import TITLES, curves, fullest, type_text, values

CEILINGS = (("copy_gbs", "--", "copy"), ("rmw_gbs", "-", "random rows"))
FEWEST = 3  # workloads of a panel


def widths_of(groups):
    """{dim: its curve over alpha}. If a dim has several, the one with the most alphas is taken, then the most rows."""
    found = {}
    for own in curves(groups, "alpha"):
        found.setdefault(own[0].median("dim") or 0, []).append(own)
    size = lambda own: (len(values(own, "alpha")), own[0].median("rows") or 0, own[0].median("lookups") or 0)
    best = {dim: max(own, key=size) for dim, own in found.items()}
    most = max((len(own) for own in best.values()), default=0)
    return fullest({dim: own for dim, own in best.items() if 2 * len(own) >= most})


def pick_skew(result, mode):
    found = {rule: widths_of(groups) for rule, groups in by_rule(result, mode).items()}
    return {rule: shown for rule, shown in found.items() if shown}


def skew(width, result, shown):
    """A panel per dim: median and quartiles of the time per lookup, and lines at the times that the ceilings allow."""
    figure, axes = panels(width, len(shown), (2, 4), 2.0, sharex=True, sharey=True)
    drawn = []
    for ax, (dim, groups) in zip(axes, shown.items()):
        types = type_text(groups[0].types) if groups[0].types else ""
        ax.set_title(f"dim {dim:g}" + (types and f"\n{types}"))
        alphas = [g.median("alpha") for g in groups]
        drawn += lines(ax, groups, alphas)
        for place in groups[0].places():
            for key, dash, text in CEILINGS:
                line = [ceiling_ns(g, place, key) for g in groups]
                if all(line):
                    ax.plot(alphas, line, dash, color=GREY, lw=0.8, label=f"ceiling: {text}, {place}")
                    drawn += line
    log_axis(axes[0].yaxis, *range_of(drawn), room=7)
    groups = [g for own in shown.values() for g in own]
    return finish(figure, axes, result, groups, "time against skew", TITLES["alpha"], "ns per lookup")


def distinct(group):
    """The share of lookups that are the first of their row, in %."""
    rows, lookups = group.median("distinct"), group.median("lookups")
    return 100 * rows / lookups if rows and lookups else None


def pick_distinct(result, mode):
    """{rule: {dim: groups}}: only groups with the most threads, and only the dims with the most workloads."""
    found = {}
    for rule, groups in by_rule(result, mode).items():
        most = max(g.median("threads") or 0 for g in groups)
        for g in groups:
            if g.best() and distinct(g) and not g.types and g.median("dim") and (g.median("threads") or 0) == most:
                found.setdefault(rule, {}).setdefault(g.median("dim"), []).append(g)
    found = {rule: {dim: own for dim, own in dims.items() if len(own) >= FEWEST} for rule, dims in found.items()}
    return {rule: fullest(dims) for rule, dims in found.items() if dims}


def real(result, group):
    """Whether its ids were recorded, not drawn."""
    return str(result.context.get(f"emb_workload_{group.workload}", "")).startswith("trace")


def unique(width, result, dims):
    """Time per lookup against the share of distinct rows; synthetic ids are full marks, traces are hollow, and a
    line joins ids that differ in alpha alone."""
    figure, axes = panels(width, len(dims), (1 + (len(dims) > 3), 3), 2.2, sharex=True, sharey=True)
    groups, drawn = [g for own in dims.values() for g in own], []
    for ax, (dim, own) in zip(axes, dims.items()):
        joined = max(curves(own, "alpha"), key=len, default=[])
        for kernel, mark in kernels_of(groups):
            look_ = look(kernel, mark)
            there = [(g, s) for g in own for s in [g.of(kernel.name)] if s and s.ns]
            line = [(distinct(g), s.ns) for g, s in there if g in joined]
            if line:
                ax.plot(*zip(*sorted(line)), color=look_["color"], ls=look_["ls"], lw=0.8)
            for how in ({}, HOLLOW):
                points = [(distinct(g), s.quartiles("ns_per_lookup")) for g, s in there if real(result, g) == bool(how)]
                drawn += marks(ax, points, **look_ | {"ls": "none"} | how)
        ax.set_title(f"dim {dim:g}")
    low, high = range_of([distinct(g) for g in groups], 1.3)
    log_axis(axes[0].xaxis, low, min(high, 115), room=6)
    log_axis(axes[0].yaxis, *range_of(drawn), room=7)
    notes = ["A line joins workloads that differ in alpha alone."]
    if any(real(result, g) for g in groups):
        notes.append("Full marks: synthetic ids; hollow marks: recorded ids.")
    return finish(figure, axes, result, groups, "time against distinct rows", "distinct rows, % of the lookups",
                  "ns per lookup", [" ".join(notes)])
