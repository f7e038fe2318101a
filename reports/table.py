#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints a result as tables: one per workload and rule, a line per kernel, fastest first.

Plain text fits a terminal of 120 columns; --markdown is the same for a page, and --update puts it
between the comments `<!-- table NAME -->` and `<!-- end NAME -->` of a file. Kernels that failed or were
not run follow below the tables, with their reasons.
"""
import math

import program
import section
from program import Arguments
from results import DENSE_MARK, DENSE_NOTE, OVER_MARK, OVER_NOTE, baseline_ratio, load, spread
from style import markdown_table, number, text_table

HEADS = ("kernel", "ns/lookup", "±%", "Mlookup/s", "GB/s", "% copy", "% random", "% roof", "scratch",
         "persistent", "peak", "vs dense")
DEVICE_HEADS = ("launches", "plan ms")  # only if a device kernel was measured
LEGEND = (
    "* fastest of its workload, and all that cannot be told from it (Mann-Whitney at p < 0.05; of less than",
    "4 samples, where they overlap). ns/lookup: median of the repetitions; ±%: half the quartile range.",
    "Mlookup/s and GB/s (compulsory traffic) are of that time. % copy, % random: share of these ceilings,",
    "measured right before every sample; the median.",
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


def of_roof(share):
    """A share of a ceiling in percent, marked if it is over 100."""
    return percent(share) + (OVER_MARK if share and share > 1 else "")


def short_time(series):
    """'19.4 ±6 %'"""
    q = series.quartiles("ns_per_lookup")
    more = f" ±{number(100 * spread(q), 1)} %" if len(series.samples) > 1 and q[1] else ""
    return number(q[1]) + series.mark() + more


def has_device(groups):
    return any("device" in g.places() for g in groups)


def heads(device):
    return HEADS + (DEVICE_HEADS if device else ())


def cells(series, group, best, device):
    """The texts of one line, in the order of the heads."""
    q = series.quartiles("ns_per_lookup")
    base = group.baseline(series.kernel.place)
    ratio = baseline_ratio(series, base)
    other = DENSE_MARK if ratio and (base.mark() or series.mark()) else ""
    rate = series.at_median("lookups_per_s")
    launches, plan = series.median("launches") or None, series.median("plan_ms") or None
    more = (count(launches), number(plan)) if device else ()
    return (series.kernel.title + series.mark(), "*" * (series in best) + number(q[1]), percent(spread(q)),
            number(rate / 1e6 if rate else None), number(series.at_median("traffic_gbs")),
            *(of_roof(series.median(k)) for k in ("share_copy", "share_rmw", "share_roof")),
            *(number(series.median(k)) for k in ("scratch_mib", "persistent_mib", "peak_mib")),
            (number(ratio) + "x" if ratio else "-") + other, *more)


def failed_cells(series, device):
    return (series.kernel.title + series.mark(), "FAILED") + ("-",) * (len(heads(device)) - 2)


def lines_of(group, device):
    """All lines of a group: measured ones by speed, then failed ones."""
    speed, best = lambda s: s.ns or math.inf, group.fastest()
    return ([cells(s, group, best, device) for s in sorted(group.measured(), key=speed)] +
            [failed_cells(s, device) for s in group.series if s.failed])


def heading(group):
    """(name, facts of the batches, ceilings measured beside them and placement of threads)"""
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
    """Failures and kernels that were not run, then the footnotes of the marks."""
    dense = any(s.mark() for g in groups for s in g.series)
    return result.left_out(groups) + [DENSE_NOTE] * dense


def legend(tables, device):
    over = any(OVER_MARK in cell for t in tables for row in t for cell in row)
    return [*LEGEND, *(DEVICE_LEGEND if device else ()), *([OVER_NOTE] if over else ())]


def plain(result, mode):
    groups = result.groups(mode)
    device = has_device(groups)
    tables = [lines_of(g, device) for g in groups]
    top, *rows = text_table([heads(device)] + [row for t in tables for row in t])
    out = [*result.cautions(), result.machine(), ""]
    for group, table in zip(groups, tables):
        out += [*heading(group), *(f"  {row}" for row in [top, *rows[:len(table)]]), ""]
        del rows[:len(table)]
    return out + legend(tables, device) + notes(result, groups)


def markdown(result, mode):
    escape = lambda c: c.replace("|", "\\|").replace("*", "\\*")
    groups = result.groups(mode)
    device = has_device(groups)
    tables = [lines_of(g, device) for g in groups]
    out = [*result.cautions("**"), f"Measured on {result.machine()}.", ""]
    for group, table in zip(groups, tables):
        name, *facts = heading(group)
        out += [f"**{name}**<br>", "<br>\n".join(facts), "",
                *markdown_table(heads(device), [map(escape, row) for row in table]), ""]
    out += [escape(" ".join(legend(tables, device))), ""]
    return out + [f"- {escape(n)}" for n in notes(result, groups)]


def overview(result, mode):
    """Markdown: one line per workload, with the ns per lookup of every kernel and their spread."""
    groups = result.groups(mode)
    kernels = [k for k in result.kernels.values() if any(s.kernel is k for g in groups for s in g.series)]
    rows = []
    for group in groups:
        lookups, distinct = group.median("lookups"), group.median("distinct")
        row = [group.workload, count(lookups), percent(distinct / lookups) + " %"]
        by_name, best = {s.kernel.name: s for s in group.series}, group.fastest()
        for kernel in kernels:
            series = by_name.get(kernel.name)
            if series is None or series.failed:
                row.append("-" if series is None else "FAILED")
                continue
            text = short_time(series)
            row.append(f"**{text}**" if series in best else text)
        rows.append(row)
    return [*result.cautions("**"),
            *markdown_table(("workload", "lookups", "distinct", *(k.title for k in kernels)), rows), "",
            f"ns per lookup, median ± half the quartile range, {mode} caches, {groups[0].rule}; bold: "
            f"the fastest, and all that cannot be told from it; {result.machine()}.",
            *(f"- {n}" for n in notes(result, groups))]


def main():
    parser = Arguments(__doc__)
    parser.add_result(outdir=False)
    parser.add_mode()
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--overview", action="store_true", help="markdown with one line per workload")
    section.add_arguments(parser, "results")
    args = parser.parse_args()
    form = overview if args.overview else markdown if args.markdown or args.update else plain
    section.print_or_update(args, "\n".join(line.rstrip() for line in form(load(args.result), args.mode)))


if __name__ == "__main__":
    program.run(main)
