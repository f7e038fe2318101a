#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws figures for a paper with matplotlib, as PDF, SVG and PNG.

For each rule of a result they show time per lookup against alpha, speed against memory, and time by stage. If
the result has them, further figures compare rules, winners over alpha and dim, and types (across.py). Text is
real text (Type 42 in PDF), the width is that of a page, and one result always gives the same bytes: no dates,
fixed ids in SVG.
"""
import math
import os

import across
import export
import program
from export import by_alpha, by_rule, ceiling_ns, kernels_of, slug, stage_key, stage_panel
from paper import FORMATS, GREY, blank, legend, log_axis, look, panels, save, set_up, title
from results import FORWARD, WEIGHT_GRAD
from style import nice_range, wrap


def alpha(result, name, groups):
    """Median and quartiles of the time per lookup, above the time that the ceilings allow."""
    figure = blank(3.2)
    ax = figure.subplots()
    xs, values = [g.median("alpha") for g in groups], []
    for kernel, mark in kernels_of(groups):
        points = [(x, s.quartiles("ns_per_lookup"))
                  for x, s in ((x, g.of(kernel.name)) for x, g in zip(xs, groups))
                  if s and s.ns]
        mid = [q[1] for _, q in points]
        error = [[q[1] - q[0] for _, q in points], [q[2] - q[1] for _, q in points]]
        ax.errorbar([x for x, _ in points], mid, error, **look(kernel, mark))
        values += mid
    for place in groups[0].places():
        for key, dash, text in (("copy_gbs", "--", "copy"), ("rmw_gbs", "-", "random rows")):
            line = [ceiling_ns(g, place, key) for g in groups]
            if all(line):
                ax.plot(xs, line, dash, color=GREY, lw=0.9, label=f"ceiling: {text}, {place}")
                values += line
    log_axis(ax.yaxis, *nice_range(values), room=10)
    ax.set(xlabel="alpha of the ids (0: uniform)", ylabel="ns per lookup", title=name)
    legend(figure, [ax])
    title(figure, result, groups, "time per lookup")
    return figure


def scatter(result, groups):
    """Speed against scratch, a panel per workload; up and to the left is better."""
    figure, axes = panels(len(groups), 3, 1.75, sharex=True, sharey=True)
    measured = [s for g in groups for s in g.measured()]
    low, high = nice_range([s.median("scratch_mib") for s in measured], 1.4)
    zero = low / 3 if any(not s.median("scratch_mib") for s in measured) else None
    rates = nice_range([1e3 / (s.ns or math.inf) for s in measured], 1.25)
    for ax, group in zip(axes, groups):
        for kernel, mark in kernels_of(groups):
            s = group.of(kernel.name)
            q = s.quartiles("ns_per_lookup") if s else (None,)
            if q[0] is None:
                continue
            lo, mid, hi = (1e3 / v for v in reversed(q))
            ax.errorbar(s.median("scratch_mib") or zero, mid, [[mid - lo], [hi - mid]],
                        ls="none", clip_on=False, **look(kernel, mark))
        ax.set_title(wrap(group.workload, 34))
        log_axis(ax.xaxis, low, high, zero=zero)
        log_axis(ax.yaxis, *rates)
    figure.supxlabel("scratch, MiB", fontsize=7)
    figure.supylabel("million lookups per second", fontsize=7)
    legend(figure, axes, title="\u2196 is better", title_fontsize=7)
    title(figure, result, groups, "speed and memory")
    return figure


def stages(result, groups):
    """One bar of stages per kernel, one panel per workload; see export.stage_panel."""
    deep, mode = max(len(g.measured()) for g in groups), groups[0].mode
    figure, axes = panels(len(groups), 2, 0.45 + 0.17 * deep)
    drawn, ends = zip(*(stage_panel(g) for g in groups))
    for ax, (head, *rows), end in zip(axes, drawn, ends):
        for i, (name, shade) in enumerate(stage_key(drawn, mode)):
            ax.barh([r[0] for r in rows], [r[3 + i] - r[2 + i] for r in rows],
                    left=[r[2 + i] for r in rows], color=shade, label=name, height=0.7)
        for row in rows:
            *_, stop, text, cut = row
            ax.text(stop + end * 0.01, row[0], text, va="center", fontsize=6)
            if cut:  # a break mark
                ax.plot([stop - end * 0.035, stop - end * 0.015], [row[0] + 0.45, row[0] - 0.45],
                        color="white", lw=2.5)
        ax.set_yticks([r[0] for r in rows], [r[1] for r in rows])
        ax.set(xlim=(0, end), ylim=(deep - 0.5, -0.5), title=head[1].replace("\\n", "\n"))
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)
    figure.supxlabel("ns per lookup (median)", fontsize=7)
    legend(figure, axes)
    title(figure, result, groups, "time by stage")
    return figure


def draw_across(result, outdir, mode, formats=FORMATS, prefix=""):
    """Draws the figures that look across rules, points and types, those with that prefix in their names; yields
    the names of the files."""
    set_up()
    for name, figure in across.figures(result, mode):
        if name.startswith(prefix):
            yield from save(figure, os.path.join(outdir, slug(f"paper-{name}-{mode}")), formats)


def draw(result, outdir, mode):
    """Draws all figures of a mode; yields the names of the files."""
    set_up()
    os.makedirs(outdir, exist_ok=True)
    for rule, groups in by_rule(result, mode).items():
        stem = lambda name: os.path.join(outdir, slug(f"paper-{name}-{rule}-{mode}"))
        for name, own in by_alpha(groups):
            yield from save(alpha(result, name, own), stem(f"alpha-{name}"))
        yield from save(scatter(result, groups), stem("speed-memory"))
        if rule not in (FORWARD, WEIGHT_GRAD):  # which have no stages
            yield from save(stages(result, groups), stem("stages"))
    yield from draw_across(result, outdir, mode)


if __name__ == "__main__":
    program.run(lambda: export.main(__doc__, draw))
