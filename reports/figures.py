#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws figures for a paper with matplotlib, as PDF and SVG, for each rule of a result.

They show time per lookup against alpha, speed against memory, and time by stage. Text is real text (Type 42
in PDF), the width is that of a page, and one result always gives the same bytes: no dates, fixed ids in SVG.
"""
import io
import math
import os

import program
from export import by_alpha, by_rule, ceiling_ns, kernels_of, slug, stage_names, stage_panel
from program import Arguments, ResultError, write_whole
from results import DENSE_NOTE, load
from style import CAUTION_COLOUR, STAGE_COLOURS, WHOLE_COLOUR, colour, marker, nice_range, wrap

WIDTH = 5.7  # inches; 7 with the legend beside the panels, as wide as a page
GREY = "#777777"


def pyplot():
    """matplotlib set up for print; without it, an error that says how to install it."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    try:
        import matplotlib
    except ImportError:
        raise ResultError("matplotlib is missing: install it (Debian: apt-get install "
                          "python3-matplotlib) and use its python3") from None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "font.family": "DejaVu Sans", "font.size": 7, "axes.titlesize": 7, "legend.fontsize": 6.5,
        "pdf.fonttype": 42, "svg.hashsalt": "embfuse", "svg.fonttype": "none",
        "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.5,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": "#dddddd", "grid.linewidth": 0.4,
        "xtick.major.width": 0.5, "ytick.major.width": 0.5, "lines.linewidth": 1.0,
        "lines.markersize": 3, "legend.frameon": False, "figure.constrained_layout.use": True})
    from matplotlib import pyplot as plt
    return plt


def log_axis(axis, low, high, room=5, zero=None):
    """A log axis with about `room` labels, at 1, 2 and 5, at 1 and 3 or at 1 only. zero: the place of 0."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
    subs = next((s for s in ((1, 2, 5), (1, 3)) if len(s) * math.log10(high / low) <= room), (1,))
    ticks = [t for t in LogLocator(subs=subs).tick_values(low, high) if low <= t <= high]
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (zero or low, high)})
    axis.set_major_locator(FixedLocator(ticks if zero is None else [zero, *ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: "0" if v == zero else f"{v:g}"))


def legend(figure, axes, **how):
    """One legend beside all panels, each entry once."""
    entries = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels())}
    figure.legend(entries.values(), entries.keys(), loc="upper left", bbox_to_anchor=(1.0, 0.9), **how)


def look(kernel, mark):
    """How the points of a kernel and their quartiles are drawn."""
    return {"label": kernel.title + mark, "color": colour(kernel), "marker": marker(kernel)[1],
            "capsize": 2.5, "elinewidth": 0.8}


def panels(plt, count, columns, height, **shared):
    """A grid of count axes without the unused ones; the lowest axis of a column keeps its labels."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(WIDTH, rows * height + 0.75), squeeze=False,
                                **shared)
    axes = list(grid.flat)
    for ax in axes[count:]:
        ax.remove()
    for ax in axes[max(0, count - columns):count]:
        ax.tick_params(labelbottom=True)
    return figure, axes[:count]


def title(figure, result, groups, subject):
    lines = [f"Embedding backward + {groups[0].rule}: {subject}, {groups[0].mode} caches",
             result.machine()]
    if any(mark for _, mark in kernels_of(groups)):
        lines.append(DENSE_NOTE)
    figure.suptitle("\n".join(lines), fontsize=7)
    figure.text(0.5, 1.01, result.caution(), ha="center", color=CAUTION_COLOUR, weight="bold", fontsize=7)


def alpha(plt, result, name, groups):
    """Median and quartiles of the time per lookup, above the time that the ceilings allow."""
    figure, ax = plt.subplots(figsize=(WIDTH, 3.2))
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


def scatter(plt, result, groups):
    """Speed against scratch, a panel per workload; up and to the left is better."""
    figure, axes = panels(plt, len(groups), 3, 1.75, sharex=True, sharey=True)
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


def stages(plt, result, groups):
    """One bar of stages per kernel, one panel per workload; see export.stage_panel."""
    deep = max(len(g.measured()) for g in groups)
    figure, axes = panels(plt, len(groups), 2, 0.45 + 0.17 * deep)
    drawn, ends = zip(*(stage_panel(g) for g in groups))
    for ax, (head, *rows), end in zip(axes, drawn, ends):
        for i, (name, shade) in enumerate(zip(stage_names(drawn), (*STAGE_COLOURS, WHOLE_COLOUR))):
            ax.barh([r[0] for r in rows], [r[3 + i] - r[2 + i] for r in rows],
                    left=[r[2 + i] for r in rows], color=shade, label=name, height=0.7)
        for row in rows:
            ax.text(row[8] + end * 0.01, row[0], row[9], va="center", fontsize=6)
            if row[10]:  # a break mark
                ax.plot([row[8] - end * 0.035, row[8] - end * 0.015], [row[0] + 0.45, row[0] - 0.45],
                        color="white", lw=2.5)
        ax.set_yticks([r[0] for r in rows], [r[1] for r in rows])
        ax.set(xlim=(0, end), ylim=(deep - 0.5, -0.5), title=head[1].replace("\\n", "\n"))
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)
    figure.supxlabel("ns per lookup (median)", fontsize=7)
    legend(figure, axes)
    title(figure, result, groups, "time by stage")
    return figure


def save(plt, figure, stem):
    """Saves both formats without dates; yields the names of the files."""
    for kind, date in (("pdf", "CreationDate"), ("svg", "Date")):
        whole = io.BytesIO()
        figure.savefig(whole, format=kind, metadata={date: None}, bbox_inches="tight")
        write_whole(f"{stem}.{kind}", whole.getvalue())
        yield f"{stem}.{kind}"
    plt.close(figure)


def draw(result, outdir, mode):
    """Draws all figures of a mode; yields the names of the files."""
    plt = pyplot()
    os.makedirs(outdir, exist_ok=True)
    for rule, groups in by_rule(result, mode).items():
        stem = lambda name: os.path.join(outdir, slug(f"paper-{name}-{rule}-{mode}"))
        for name, own in by_alpha(groups):
            yield from save(plt, alpha(plt, result, name, own), stem(f"alpha-{name}"))
        yield from save(plt, scatter(plt, result, groups), stem("speed-memory"))
        yield from save(plt, stages(plt, result, groups), stem("stages"))


def main():
    parser = Arguments(__doc__)
    parser.add_result(outdir=True)
    parser.add_mode()
    args = parser.parse_args()
    for name in draw(load(args.result), args.outdir, args.mode):
        print(name)


if __name__ == "__main__":
    program.run(main)
