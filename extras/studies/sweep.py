# SPDX-License-Identifier: MIT
"""Is one kernel the fastest everywhere, or within 10 % of the fastest? The points change the axes of a
workload one at a time around two base points; further points cover every pair of values of two axes.

The text has the verdict and the worst points.

All points have about the same number of lookups per batch, fewer if rows are wide. A point has fewer rows if
the weights of all tables would exceed the limit; its name has the reduced number.
"""
import itertools
from collections import Counter, namedtuple

from paper import GREY, PAGE, PALE, SMALL, WORSE, finish, log_axis, panels
from parts import Part, options_of, threads_of
from program import ResultError
from style import colour, markdown_table, number

Point = namedtuple("Point", "dim pooling alpha rows tables threads")
AXES = Point(dim=(8, 16, 32, 48, 64, 80, 128, 200, 256, 512, 1024), pooling=(1, 4, 20, 100),
             alpha=(0, 0.6, 0.8, 1.0, 1.05, 1.2, 1.5), rows=(3, 1000, 100_000, 10_000_000),
             tables=(1, 8, 26, 100), threads=())
TITLES = Point("floats per row", "lookups per bag", "alpha of the ids", "rows per table", "tables", "threads")
BASES = ({"rows": 10_000_000}, {"rows": 100_000})  # in memory, and in the cache
BASE = {"dim": 64, "pooling": 20, "alpha": 1.05, "tables": 1}
LOOKUPS_LEAST, LOOKUPS_MOST, LOOKUP_FLOATS = 1 << 18, 1 << 20, 1 << 26
DENSE_BYTES = 1 << 30  # limit of a gradient of all rows
POINTS_OF_A_PART = 6
NEAR = 0.9  # share of the fastest kernel's speed


# --- which points
def stars(axes):
    """One axis at a time around every base point."""
    points = []
    for base in BASES:
        centre = Point(**BASE, **base, threads=max(axes.threads))
        points += [centre._replace(**{name: v}) for name, values in zip(Point._fields, axes) for v in values]
    return list(dict.fromkeys(points))


def pairs(point):
    """The pairs of (axis, value) of a point, or of a partial one (None: not chosen yet)."""
    return itertools.combinations([(i, v) for i, v in enumerate(point) if v is not None], 2)


def cover(axes, points):
    """Further points, so that every pair of values of two axes occurs. Greedy: the first missing pair fixes
    two axes. Every other axis takes the value that adds most missing pairs; among equals, the value whose
    pairs were taken least."""
    each = [[(i, v) for v in values] for i, values in enumerate(axes)]
    missing = dict.fromkeys(p for a, b in itertools.combinations(each, 2) for p in itertools.product(a, b))
    for point in points:
        for p in pairs(point):
            missing.pop(p, None)
    new, taken = [], Counter()
    while missing:
        point = [None] * len(axes)
        for i, v in next(iter(missing)):
            point[i] = v
        for i in (i for i, v in enumerate(point) if v is None):
            own = {v: list(pairs(point[:i] + [v] + point[i + 1:])) for v in axes[i]}
            new_pairs = lambda v: sum(p in missing for p in own[v])
            point[i] = max(own, key=lambda v: (new_pairs(v), -sum(taken[p] for p in own[v])))
        for p in pairs(point):
            missing.pop(p, None)
        taken.update(pairs(point))
        new.append(Point(*point))
    return new


def cut(point, most_bytes):
    """The point with as many rows as weights of most_bytes allow, rounded down to two digits."""
    fits = most_bytes // (4 * point.dim * point.tables)
    if point.rows <= fits:
        return point
    unit = 10 ** max(0, len(str(fits)) - 2)
    return point._replace(rows=max(1, fits // unit * unit))


def design(threads, most_bytes):
    """All points, each once."""
    axes = AXES._replace(threads=tuple(threads))
    points = stars(axes)
    return list(dict.fromkeys(cut(p, most_bytes) for p in points + cover(axes, points)))


# --- what is run
def short(count):
    """10000000 is 10M."""
    unit, letter = next((u for u in ((10**6, "M"), (10**3, "k"), (1, "")) if count >= u[0]))
    return f"{count / unit:g}{letter}"


def name(point):
    return (f"d{point.dim}-L{point.pooling}-a{point.alpha:g}-r{short(point.rows)}-T{point.tables}"
            f"-t{point.threads}")


def batch(point):
    lookups = min(max(LOOKUP_FLOATS // point.dim, LOOKUPS_LEAST), LOOKUPS_MOST)
    return max(1, lookups // (point.pooling * point.tables))


def workload(point):
    return (f"workload {name(point)}\n    tables {point.tables}\n    rows {point.rows}\n"
            f"    dim {point.dim}\n    batch {batch(point)}\n    length fixed {point.pooling}\n"
            f"    ids zipf\n    alpha {point.alpha:g}\n    rule rowwise_adagrad\n")


def parts(args):
    """Parts of a few workloads that share threads and kernels, in the order of the points."""
    if not 0 < args.gib < 1e6:
        raise ResultError(f"GIB: {args.gib:g} is no size of memory")
    groups, out = {}, []
    for p in design(threads_of(args), int(args.gib * 2**30)):
        has_dense = 4 * p.dim * p.rows * p.tables <= DENSE_BYTES
        groups.setdefault((p.threads, has_dense), []).append(p)
    for how, own in groups.items():
        for i in range(0, len(own), POINTS_OF_A_PART):
            text = "\n".join(map(workload, own[i:i + POINTS_OF_A_PART]))
            out.append(Part(f"{len(out) + 1:02d}", text, options_of(args, *how)))
    return out


# --- what came out
Outcome = namedtuple("Outcome", "group own rival ratio")


def read(result, kernel, _below):
    """The kernel and the best other one of each group that has one, the worst first. A kernel without a time
    has the ratio 0."""
    found = []
    for group in result.groups("cold"):
        own = group.of(kernel)
        rivals = [s for s in group.measured() if s is not own and s.ns]
        if rivals:
            rival = min(rivals, key=lambda s: s.ns)
            found.append(Outcome(group, own, rival, rival.ns / own.ns if own else 0.0))
    if not any(o.own for o in found):
        raise ResultError(f"{result.path}: no samples of {kernel} and another kernel")
    return sorted(found, key=lambda o: o.ratio)


def verdict(found, kernel):
    fastest, near = (sum(o.ratio >= least for o in found) for least in (1.0, NEAR))
    return (f"{kernel} is fastest or within 10 % on {near} of {len(found)} points; fastest on {fastest}, "
            f"worst {number(found[0].ratio)}, median {number(found[len(found) // 2].ratio)}")


def placement(o):
    seen = {x.placement for s in (o.own, o.rival) if s for x in s.samples}
    return "-" if o.group.median("threads") == 1 else seen.pop() if len(seen) == 1 else "mixed"


def table(found, kernel):
    rows = []
    for o in found:
        lookups, distinct = o.group.median("lookups"), o.group.median("distinct")
        own = number(o.own.ns) if o.own else "none"
        ratio = f"**{number(o.ratio)}**" if o.ratio < NEAR else number(o.ratio)
        rows.append((o.group.workload, f"{lookups:.0f}", f"{100 * distinct / lookups:.1f} %", own,
                     o.rival.kernel.title, number(o.rival.ns), ratio, placement(o)))
    heads = ("workload", "lookups", "distinct", kernel, "best other", "its", "ratio", "threads placed")
    return markdown_table(heads, rows, left=(0, 4, 7))


def text(result, found, kernel, count=None):
    """The table has all points, or so many."""
    return [f"{verdict(found, kernel)}.", "", *table(found[:count], kernel), "",
            f"- ns per lookup, median, cold caches, row-wise Adagrad; {result.machine()}.",
            f"- ratio: time of the best other kernel / time of {kernel}; from {NEAR:g} on it counts as "
            "within 10 %.",
            "- names: d floats per row, L lookups per bag, a alpha of the Zipf ids, r rows per table, T "
            "tables, t threads; rows are cut where the weights would exceed the limit of the run.",
            "- threads placed: on one core complex (same), on two (split), or differently from sample to "
            "sample (mixed), where a ratio says less.", *(f"- {line}" for line in result.left_out())]


# --- the picture
def coordinates(o):
    """The value of every axis, as it was measured; of rows the next one of the axis, since a reduced number
    of them lies between two."""
    measured, tables = o.group.median, o.group.median("tables")
    rows = next((r for r in AXES.rows if measured("rows") / tables <= r), AXES.rows[-1])
    return Point(measured("dim"), measured("longest_bag"), measured("alpha"), rows, tables, measured("threads"))


def strips(found):
    """[(label, outcomes)] from the top: above the values of each axis its title, which has None."""
    points = [coordinates(o) for o in found]
    for i, title in enumerate(TITLES):
        yield title, None
        for v in sorted({p[i] for p in points if p[i] is not None}):
            text = f"≤ {short(int(v))}" if Point._fields[i] == "rows" and v > 3 else f"{v:g}"
            yield text, [o for o, p in zip(found, points) if p[i] == v]


def drawn(width, result, found, kernel):
    """A strip of dots per value of an axis; every point is in one strip of each axis."""
    timed = [o for o in found if o.own]
    rows, dots = list(strips(timed)), {k: [] for k in sorted({o.rival.kernel for o in found}, key=lambda k: k.index)}
    figure, (ax,) = panels(width, 1, (1, 1), 0.45 + 0.14 * len(rows))
    ax.set_yticks(range(len(rows)), [label for label, _ in rows])
    for y, (tick, (_, own)) in enumerate(zip(ax.get_yticklabels(), rows)):
        if own is None:
            tick.set_weight("bold")
            ax.axhline(y - 0.5, color=PALE, lw=0.8)
            continue
        ax.text(1.01, y, number(own[0].ratio), va="center", fontsize=SMALL, transform=ax.get_yaxis_transform())
        for i, o in enumerate(own):  # the golden ratio spreads neighbours
            dots[o.rival.kernel].append((o.ratio, y + 0.6 * (i * 0.618034 % 1 - 0.5)))
    ax.text(1.01, 0, "worst", va="center", fontsize=SMALL, transform=ax.get_yaxis_transform())
    for k, own in dots.items():
        ax.plot(*zip(*own), ls="none", marker="o", ms=2.6, color=colour(k), label=k.title)
    ratios = [o.ratio for o in timed]
    low, high = min(0.95 * min(ratios), 0.8), max(1.05 * max(ratios), 1.25)
    ax.axvspan(low, NEAR, color=WORSE, lw=0, zorder=0)
    ax.axvline(NEAR, color=GREY, lw=0.8, ls="--", label="within 10 %")
    ax.axvline(1, color=GREY, lw=0.9)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    log_axis(ax.xaxis, low, high, room=10 if width == PAGE else 5)
    return finish(figure, [ax], result, [o.group for o in found], f"{kernel} and the best other",
                  f"time of the best other kernel / time of {kernel}; right of 1 {kernel} is faster",
                  notes=[verdict(found, kernel) + "."], points="medians", title="best other kernel")

