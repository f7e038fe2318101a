# SPDX-License-Identifier: MIT
"""The look of all figures for a paper, and what they share; style.gp has the same for gnuplot.

A figure is exactly as wide as a column or a page of a paper. Its head says what it shows and where it was
measured, its legend is below; panels() begins a figure, finish() adds both and fixes the layout.
"""
import io
import math
import os
import textwrap

from export import kernels_of
from program import ResultError, say, write_whole
from results import Group, caches, notes_of, operation_text
from style import CAUTION_COLOUR, FONT, TITLES, colour, marker, nice_range

COLUMN, PAGE = 3.33, 7.0  # inches
SIZES = {"": PAGE, "-column": COLUMN}  # by the end of a file's name
GREY, PALE, UNSURE = "#777777", "#e8e8e8", "#b0b0b0"
WORSE = "#f6dcd4"  # shades the part of a panel where something is slower
SMALL = 6.0  # points, of text in panels
LINE = 1.3 * 6.5 / 72  # inches, of a line of the head
CHARACTER = 0.053  # inches: about the most that a character of that line takes
MARGIN = 0.04  # inches
# Ticks of a log axis between two powers of ten: many if the axis has a short range, few if it has a long one.
SUBS = ([v / 10 for v in (*range(10, 20), *range(20, 50, 2), *range(50, 100, 5))], (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7), (1, 2, 5),
        (1, 3), (1,))
DASHES = ("-", (0, (5, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (1.2, 1.2)))
HOLLOW = {"mfc": "white", "mew": 0.8}
QUARTILES = "median, quartiles"


def set_up():
    """Sets matplotlib up for print; without it, an error that says how to install it."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    try:
        import matplotlib
    except ImportError:
        raise ResultError("matplotlib is missing: install it (Debian: apt-get install "
                          "python3-matplotlib) and use its python3") from None
    from matplotlib.font_manager import findfont
    try:
        findfont(FONT, fallback_to_default=False)
    except ValueError:
        raise ResultError(f"FONT: there is no font '{FONT}'; fc-list has those of this machine") from None
    matplotlib.rcParams.update({
        "font.family": FONT, "font.size": 7, "axes.titlesize": 7, "axes.labelsize": 7,
        "xtick.labelsize": 6.5, "ytick.labelsize": 6.5, "legend.fontsize": 6.5, "legend.title_fontsize": 6.5,
        "pdf.fonttype": 42, "svg.hashsalt": "embfuse", "svg.fonttype": "none",
        "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.5, "axes.titlepad": 3,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": "#dddddd", "grid.linewidth": 0.4,
        "xtick.major.width": 0.5, "ytick.major.width": 0.5, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
        "lines.linewidth": 1.0, "lines.markersize": 3, "legend.frameon": False})


# --- panels and axes
def panels(width, count, most, height, **shared):
    """(figure, axes): a figure of this width with a grid of `count` panels, each as high as `height` with its labels.
    most: how many panels fit side by side in a figure of width COLUMN, and of width PAGE. The lowest panel in each
    column of the grid keeps its labels."""
    from matplotlib.figure import Figure
    rows = -(-count // min(count, most[width == PAGE]))
    columns = -(-count // rows)
    figure = Figure(figsize=(width, rows * height))
    axes = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for ax in axes[count:]:
        ax.remove()
    for ax in axes[max(0, count - columns):count]:
        ax.tick_params(labelbottom=True)
    return figure, axes[:count]


def log_axis(axis, low, high, room=5, zero=None):
    """A log axis. room: how many labels of four characters fit; of longer ones fewer fit. zero: the place of 0."""
    text = lambda v: f"{v:g}" if v < 1 else short(v)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [[v for e in decades for m in subs for v in [m * 10.0**e] if low * 0.9999 <= v <= high * 1.0001] for subs in SUBS]
    for ticks in every:
        longest = max(map(len, map(text, ticks)), default=0) if axis.axis_name == "x" else 0
        fits = int(room * 4 / max(4, longest))
        if all(fits * math.log(b / a) >= 0.85 * math.log(high / low) for a, b in zip(ticks, ticks[1:])):
            break
    ticks = ticks if len(ticks) > 1 else every[0]
    ticks_at(axis, ticks[::math.ceil(len(ticks) / fits)] if ticks in (every[0], every[-1]) else ticks, low, high, zero, text)


def binary_axis(axis, values, room=8):
    """A log axis around values that are powers of two, or nearly. Its ticks are powers of two."""
    low, high = (round(math.log2(v)) for v in (min(values), max(values)))
    step = max(1, math.ceil((high - low + 1) / room))
    ticks_at(axis, [2.0**e for e in range(low, high + 1, step)], min(values) / 1.2, max(values) * 1.2)


def ticks_at(axis, ticks, low, high, zero=None, text=None):
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (zero or low, high)})
    axis.set_major_locator(FixedLocator(ticks if zero is None else [zero, *ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: "0" if v == zero else (text or short)(v)))


def short(value):
    """10000000 is 10M, 0.25 is 1/4, and None is a dash."""
    if value is None:
        return "-"
    if value >= 1000:
        unit, letter = next(u for u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= u[0])
        return f"{value / unit:.3g}{letter}"
    inverse = round(1 / value) if value else 0
    binary = inverse > 1 and math.log2(inverse).is_integer() and abs(value * inverse - 1) < 0.005
    return f"1/{inverse}" if binary else f"{value:g}"


def look(kernel, mark="", line=True):
    """How the points of a kernel and their quartiles are drawn. If `line` is true, a line in the kernel's dash joins
    them."""
    return {"label": kernel.title + mark, "color": colour(kernel), "marker": marker(kernel)[1],
            "ls": DASHES[kernel.index % len(DASHES)] if line else "none", "capsize": 1.8, "elinewidth": 0.7,
            "capthick": 0.7}


def marks(ax, points, across=False, **how):
    """Draws medians and quartiles, upright or across, of points (place, quartiles); returns the medians."""
    if not points:
        return ()
    places, (low, mid, high) = [p for p, _ in points], zip(*(q for _, q in points))
    error = [[m - v for m, v in zip(mid, low)], [v - m for m, v in zip(mid, high)]]
    if across:
        ax.errorbar(mid, places, xerr=error, **how)
    else:
        ax.errorbar(places, mid, error, **how)
    return mid


def lines(ax, groups, xs, key="ns_per_lookup"):
    """A line per kernel through its medians, with quartiles; points that are not to be quoted are grey. Returns the
    medians."""
    drawn = []
    for kernel, mark in kernels_of(groups):
        there = [(x, g, s) for x, g in zip(xs, groups) for s in [g.of(kernel.name)] if s and s.median(key)]
        points, how = [(x, s.quartiles(key)) for x, _, s in there], look(kernel, mark)
        drawn += marks(ax, points, **how)
        marks(ax, [p for p, (_, g, s) in zip(points, there) if g.quotable(s) is False],
              **how | {"color": UNSURE, "label": None, "ls": "none", "zorder": 3})
    return drawn


def row_marks(ax, there, across=False, **how):
    """marks() of rows (place, quartiles, whether the row may be quoted), hollow if it may not. Returns the medians."""
    full, hollow = ([(place, q) for place, q, may in there if (may is False) == unsure] for unsure in (False, True))
    if hollow and not full:
        ax.errorbar([], [], [], [], **how | {"clip_on": True})  # the legend has a full mark
    return [*marks(ax, full, across, **how), *marks(ax, hollow, across, **how | HOLLOW | {"label": None})]


def dots(ax, rows, groups, kernels, key="ns_per_lookup"):
    """A row of dots per group: each kernel's median and quartiles; rows: the row of each group. A kernel has the same
    height within every row. Returns the medians."""
    drawn = []
    for i, kernel in enumerate(kernels):
        shift = 0.7 * ((i + 0.5) / len(kernels) - 0.5)
        there = [(y + shift, g, s) for y, g in zip(rows, groups) for s in [g.of(kernel.name)] if s and s.median(key)]
        known = [(y, s.quartiles(key), g.quotable(s)) for y, g, s in there]
        drawn += row_marks(ax, known, True, **look(kernel, line=False))
        for y, _, s in there:
            if s.mark():
                ax.annotate(s.mark(), (s.median(key), y), (2.5, 0), textcoords="offset points", va="center",
                            fontsize=5, color=colour(kernel))
    return drawn


def point_notes(groups, shown=Group.measured):
    """The notes that explain marks of points, and hollow points; shown(group) are the series that are drawn."""
    every = [(g, s) for g in groups for s in shown(g)]
    hollow = any(g.quotable(s) is False for g, s in every)
    return [*notes_of({s.mark() for _, s in every}), *["Hollow: not to be quoted."] * hollow]


def unmeasured(groups, kernels):
    """A note on the rows in which kernels of a figure have no time, if there are some."""
    counts = {k.title: sum(not (s := g.of(k.name)) or not s.ns for g in groups) for k in kernels}
    lacking = [f"{name} in {count} of {len(groups)} rows" for name, count in counts.items() if count]
    return [f"Not measured: {', '.join(lacking)}."] * bool(lacking)


def empty_rows(ax, count, rows):
    """Writes 'not measured' into each of the `count` rows that is not in `rows`."""
    for y in set(range(count)) - set(rows):
        ax.text(0.5, y, "not measured", ha="center", va="center", fontsize=SMALL, color=GREY,
                transform=ax.get_yaxis_transform())


def striped(ax, labels):
    """Rows with these labels from the top, every other one shaded."""
    for y in range(0, len(labels), 2):
        ax.axhspan(y - 0.5, y + 0.5, color="#f4f4f4", lw=0, zorder=0)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")


def range_of(values, pad=1.1):
    """A tighter range than nice_range(): within a factor of 1.6 of the values."""
    values = [v for v in values if v and v > 0]
    low, high = nice_range(values, pad)
    return (max(low, min(values) / 1.6), min(high, max(values) * 1.6)) if values else (low, high)


# --- the head, the legend and the layout
def head(result, groups, subject, notes, points):
    """The lines of the head: what is shown, where it was measured, and notes. If notes is None, the head explains the
    marks instead. points says what is drawn of the samples."""
    rules = {g.rule for g in groups}
    what = rules.pop() if len(rules) == 1 else f"{len(rules)} rules"
    if notes is None:
        notes = notes_of({mark for _, mark in kernels_of(groups)})
    mode = groups[0].mode if groups else ""
    first = f"{operation_text(what, mode)}: {subject}, {caches(mode)}" if groups else subject
    every = (first + (points and f"; {points}"), result.machine(), *notes)
    return "\n".join(filter(None, every))


def wrapped(text, inches):
    """The text in lines of at most that length."""
    most = int((inches - 2 * MARGIN) / CHARACTER)
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, most) or [""])


def legend(figure, axes, title=None):
    """Draws one legend below all panels, with each entry once, in as many columns as fit. Returns its height in
    inches."""
    entries = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    if not entries:
        return 0.0
    renderer, room = figure.canvas.get_renderer(), (figure.get_figwidth() - 2 * MARGIN) * figure.dpi
    for columns in range(len(entries), 0, -1):
        made = figure.legend(entries.values(), entries.keys(), loc="lower center", ncol=columns, borderpad=0,
                             borderaxespad=0.5, handlelength=2.2, columnspacing=1.2, labelspacing=0.35,
                             title=title)
        box = made.get_window_extent(renderer)
        if box.width <= room or columns == 1:
            return box.height / figure.dpi + 0.08
        made.remove()
    return 0.0


def finish(figure, axes, result, groups, subject, x="", y="", notes=None, points=QUARTILES, title=None):
    """Adds the head, the labels x and y of all panels, and the legend with a title; then fixes the layout."""
    return compose(figure, axes, result.doubt(groups), head(result, groups, subject, notes, points), x, y, title)


def compose(figure, axes, caution, text, x="", y="", title=None):
    """The same with a caution and a text as the head."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    FigureCanvasAgg(figure)
    width, body = figure.get_size_inches()
    for ax in axes:
        ax.title.set_linespacing(1.4)  # so that a second line stays clear of an underscore
    caution = wrapped(caution, 0.9 * width)
    figure.set_label(text)
    text = wrapped(text, width) if TITLES else ""
    text_lines = [part.count("\n") + 1 if part else 0 for part in (caution, text)]
    top, below = sum(text_lines) * LINE + 2 * MARGIN, legend(figure, axes, title)
    x, y = wrapped(x, width), wrapped(y, body)
    strip = LINE * (x.count("\n") + 1) if x else 0
    height = body + top + below + strip
    figure.set_size_inches(width, height)
    up = lambda inches: 1 - inches / height
    figure.text(0.5, up(MARGIN), caution, ha="center", va="top", color=CAUTION_COLOUR, weight="bold", fontsize=6.5,
                linespacing=1.2)
    figure.text(0.5, up(MARGIN + text_lines[0] * LINE), text, ha="center", va="top", fontsize=6.5, linespacing=1.2)
    left = (y.count("\n") + 1.2) * LINE / width if y else 0
    figure.text((1 + left) / 2, (below + 0.01) / height, x, ha="center", va="bottom")
    figure.text(0.02 / width, (below + strip + body / 2) / height, y, va="center", ha="left", rotation=90,
                multialignment="center")
    figure.set_layout_engine("constrained", h_pad=0.03, w_pad=0.03,
                             rect=(left, (below + strip) / height, 1 - left - MARGIN / width, body / height))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax in figure.axes:  # the last digits of a layout vary from run to run
        ax.set_position([round(v, 6) for v in ax.get_position().bounds])
    return figure


def if_possible(draw, *what):
    """The files that draw(*what) makes; without matplotlib a line says so, and there are none."""
    try:
        return draw(*what)
    except ResultError as e:
        say(f"no picture: {e}")
        return []


FORMATS = {"pdf": "CreationDate", "svg": "Date", "png": "Software"}  # with the metadata that has a date or a version


def save(figure, stem, formats=FORMATS):
    """Saves the figure without dates and versions. If figures have no heads (TITLE=0), a text file beside it has the
    head. Yields the names of the files."""
    if not TITLES:
        write_whole(f"{stem}.txt", figure.get_label() + "\n")
        yield f"{stem}.txt"
    for kind in formats:
        whole = io.BytesIO()
        figure.savefig(whole, format=kind, metadata={FORMATS[kind]: None}, dpi=200)
        write_whole(f"{stem}.{kind}", whole.getvalue())
        yield f"{stem}.{kind}"
