# SPDX-License-Identifier: MIT
"""When does a dense gradient beat a sparse one? The share of the table's rows that a batch touches changes from
about 1 % to 90 %, for several rules and row widths. The dense kernel clears, adds to and sweeps a gradient of all
rows; a sparse kernel moves only touched rows, but must group the lookups.

The text has, for each rule and width, the share x that serves best as a threshold (take dense from U/V = x on; U rows
touched of V), and what it costs where it is wrong.
"""
import math
from collections import namedtuple

from paper import GREY, HOLLOW, finish, log_axis, panels
from parts import Part, options_of, threads_of
from program import ResultError
from results import DENSE_MARK, DENSE_NOTE
from style import COLOURS, markdown_table, number

DIMS = (16, 64, 128)
ALPHAS = (0, 1.05)
SHARES = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4)  # lookups per row of the table
RULES = "sgd rowwise_adagrad adagrad adam"
POOLING = 10


# --- what is run
def workload(dim, share, alpha, mib):
    rows = mib * 2**20 // (4 * dim)
    return (f"workload d{dim}-n{share:g}-a{alpha:g}\n    rows {rows}\n    dim {dim}\n"
            f"    batch {max(1, round(share * rows / POOLING))}\n    length fixed {POOLING}\n    ids zipf\n"
            f"    alpha {alpha:g}\n    rule sgd\n")


def parts(args):
    """A part for each rule and width: a run that was cut short loses one."""
    if not 1 <= args.mib <= 2**20:
        raise ResultError(f"MIB: {args.mib} is no size of a table")
    if not args.rules.split():
        raise ResultError("RULE: no rule")
    options = options_of(args, threads_of(args)[-1], True)
    return [Part(f"{rule}-d{dim}",
                 "\n".join(workload(dim, share, alpha, args.mib) for alpha in ALPHAS for share in SHARES),
                 options + (("rule", rule),))
            for rule in args.rules.split() for dim in DIMS]


# --- what came out
Point = namedtuple("Point", "used ratio skewed")  # U/V; time of the dense kernel / of the sparse one


def read(result, kernel, _below):
    """{rule: {dim: points by rising U/V}}; the rule with its dagger."""
    found = {}
    for group in result.groups("cold"):
        own = group.of(kernel)
        dense = next((s for s in group.measured() if "dense_gradient" in s.kernel.traits and s.ns), None)
        if own and own.ns and dense:
            point = Point(group.median("distinct") / group.median("rows"), dense.ns / own.ns,
                          (group.median("alpha") or 0) > 0)
            found.setdefault(group.rule + dense.mark(), {}).setdefault(int(group.median("dim")), []).append(point)
    if not found:
        raise ResultError(f"{result.path}: no samples of {kernel} and a kernel with a dense gradient")
    return {rule: {d: sorted(own) for d, own in sorted(dims.items())} for rule, dims in found.items()}


def losses(points, threshold):
    """Time of the choice / time of the faster kernel, for every point."""
    return [max(1.0, p.ratio if p.used >= threshold else 1 / p.ratio) for p in points]


def threshold(points):
    """The x that loses the least time (product of the losses) if dense is taken from U/V = x on: between two
    neighbours, or 0 for always, or infinity for never. Of equals, the largest."""
    used = sorted({p.used for p in points})
    between = [0.0, *(math.sqrt(a * b) for a, b in zip(used, used[1:])), math.inf]
    return min(reversed(between), key=lambda x: sum(map(math.log, losses(points, x))))


def rule_text(x):
    return "never" if x == math.inf else "always" if x == 0 else f"from U/V = {number(100 * x, 2)} % on"


def table(found, kernel):
    rows = []
    for rule, dims in found.items():
        for dim, points in dims.items():
            x = threshold(points)
            lost = losses(points, x)
            rows.append((rule, str(dim), rule_text(x), f"{lost.count(1.0)} of {len(lost)}", number(max(lost)),
                         number(points[0].ratio), number(points[-1].ratio)))
    heads = ("rule", "floats per row", "dense", "right on", "worst loss", "at the fewest rows", "at the most")
    return markdown_table(heads, rows, left=(0, 2))


def sentence(found, kernel):
    """The rule for every width, and over all."""
    each = [(rule, threshold([p for points in dims.values() for p in points])) for rule, dims in found.items()]
    return (f"Against {kernel}, a dense gradient is faster: "
            + "; ".join(f"{rule} {rule_text(x)}" for rule, x in each) + " (one threshold for all widths)")


def text(result, found, kernel):
    return [f"{sentence(found, kernel)}.", "", *table(found, kernel), "",
            f"- median times of whole steps, cold caches; {result.machine()}.",
            "- U/V: rows that the batch touches / rows of the table. dense: from the threshold on that loses least. right "
            "on: points where it takes the faster kernel; worst loss: time of the choice / time of the faster one, at "
            "the worst point.",
            f"- at the fewest rows, at the most: time of the dense kernel / time of {kernel}, there.",
            *[f"- {DENSE_NOTE}"] * any(rule.endswith(DENSE_MARK) for rule in found),
            *(f"- {line}" for line in result.left_out())]


# --- the picture
def drawn(width, result, found, kernel):
    """A panel per rule; in it a line per width for uniform ids and hollow dots for skewed ones."""
    widths = sorted({d for own in found.values() for d in own})
    figure, axes = panels(width, len(found), (1, 2 + (len(found) == 3)), 1.9, sharex=True, sharey=True)
    every = [p for own in found.values() for points in own.values() for p in points]
    for ax, (rule, own) in zip(axes, found.items()):
        ax.axhline(1, color=GREY, lw=0.9)
        for shade, dim in zip(COLOURS, widths):
            for how in ({"label": f"{dim} floats"}, {"ls": "none", **HOLLOW}):
                points = [(100 * p.used, p.ratio) for p in own.get(dim, ()) if p.skewed == ("mfc" in how)]
                ax.plot(*zip(*points), color=shade, marker="o", **how) if points else None
        ax.set_title(f"{rule}: dense {rule_text(threshold([p for points in own.values() for p in points]))}")
    log_axis(axes[0].xaxis, 100 * min(p.used for p in every) / 1.3, 100, room=8)
    ratios = [p.ratio for p in every]
    log_axis(axes[0].yaxis, min(0.5, 0.8 * min(ratios)), max(2.0, 1.25 * max(ratios)), room=7)
    return finish(figure, axes, result, result.groups("cold"), f"dense gradient or sparse ({kernel})",
                  "% of the rows touched", f"dense time / time of {kernel}",
                  ["Hollow: skewed ids. Below 1 the dense kernel is faster.",
                   *[DENSE_NOTE] * any(rule.endswith(DENSE_MARK) for rule in found)], "medians")

