#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The result as tables: one per workload and rule, a line per kernel, fastest first.

Plain text fits a terminal of 120 columns; --markdown is the same for a page, and --update puts it
between the comments `<!-- table NAME -->` and `<!-- end NAME -->` of a file. Failed and not run
kernels stand below, with their reasons: nothing that the file holds is left out.
"""
import math
import sys

from results import (DENSE_MARK, DENSE_NOTE, WRONG, Arguments, ResultError, baseline_ratio, load,
                     spread)
from section import update
from style import number

HEADS = ("kernel", "ns/lookup", "±%", "Mlookup/s", "GB/s", "% copy", "% random", "% roof", "scratch",
         "persistent", "peak", "vs dense")
DEVICE_HEADS = ("launches", "plan ms")  # where a kernel of a device was measured
LEGEND = (
    "* fastest of its workload. ns/lookup: median of the repetitions; ±%: half the quartile range.",
    "GB/s: compulsory traffic, and its share of the copy and random-row ceilings of the same run.",
    "% roof: what traffic or gathers take at their ceilings, of the time taken. Grouping keys is not in it",
    "and weighs more with skew: compare kernels of one workload, not percentages of several alphas.",
    "scratch, persistent (weights, state), observed peak: MiB. vs dense: times the dense baseline.")
DEVICE_LEGEND = (
    "launches: kernels, memsets and copies of one step. plan: done ahead of the step, and no part of",
    "its time. vs dense: of the same place.")


def count(value):
    return "-" if value is None else f"{value:.0f}"


def percent(share):
    return "-" if share is None else f"{100 * share:.1f}"


def has_device(groups):
    return any("device" in g.places() for g in groups)


def heads(device):
    return HEADS + (DEVICE_HEADS if device else ())


def cells(series, group, device):
    """The texts of one line, in the order of the heads."""
    q = series.quartiles("ns_per_lookup")
    base = group.baseline(series.kernel.place)
    ratio = baseline_ratio(series, base)
    other = DENSE_MARK if ratio and (base.mark() or series.mark()) else ""
    rate = series.median("lookups_per_s")
    best = "*" if series is group.best() else ""
    launches, plan = series.median("launches") or None, series.median("plan_ms") or None
    more = (count(launches), number(plan)) if device else ()
    return (series.kernel.title + series.mark(), best + number(q[1]), percent(spread(q)),
            number(rate / 1e6 if rate else None), number(series.median("traffic_gbs")),
            percent(series.median("share_copy")), percent(series.median("share_rmw")),
            percent(series.median("share_roof")),
            *(number(series.median(k)) for k in ("scratch_mib", "persistent_mib", "peak_mib")),
            (number(ratio) + "x" if ratio else "-") + other, *more)


def failed_cells(series, device):
    return (series.kernel.title + series.mark(), "FAILED") + ("-",) * (len(heads(device)) - 2)


def lines_of(group, device):
    """All lines of a group: measured ones by speed, then failed ones."""
    speed = lambda s: s.median("ns_per_lookup") or math.inf
    return ([cells(s, group, device) for s in sorted(group.measured(), key=speed)] +
            [failed_cells(s, device) for s in group.series if s.failed])


def heading(group):
    """(name, facts): what was realised, and the ceilings measured beside it."""
    lookups, distinct = group.median("lookups"), group.median("distinct")
    hottest = group.median("hottest_share")
    share = f" ({percent(distinct / lookups)} %)" if lookups and distinct else ""
    facts = [f"{count(lookups)} lookups, {count(distinct)} distinct{share}, hottest row "
             f"{number(hottest and 100 * hottest, 2)} %"]
    for place in group.places():
        copy, rmw = group.median("copy_gbs", place), group.median("rmw_gbs", place)
        facts.append(f"{place} ceilings {number(copy)} GB/s copy, {number(rmw)} GB/s random rows")
    seen = ", ".join(f"{p} {n}" for p, n in group.placements().items())
    facts.append(f"threads placed: {seen or 'unknown'}")
    return (f"{group.workload} · {group.rule} · {group.mode}", facts[0], "; ".join(facts[1:]))


def notes(result, groups):
    """Failures and kernels that were not run, then the dagger's footnote if it is needed."""
    out = [f"FAILED {kernel} on {workload}: {reason}"
           for kernel, workload, reason in result.failures(groups)]
    out += [f"not run: {kernel} on {'all workloads' if workload == '*' else workload}: {reason}"
            for workload, kernel, reason in result.not_run if not reason.startswith(WRONG)]
    if any(s.mark() for g in groups for s in g.series):
        out.append(DENSE_NOTE)
    return out


def legend(device):
    return [*LEGEND, *(DEVICE_LEGEND if device else ())]


def plain(result, mode):
    groups = result.groups(mode)
    device = has_device(groups)
    top, tables = heads(device), [lines_of(g, device) for g in groups]
    widths = [max(len(r[i]) for t in tables for r in (*t, top)) for i in range(len(top))]
    pad = lambda row: "  " + "  ".join(
        c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
    out = [result.machine(), ""]
    for group, table in zip(groups, tables):
        out += [*heading(group), pad(top), *map(pad, table), ""]
    return out + legend(device) + notes(result, groups)


def markdown(result, mode):
    escape = lambda c: c.replace("|", "\\|").replace("*", "\\*")
    bar = lambda row: "| " + " | ".join(row) + " |"
    groups = result.groups(mode)
    device = has_device(groups)
    top = heads(device)
    out = [f"Measured on {result.machine()}.", ""]
    for group in groups:
        name, *facts = heading(group)
        out += [f"**{name}**<br>", "<br>\n".join(facts), "", bar(top),
                bar(["---"] + ["---:"] * (len(top) - 1))]
        out += [bar(map(escape, row)) for row in lines_of(group, device)] + [""]
    out += [escape(" ".join(legend(device))), ""]
    return out + [f"- {escape(n)}" for n in notes(result, groups)]


def overview(result, mode):
    """Markdown: one line per workload, ns per lookup of every kernel."""
    groups = result.groups(mode)
    kernels = [k for k in result.kernels if any(s.kernel.name == k for g in groups for s in g.series)]
    bar = lambda row: "| " + " | ".join(row) + " |"
    titles = [result.kernels[k].title for k in kernels]
    out = [bar(("workload", "lookups", "distinct", *titles)),
           bar(["---"] + ["---:"] * (len(kernels) + 2))]
    for group in groups:
        lookups, distinct = group.median("lookups"), group.median("distinct")
        row = [group.workload, count(lookups), percent(distinct / lookups) + " %"]
        by_name = {s.kernel.name: s for s in group.series}
        for name in kernels:
            series = by_name.get(name)
            if series is None or series.failed:
                row.append("-" if series is None else "FAILED")
                continue
            text = number(series.median("ns_per_lookup")) + series.mark()
            row.append(f"**{text}**" if series is group.best() else text)
        out.append(bar(row))
    return out + ["", f"ns per lookup, median, {mode} caches, {groups[0].rule if groups else '-'}; "
                  f"{result.machine()}."] + [f"- {n}" for n in notes(result, groups)]


def main():
    parser = Arguments(prog="table.py", description=__doc__.split("\n")[0])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("--mode", default="cold", help="cold (default) or warm")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--overview", action="store_true", help="markdown, a line per workload")
    parser.add_argument("--update", metavar="FILE", help="markdown into a section of this file")
    parser.add_argument("--section", metavar="NAME", default="results")
    args = parser.parse_args()
    result = load(args.result)
    form = overview if args.overview else markdown if args.markdown or args.update else plain
    text = "\n".join(line.rstrip() for line in form(result, args.mode)) + "\n"
    if args.update:
        update(args.update, args.section, text)
        print(f"{args.update}: section {args.section} from {args.result}")
    else:
        print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except ResultError as e:
        sys.exit(f"table.py: {e}")
