# SPDX-License-Identifier: MIT
"""Maps over two axes of a workload: which kernel wins, and by how much a kernel is faster than another."""
import math

from paper import COLUMN, PAGE, SMALL, finish, panels, short
from results import by_speed
from style import colour, number

from drawings.choose import TITLES, grids, placed, titles_of, values

# The axes of a map, and what changes with them: wide rows mean fewer of them.
AXES = (("alpha", "dim", ()), ("load", "dim", ("rows", "lookups")), ("lookups", "rows", ("load",)))
SHADES = 1.5  # octaves of a speed-up until its colour is full
SLOWER, FASTER = "#e69f00", "#0072b2"


def pick(result, mode):
    """{name: (axes, groups of each panel)}"""
    groups, found = [g for g in result.groups(mode) if g.measured()], {}
    for across, up, free in AXES:
        for name, kept in grids(groups, across, up, free).items():
            found[f"{name}-{across}-{up}" if name in found else name] = (across, up, free), kept
    return found


def pick_speedup(result, mode):
    """The same, a figure per rule, of groups with two kernels that ran in all of them."""
    found = {}
    for name, (axes, kept) in pick(result, mode).items():
        for rule in dict.fromkeys(key[0] for key in kept):
            own = {key: groups for key, groups in kept.items() if key[0] == rule}
            if len(everywhere(own)) > 1:
                found[f"{name}-{rule}"] = axes, own
    return found


def everywhere(kept):
    """The kernels with a time of the lazy operation in all groups, the usually fastest first."""
    groups = [g for own in kept.values() for g in own]
    lazy = [{s.kernel for s in g.lazy()} for g in groups]
    return [k for k in by_speed(groups) if all(k in own for own in lazy)]


def cells(ax, groups, axes, places, draw):
    """draw(group) of each group gives the colour, text and label of its cell."""
    from matplotlib.patches import Rectangle
    (across, up, _), (xs, ys) = axes, places
    for g in groups:
        x, y, (shade, text, label, dark) = xs.index(placed(g, across)), ys.index(placed(g, up)), draw(g)
        ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=shade, lw=0, label=label))
        ax.text(x, y, text, ha="center", va="center", fontsize=SMALL, color="white" if dark else "black")
    ax.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5))
    ax.set_xticks(range(len(xs)), [short(x) for x in xs])
    ax.set_yticks(range(len(ys)), [short(y) for y in ys])
    ax.grid(False)
    ax.tick_params(length=0)


def places_of(kept, axes):
    """(all groups, the places on both axes)"""
    groups = [g for own in kept.values() for g in own]
    return groups, [values(groups, axis) for axis in axes[:2]]


def lead_text(group):
    """By how much the fastest kernel leads: '1.25', or '≈' if another one cannot be told from it."""
    times = sorted(s.ns for s in group.lazy())
    if len(times) < 2:
        return "-"
    return "≈" * (len(group.fastest()) > 1) + number(times[1] / times[0])


def winners(width, result, shown):
    """A panel per rule and type: the winner over two axes as colour, its lead as text."""
    axes, kept = shown
    groups, places = places_of(kept, axes)
    figure, drawn = panels(width, len(kept), fitting(places), height(places))
    best = lambda g: (pale(colour(g.best().kernel)), lead_text(g), g.best().kernel.title, False)
    for ax, (key, title) in zip(drawn, titles_of(kept, *axes).items()):
        cells(ax, kept[key], axes, places, best)
        ax.set_title("\n".join(filter(None, title)))
    return finish(figure, drawn, result, groups, "which kernel wins", TITLES[axes[0]], TITLES[axes[1]],
                  ["Numbers: time of the second / time of the fastest; ≈: the two cannot be told apart."], "medians")


def fitting(places):
    """How many maps fit side by side in a column, and on a page."""
    return [max(1, int(width / (0.4 + 0.26 * len(places[0])))) for width in (COLUMN, PAGE)]


def height(places):
    return 0.5 + 0.17 * len(places[1])


def pale(shade, share=0.5):
    """The colour mixed with white."""
    return "#" + "".join(f"{round(255 - share * (255 - int(shade[i:i + 2], 16))):02x}" for i in (1, 3, 5))


def ratio_cell(ratio):
    """The colour and text of a speed-up."""
    share = max(-1.0, min(1.0, math.log2(ratio) / SHADES))
    return pale(FASTER if share > 0 else SLOWER, abs(share)), number(ratio), None, share > 0.6


def speedup(width, result, shown):
    """The time of a base, the usually second kernel, and the speed-ups of the others over it: a panel for each kernel
    and type."""
    axes, kept = shown
    groups, places = places_of(kept, axes)
    best, base, *others = everywhere(kept)
    fits, titles = fitting(places)[width == PAGE], titles_of(kept, *axes)
    kernels = [base, best, *others]
    pairs, columns = [(key, k) for key in kept for k in kernels], len(kernels)
    if fits < columns:  # a row for each kernel instead
        pairs, columns = [(key, k) for k in kernels for key in kept], min(fits, len(kept))
    figure, drawn = panels(width, len(pairs), (columns, columns), height(places))
    for ax, (key, kernel) in zip(drawn, pairs):
        if kernel is base:
            draw, what = (lambda g: ("#eeeeee", number(g.of(base.name).ns), None, False)), ": ns per lookup"
        else:
            draw, what = (lambda g, k=kernel: ratio_cell(g.of(base.name).ns / g.of(k.name).ns)), ""
        cells(ax, kept[key], axes, places, draw)
        ax.set_title("\n".join(filter(None, (kernel.title + what, titles[key][1]))))
    return finish(figure, drawn, result, groups, f"speed-up over {base.title}", TITLES[axes[0]], TITLES[axes[1]],
                  [f"Ratios: time of {base.title} / time of the kernel; above 1 (blue) it is faster, below 1 (orange) "
                   "slower."], "medians")
