#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints a result as tables: one per workload and rule, a line per kernel, fastest first; of many rules one per
workload, a line per rule.

Plain text fits a terminal of 120 columns if no device was measured; --markdown is the same for a page, and
--update puts it between the comments `<!-- table NAME -->` and `<!-- end NAME -->` of a file. Kernels that failed
or were not run follow below the tables, with their reasons.
"""
import math
from collections import Counter, namedtuple
from itertools import chain, islice

import program
import section
from program import Arguments
from results import (DENSE_MARK, ITERATION, MANY_RULES, NOTES, OVER_MARK, OVER_NOTE, UNSURE_MARK, Group, by_speed,
                     by_state, by_workload, caches, load, marks_explained, spread)
from style import markdown_table, number, text_table
from verdict import add_precision, without_scipy

HEADS = ("kernel", "ns/lookup", "±%", "Mlookup/s", "GB/s", "% copy", "% random", "% roof", "scratch",
         "persistent", "peak", "vs dense", "launches", "plan ms", "replay")
FOR_DEVICES = 3  # the last columns, only if a device kernel was measured
PARTS = ("fwd ms", "plan ms", "of cold")  # of an iteration, in place of:
SHARES = slice(HEADS.index("% copy"), HEADS.index("% roof") + 1)
LEGEND = (
    "* fastest of its workload, and all that cannot be told from it (Mann-Whitney at p < 0.05; of less than",
    "4 samples, where they overlap). ns/lookup: median of the repetitions; ±%: half the quartile range.",
    "Mlookup/s and GB/s (compulsory traffic) are of that time. % copy, % random: share of these ceilings,",
    "measured among the samples; the median.",
    "% roof: what traffic or gathers take at their ceilings, of the time taken. Grouping keys is not in it",
    "and weighs more with skew: compare kernels of one workload, not percentages of several alphas.",
    "scratch, persistent (weights, state), observed peak: MiB. vs dense: times the dense baseline.")
ITERATION_LEGEND = (
    "An iteration: forward, plan of the step, step. fwd ms, plan ms: parts of it, median. of cold: its time",
    "over the sum of the fastest forward, plan and step measured alone with cold caches, if they were.")
DEVICE_LEGEND = (
    "launches: kernels, memsets and copies of one step. plan: done ahead of the step, and no part of",
    "its time. replay: ns/lookup of the same step, launched as one CUDA graph. vs dense: of the same place.")

RULE_KERNELS = 5  # the usually fastest ones, in a table of rules
RULE_LEGEND = (
    f"A line per rule: ns/lookup of the {RULE_KERNELS} usually fastest kernels, median of the repetitions.",
    "* fastest of its rule, and all that cannot be told from it. state: bytes of the states of a row. ±% and",
    "% roof: half the quartile range of the fastest, and its share of the roof. EACH=1: all kernels.")

# Below the heading of its group: the heads of the columns, and the lines.
Table = namedtuple("Table", "group heads rows")


def count(value):
    return "-" if value is None else f"{value:.0f}"


def percent(share):
    return "-" if share is None else f"{100 * share:.1f}"


def of_roof(share):
    """A share of a ceiling in percent, marked if it is over 100."""
    return percent(share) + (OVER_MARK if share and share > 1 else "")


def short_time(series, group):
    """'19.4 ±6 %'"""
    q = series.quartiles("ns_per_lookup")
    more = f" ±{number(100 * spread(q), 1)} %" if len(series.samples) > 1 and q[1] else ""
    return number(q[1]) + group.mark(series) + more


def cells(series, group, best):
    """The texts of one line, in the order of the heads."""
    q = series.quartiles("ns_per_lookup")
    base = group.baseline(series.kernel.place)
    ratio = base.ns / series.ns if base and base.ns and series.ns else None
    other = DENSE_MARK if ratio and DENSE_MARK in (base.mark(), series.mark()) else ""
    rate = series.at_median("lookups_per_s")
    launches, plan = series.median("launches") or None, series.median("plan_ms") or None
    return (series.kernel.title + group.mark(series), "*" * (series in best) + number(q[1]), percent(spread(q)),
            number(rate / 1e6 if rate else None), number(series.at_median("traffic_gbs")),
            *(of_roof(series.median(k)) for k in ("share_copy", "share_rmw", "share_roof")),
            *(number(series.median(k)) for k in ("scratch_mib", "persistent_mib", "peak_mib")),
            (number(ratio) + "x" if ratio else "-") + other, count(launches), number(plan),
            number(series.median("replay_ns_per_lookup")))


def parts(series, result):
    """The cells of an iteration in place of its shares of ceilings."""
    return (*(number(series.median(k) or None) for k in ("forward_ms", "plan_ms")),
            number(result.of_cold_parts(series)))


def lines_of(group, result):
    """All lines of a group: measured ones by speed, then failed ones."""
    speed, best, nothing = lambda s: s.ns or math.inf, group.fastest(), ("-",) * (len(HEADS) - 2)
    return ([line_of(s, group, best, result) for s in sorted(group.measured(), key=speed)] +
            [(s.kernel.title + s.mark(), "FAILED", *nothing) for s in group.series if s.failed])


def line_of(series, group, best, result):
    line = list(cells(series, group, best))
    if group.mode == ITERATION:
        line[SHARES] = parts(series, result)
    return tuple(line)


def heading(group):
    """(name, facts of the batches, ceilings measured beside them and placement of threads)"""
    lookups, distinct = group.median("lookups"), group.median("distinct")
    hottest = group.median("hottest_share")
    share = f" ({percent(distinct / lookups)} %)" if lookups and distinct else ""
    facts = [f"{count(lookups)} lookups, {count(distinct)} distinct{share}, hottest row "
             f"{number(hottest and 100 * hottest, 2)} %"]
    for place in group.places():
        copy, rmw = group.median("copy_gbs", place), group.median("rmw_gbs", place)
        latency, lines = group.median("latency_ns", place), group.median("lines_in_flight", place)
        facts.append(f"{place} ceilings {number(copy)} GB/s copy, {number(rmw)} GB/s random rows" +
                     (f" ({number(lines)} lines in flight of a thread, each {number(latency)} ns)" if lines else ""))
    placed = Counter(x.placement for s in group.measured() for x in s.samples)
    facts.append("threads placed: " + (", ".join(f"{p} {n}" for p, n in sorted(placed.items())) or "unknown"))
    return (f"{group.workload} · {group.rule} · {group.mode}", facts[0], "; ".join(facts[1:]))


def notes(result, groups):
    """Failures and kernels that were not run, the footnotes of the marks, and whether SciPy is missing."""
    return result.left_out(groups) + marks_explained(groups) + without_scipy()


def rule_line(group, kernels):
    """The texts of a rule's line: bytes of state, the times of these kernels, and the fastest kernel's roof."""
    best, fastest, own = group.best(), group.fastest(), {s.kernel.name: s for s in group.series}
    text = lambda s: "*" * (s in fastest) + number(s.ns) + group.mark(s)
    time = lambda s: "-" if s is None else "FAILED" if s.failed else text(s)
    return (group.rule, count(group.median("state_bytes")), *(time(own.get(k.name)) for k in kernels),
            percent(spread(best.quartiles("ns_per_lookup"))) if best else "-",
            of_roof(best.median("share_roof")) if best else "-")


def rule_table(groups):
    """One table of the groups of a workload, which differ in their rules."""
    kernels = by_speed(groups)[:RULE_KERNELS]
    first, series = groups[0], [s for g in groups for s in g.series]
    return Table(Group(first.workload, f"{len(groups)} rules", first.mode, series),
                 ("rule", "state", *(k.title for k in kernels), "±%", "% roof"),
                 [rule_line(g, kernels) for g in by_state(groups)])


def tables_of(result, groups, each):
    """(tables, legend); each: a table of every rule, however many there are."""
    device, tables = any("device" in g.places() for g in groups), []
    iteration = groups[0].mode == ITERATION
    heads = (*HEADS[:SHARES.start], *PARTS, *HEADS[SHARES.stop:]) if iteration else HEADS
    heads = heads if device else heads[:-FOR_DEVICES]
    for own in by_workload(groups).values():
        if len(own) >= MANY_RULES and not each:
            tables.append(rule_table(own))
        else:
            tables += [Table(g, heads, [row[:len(heads)] for row in lines_of(g, result)]) for g in own]
    over = any(OVER_MARK in cell for t in tables for row in t.rows for cell in row)
    usual = [LEGEND, ITERATION_LEGEND * iteration, DEVICE_LEGEND * device] * any(t.heads is heads for t in tables)
    rules = [RULE_LEGEND] * any(t.heads is not heads for t in tables)
    return tables, [*chain(*usual, *rules), *([OVER_NOTE] if over else ())]


def plain(result, mode, each):
    groups = result.groups(mode)
    tables, legend = tables_of(result, groups, each)
    out, lines = [*result.cautions(groups=groups), result.machine(), ""], {}
    for heads in dict.fromkeys(t.heads for t in tables):
        top, *rows = text_table([heads, *(row for t in tables if t.heads == heads for row in t.rows)])
        lines[heads] = top, iter(rows)
    for table in tables:
        top, rows = lines[table.heads]
        out += [*heading(table.group), *(f"  {row}" for row in (top, *islice(rows, len(table.rows)))), ""]
    return out + legend + notes(result, groups)


def markdown(result, mode, each=False):
    escape = lambda c: c.replace("|", "\\|").replace("*", "\\*")
    groups = result.groups(mode)
    tables, legend = tables_of(result, groups, each)
    out = [*result.cautions("**", groups), f"Measured on {result.machine()}.", ""]
    for table in tables:
        name, *facts = heading(table.group)
        out += [f"**{name}**<br>", "<br>\n".join(facts), "",
                *markdown_table(table.heads, [map(escape, row) for row in table.rows]), ""]
    out += [escape(" ".join(legend)), ""]
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
            text = short_time(series, group)
            row.append(f"**{text}**" if series in best else text)
        rows.append(row)
    cut, caution = result.cut_short(), result.caution(groups)
    return [*[f"**{cut}**", ""] * bool(cut),
            *markdown_table(("workload", "lookups", "distinct", *(k.title for k in kernels)), rows), "",
            f"ns per lookup, median ± half the quartile range, {caches(mode)}, {groups[0].rule}; bold: "
            f"the fastest, and all that cannot be told from it; {result.machine()}."
            + f" {UNSURE_MARK}: **{caution}.**" * bool(caution),
            *(f"- {n}" for n in notes(result, groups) if n != NOTES[UNSURE_MARK])]


def main():
    parser = Arguments(__doc__)
    parser.add_result()
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--each", action="store_true", help="a table of every rule, however many there are")
    parser.add_argument("--overview", action="store_true", help="markdown with one line per workload")
    add_precision(parser)
    section.add_arguments(parser, "results")
    args = parser.parse_args()
    form, how = (overview, ()) if args.overview else (
        markdown if args.markdown or args.update else plain, (args.each,))
    result = load(args.result, args.precision)
    section.print_or_update(args, "\n".join(line.rstrip() for line in form(result, result.mode(args.mode), *how)))


if __name__ == "__main__":
    program.run(main)
