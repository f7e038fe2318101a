# SPDX-License-Identifier: MIT
"""One look for all reports: numbers have three digits, and a kernel keeps its colour and marker in
every figure.

The first colours are Okabe and Ito's, without yellow, which fades on white. The others are as far from them and from each
other as muted colours can be. Colours repeat after 17 kernels, markers after 7 and the dashes of paper.py after 4: two
kernels with one colour differ in marker and dash. Peers and the rungs of the ladder have colours that no kernel uses.
"""
import math
import os

TITLES = os.environ.get("TITLE") != "0"  # TITLE=0: what a figure shows goes into a text file beside it
FONT = os.environ.get("FONT") or "DejaVu Sans"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#fc9c78", "#84180c", "#b4a8cc",
           "#c03ca8", "#54cccc", "#6ccc54", "#fc546c", "#543c6c", "#185400", "#a8c090")
GUEST_COLOURS = ("#332288", "#999933", "#882255", "#8c6d46", "#9d7be0", "#5f7f7f")
CAUTION_COLOUR = "#c00000"
#         gnuplot pointtype, matplotlib marker
MARKERS = ((7, "o"), (5, "s"), (9, "^"), (13, "D"), (11, "v"), (15, "p"), (3, "X"))
# Stages differ in lightness, not in hue, so that none looks like a kernel.
STAGE_COLOURS = ("#cccccc", "#8f8f8f", "#a6cbe3", "#2f6f9f")
# The parts of an iteration before the stages: forward and plan.
BEFORE_COLOURS = ("#e2d3b3", "#b39a66")
# A step without stages; it follows the stages in a legend.
WHOLE_COLOUR = "#555555"
# The roof's longer and shorter term.
ROOF_COLOURS = ("#c8553d", "#efc9bf")


def colour(kernel):
    colours = GUEST_COLOURS if kernel.guest else COLOURS
    return colours[kernel.index % len(colours)]


def marker(kernel):
    return MARKERS[kernel.index % len(MARKERS)]


def number(value, digits=3):
    """A number as text with about `digits` significant digits and no exponent; '-' for None."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(places, 4)}f}"


def markdown_table(heads, rows, left=(0,)):
    """The lines of a table for a page; the columns in `left` are aligned left, all others right."""
    bar = lambda row: "| " + " | ".join(row) + " |"
    rule = ["---" if i in left else "---:" for i in range(len(heads))]
    return [bar(heads), bar(rule), *map(bar, rows)]


def text_table(rows, left=(0,)):
    """The lines of a table for a terminal, aligned like those of markdown_table()."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    pad = lambda i, text: text.ljust(widths[i]) if i in left else text.rjust(widths[i])
    return ["  ".join(pad(i, text) for i, text in enumerate(row)).rstrip() for row in rows]


def wrap(name, width, newline="\n"):
    """Breaks a workload's name at its slashes into lines of at most about width characters."""
    lines = [""]
    for part in name.replace("/", "/\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return newline.join(lines)


def nice_range(values, pad=1.15):
    """The 1-2-5 bounds of a log axis around all positive values."""
    values = [v for v in values if v and v > 0] or [1.0]
    steps = [m * 10.0**e for e in range(-7, 13) for m in (1, 2, 5)]
    low = max((s for s in steps if s * pad <= min(values)), default=steps[0])
    high = min((s for s in steps if s >= max(values) * pad), default=steps[-1])
    return low, high
