# SPDX-License-Identifier: MIT
"""When does a dense gradient beat a sparse one? The share of the table's rows that a batch touches changes from
about 1 % to 90 %, for several rules and row widths. The dense kernel clears, adds to and sweeps a gradient of all
rows; a sparse kernel moves only touched rows, but must group the lookups.

The text has, for each rule and width, the share x that serves best as a threshold (take dense from U/V = x on; U rows
touched of V), and what it costs where it is wrong.
"""
import math
import os
from collections import namedtuple

from export import common, figure, names
from parts import Part, options_of, threads_of
from program import ResultError
from results import DENSE_MARK, DENSE_NOTE
from style import COLOURS, markdown_table, number

HERE = os.path.dirname(os.path.abspath(__file__))
DIMS = (16, 64, 128)
ALPHAS = (0, 1.05)
SHARES = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4)  # lookups per row of the table
RULES = "sgd rowwise_adagrad adagrad adam"
POOLING = 10
NOWHERE = [1e30, 1.0]  # gnuplot needs a point for every line


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
def picture(result, found, kernel, stem):
    """A panel per rule; in it a line per width for uniform ids and hollow dots for skewed ones."""
    dims = sorted({d for own in found.values() for d in own})
    blocks, everything = [], []
    for own in found.values():
        for dim in dims:
            points = own.get(dim, [])
            everything += points
            for skewed in (False, True):
                rows = [[p.used, p.ratio] for p in points if p.skewed == skewed]
                blocks.append([[f"{dim} floats"], *(rows or [NOWHERE])])
    ratios = [p.ratio for p in everything]
    return figure(os.path.join(HERE, "crossover"), stem, common(result, result.groups("cold"), "dense or sparse") | {
        "heading": f"Dense gradient or sparse ({kernel}), cold caches", "panels": len(found), "widths": len(dims),
        "colours": " ".join(COLOURS[:len(dims)]), "rules": names(found), "kernel": kernel,
        "thresholds": names(rule_text(threshold([p for v in own.values() for p in v])) for own in found.values()),
        "from": min(p.used for p in everything) / 1.3, "low": min(0.5, 0.8 * min(ratios)),
        "high": max(2.0, 1.25 * max(ratios))}, blocks)
