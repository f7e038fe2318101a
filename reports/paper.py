# SPDX-License-Identifier: MIT
"""The look of all figures for a paper, and what they share; style.gp has the same for gnuplot."""
import io
import math
import os

from export import kernels_of
from program import ResultError, write_whole
from results import caches, notes_of, operation_text
from style import CAUTION_COLOUR, colour, marker

WIDTH = 5.7  # inches; 7 with the legend beside the panels, as wide as a page
GREY = "#777777"


def set_up():
    """Sets matplotlib up for print; without it, an error that says how to install it."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    try:
        import matplotlib
    except ImportError:
        raise ResultError("matplotlib is missing: install it (Debian: apt-get install "
                          "python3-matplotlib) and use its python3") from None
    matplotlib.rcParams.update({
        "font.family": "DejaVu Sans", "font.size": 7, "axes.titlesize": 7, "legend.fontsize": 6.5,
        "pdf.fonttype": 42, "svg.hashsalt": "embfuse", "svg.fonttype": "none",
        "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.5,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": "#dddddd", "grid.linewidth": 0.4,
        "xtick.major.width": 0.5, "ytick.major.width": 0.5, "lines.linewidth": 1.0,
        "lines.markersize": 3, "legend.frameon": False, "figure.constrained_layout.use": True})


def blank(height):
    """A figure as wide as a page."""
    from matplotlib.figure import Figure
    return Figure(figsize=(WIDTH, height))


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


def panels(count, columns, height, **shared):
    """A grid of count axes without the unused ones; the lowest axis of a column keeps its labels."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = blank(rows * height + 0.75)
    axes = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for ax in axes[count:]:
        ax.remove()
    for ax in axes[max(0, count - columns):count]:
        ax.tick_params(labelbottom=True)
    return figure, axes[:count]


def title(figure, result, groups, subject, notes=None):
    """Headings, the caution, and notes; unless they are given, those of the marks."""
    rules = {g.rule for g in groups}
    what = rules.pop() if len(rules) == 1 else f"{len(rules)} rules"
    if notes is None:
        notes = notes_of({mark for _, mark in kernels_of(groups)})
    mode = groups[0].mode
    lines = [f"{operation_text(what, mode)}: {subject}, {caches(mode)}", result.machine(), *notes]
    figure.suptitle("\n".join(lines), fontsize=7)
    figure.text(0.5, 1.01, result.caution(), ha="center", color=CAUTION_COLOUR, weight="bold", fontsize=7)


FORMATS = {"pdf": "CreationDate", "svg": "Date", "png": "Software"}  # and what would date them


def save(figure, stem, formats=FORMATS):
    """Saves the figure without dates and versions; yields the names of the files."""
    for kind in formats:
        whole = io.BytesIO()
        figure.savefig(whole, format=kind, metadata={FORMATS[kind]: None}, bbox_inches="tight", dpi=200)
        write_whole(f"{stem}.{kind}", whole.getvalue())
        yield f"{stem}.{kind}"
