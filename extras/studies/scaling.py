# SPDX-License-Identifier: MIT
"""How the time of a step grows with the lookups of a batch, with the rows of the table, and with threads.

Every kernel is shown, not only the one under study. Batches of more than 10M lookups are far larger than any cache, so
their ring has one batch, which saves memory.
"""
import math
import re
import statistics
from pathlib import Path

from drawings import size
from export import kernels_of
from parts import Part, options_of, threads_of
from program import ResultError
from style import markdown_table, number

STANDARD = "datasets/standard.spec"
LEAST = 10**4               # lookups and rows
SMALL = 10**7               # each larger workload is a part of its own
LINEAR_FROM = 10**6         # fewest lookups in the fit of the growth
WORKLOADS = {  # axis: keys of its workloads, and what its values are divided by before they go there
    "lookups": ("    rows 10000000\n    dim 16\n    length fixed 100\n    ids zipf\n    alpha 1.05\n"
                "    batch {}\n", 100),
    "rows": ("    dim 32\n    batch 50000\n    length fixed 20\n    ids zipf\n    alpha 1.05\n"
             "    rows {}\n", 1)}
TITLES = {"lookups": ("lookups of a batch", "10M rows of 16 floats, alpha 1.05"),
          "rows": ("rows of the table", "1M lookups, 32 floats, alpha 1.05"),
          "threads": ("threads", "the zipf workloads of the standard set")}


# --- what is run
def steps(most):
    """10k, 30k, 100k, ... up to most."""
    return [n for e in range(4, 16) for n in (10**e, 3 * 10**e) if n <= most]


def workload(axis, value):
    keys, unit = WORKLOADS[axis]
    return f"workload {axis}-{value}\n{keys.format(value // unit)}    rule rowwise_adagrad\n"


def zipf(name):
    """The zipf workloads of the standard set, under this name."""
    standard = Path(STANDARD).read_text(encoding="utf-8")
    block = re.search(r"(?ms)^workload zipf$(.*?)(?=^workload |\Z)", standard)
    if not block:
        raise ResultError(f"{STANDARD}: has no workload zipf")
    return f"workload {name}{block[1]}"


def parts(args):
    if not LEAST <= args.most < 1e15:
        raise ResultError(f"MOST: {args.most:g} must be at least {LEAST} and below 1e15")
    counts, out = threads_of(args), []
    for axis in WORKLOADS:
        options, values = options_of(args, counts[-1], axis == "rows"), steps(args.most)
        small = "\n".join(workload(axis, v) for v in values if v <= SMALL)
        out.append(Part(axis, small, options))
        for v in (v for v in values if v > SMALL):
            ring = (("ring", "1"),) if axis == "lookups" else ()
            out.append(Part(f"{axis}-{v}", workload(axis, v), options + ring))
    return out + [Part(f"threads-{n}", zipf(f"threads-{n}"), options_of(args, n, False)) for n in counts]


# --- what came out
def read(result, _kernel, _below):
    """{axis: its groups, by rising value}."""
    axes = {axis: [] for axis in TITLES}
    for group in result.groups("cold"):
        axis = re.match(r"(\w+)-\d+", group.workload)
        if axis and axis[1] in axes and group.measured():
            axes[axis[1]].append(group)
    for axis, groups in axes.items():
        if not groups:
            raise ResultError(f"{result.path}: no workload {axis}-NUMBER was measured")
        groups.sort(key=lambda g: g.median(axis))
    return axes


def time(group, kernel):
    series = group.of(kernel.name)
    return series and series.ns


def threads_of_family(groups):
    """{alpha: {threads: group}}"""
    out = {}
    for g in groups:
        out.setdefault(g.workload.partition("/")[2], {})[int(g.median("threads"))] = g
    return out


def growth(groups, kernel):
    """x if the time of a batch of N lookups grows as N^x."""
    times = [(g.median("lookups"), time(g, kernel)) for g in groups]
    points = [(math.log(n), math.log(n * ns)) for n, ns in times if ns and n >= LINEAR_FROM]
    return statistics.linear_regression(*zip(*points)).slope if len(points) > 1 else None


def size_table(groups, axis):
    """A line per value, a column per kernel."""
    kernels = [k for k, _ in kernels_of(groups)]
    distinct = lambda g: 100 * g.median("distinct") / g.median("lookups")
    rows = [(f"{g.median(axis):.0f}", f"{distinct(g):.1f} %", *(number(time(g, k)) for k in kernels))
            for g in groups]
    return markdown_table((axis, "distinct", *(k.title for k in kernels)), rows, left=())


def threads_table(groups):
    counts = sorted({int(g.median("threads")) for g in groups})
    rows = []
    for name, own in threads_of_family(groups).items():
        for k, _ in kernels_of(groups):
            ns = [time(own[n], k) if n in own else None for n in counts]
            ratio = number(ns[0] / ns[-1]) if ns[0] and ns[-1] else "-"
            rows.append((name or "zipf", k.title, *map(number, ns), ratio))
    heads = ("workload", "kernel", *(f"{n} thread{'s'[:n > 1]}" for n in counts), "speed-up")
    return markdown_table(heads, rows, left=(0, 1))


def growths(axes):
    """Sentences about the growth, each with the kernels that have enough times."""
    each = lambda groups, value: ", ".join(f"{k.title} {v:.2f}" for k, _ in kernels_of(groups)
                                           for v in [value(k)] if v)
    powers = each(axes["lookups"], lambda k: growth(axes["lookups"], k))
    if powers:
        yield f"- From {LINEAR_FROM} lookups on, time grows with their number to the power of: {powers}"
    first, last = axes["rows"][0], axes["rows"][-1]
    ratio = lambda value: value(last) / value(first) if value(last) and value(first) else None
    if first is not last:
        yield (f"- From {first.median('rows'):.0f} to {last.median('rows'):.0f} rows, distinct rows grow by "
               f"a factor of {number(ratio(lambda g: g.median('distinct')))}, and the time by: "
               + each(axes["rows"], lambda k: ratio(lambda g: time(g, k))))


def text(result, axes, _kernel):
    out = [f"ns per lookup, median, cold caches; {result.machine()}."]
    for axis in WORKLOADS:
        out += ["", f"**Against the {'; '.join(TITLES[axis])}**", "", *size_table(axes[axis], axis)]
    return out + ["", f"**Against {'; '.join(TITLES['threads'])}**", "", *threads_table(axes["threads"]), "",
                  *growths(axes), *(f"- {line}" for line in result.left_out())]


# --- the picture
def drawn(width, result, _axes, _kernel):
    """The figure for a paper."""
    for shown in size.pick_scaling(result, "cold").values():
        return size.scaling(width, result, shown)
    raise ResultError(f"{result.path}: a picture needs two thread counts, or three sizes, as MOST=1e5 gives")
