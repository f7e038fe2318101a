#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Exports a result as TSV files: samples.tsv with every raw sample, and the data of each gnuplot figure.

A figure is a script, its data files and the variables that the script reads; plots.py runs them. A data
file has one block per kernel (or panel), two blank lines apart; the first line of a block is its legend
text.
"""
import os
import re
import sys
from collections import namedtuple
from itertools import accumulate, compress

import program
from program import Arguments, ResultError, write_whole
from results import (FORWARD, GRADIENT, ITERATION, OVER_MARK, OVER_NOTE, STAGES, UNSURE_MARK, WEIGHT_GRAD, caches,
                     family, load, notes_of, operation_text, quartiles)
from style import (BEFORE_COLOURS, ROOF_COLOURS, STAGE_COLOURS, WHOLE_COLOUR, colour, marker, nice_range, number,
                   wrap)
from verdict import add_precision

KEYS = ("workload", "rule", "kernel", "mode", "operation", "check", "quotable")
NO_COUNTERS = {"repetitions", "repetition_index", "family_index", "per_family_instance_index",
               "iterations", "real_time", "cpu_time"}
WHOLE = "whole step"  # the bar of a sample without stages, such as a peer's
REST = "backward + optimizer"  # the same in an iteration
STAGE_CUT = 4.0  # a bar longer than this many times its panel's median is cut and marked
ROOF_KERNELS = 3  # the fastest ones, in a panel of the roofline
ROOF_LINES = 2.3  # height of the two terms of the roof above them
ROOF_NOTE = ("Mark: the roof at a kernel's own samples. Grouping keys is not in it: compare kernels, "
             "not percentages of several alphas.")


# <script>.gp, from reports/, the stem of the files it makes, and what it reads (paths are absolute)
Figure = namedtuple("Figure", "script name variables")


def clean(text):
    return re.sub(r"[\t\n\r\"]", " ", str(text))


def cell(value):
    if value is None:
        return "NaN"
    return f"{value:.6g}" if isinstance(value, float) else clean(value)


def slug(text):
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("_") or "all"


def write_tsv(path, blocks):
    """Writes blocks, which are lists of rows. Strings are quoted, since gnuplot splits at blanks."""
    quote = lambda v: f'"{clean(v)}"' if isinstance(v, str) else cell(v)
    text = "\n\n\n".join("\n".join("\t".join(map(quote, row)) for row in b) for b in blocks)
    write_whole(path, text + "\n")
    return path


def figure(script, stem, variables, data, lines=None):
    """A figure with its data files, STEM.tsv and, if it has lines, STEM-lines.tsv."""
    files = {"data": write_tsv(stem + ".tsv", data)}
    if lines is not None:
        files["lines"] = write_tsv(stem + "-lines.tsv", lines)
    return Figure(script, os.path.basename(stem), variables | files)


def write_samples(result, path):
    """Every sample of every mode, one line each: the tidy table for other tools."""
    names = {k for s in result.series for x in s.samples for k, v in x.counters.items()
             if isinstance(v, (int, float)) and not isinstance(v, bool)}
    names = sorted(names - NO_COUNTERS)
    lines = ["\t".join((*KEYS, "fingerprint", "placement", "repetition", "ms", *names))]
    known = {s.key: None if share is None else int(share <= result.precision) for s, share in result.rows()}
    for s in result.series:
        own = (*s.key, s.operation, s.check, known.get(s.key))
        for i, x in enumerate(s.samples):
            row = (*own, x.fingerprint, x.placement, i, x.ms, *(x.get(n) for n in names))
            lines.append("\t".join(map(cell, row)))
    write_whole(path, "\n".join(lines) + "\n")
    return path


def kernels_of(groups):
    """[(kernel, its mark)] of the kernels that have a time in any group, in the order of the file."""
    found = {}
    for s in (s for g in groups for s in g.measured()):
        found[s.kernel] = found.get(s.kernel) or s.mark()
    return sorted(found.items(), key=lambda item: item[0].index)


def names(texts):
    """A list for gnuplot's word()."""
    return " ".join(f'"{clean(t)}"' for t in texts)


def common(result, groups, subject, *notes):
    """Variables of every figure, with the small print: what failed, and what the marks mean."""
    kernels, group = kernels_of(groups), groups[0]
    missing = [f"{kernel} on {workload}" for kernel, workload, _ in result.failures(groups)]
    without = lambda k: [g.workload for g in groups if not any(s.kernel is k for s in g.series)]
    gaps = [f"{k.title} on {', '.join(own) if len(own) < 4 else f'{len(own)} of {len(groups)} workloads'}"
            for k, _ in kernels for own in [without(k)] if own]
    foot = [*([f"FAILED, not drawn: {', '.join(missing)}"] if missing else []),
            *([f"Not measured: {', '.join(gaps)}"] if gaps else []), *notes,
            *notes_of({mark for _, mark in kernels})]
    return {"heading": f"{operation_text(group.rule, group.mode)}: {subject}, {caches(group.mode)}",
            "machine": clean(result.machine()), "caution": clean(result.doubt(groups)), "count": len(kernels),
            "colours": " ".join(colour(k) for k, _ in kernels),
            "points": " ".join(str(marker(k)[0]) for k, _ in kernels),
            "notes": names(foot), "groups": len(groups)}


def quotable(group, series):
    """0 for a point that is drawn in grey."""
    return int(group.quotable(series) is not False)


def unsure(groups):
    """The note about rows that are not to be quoted, if there are any."""
    return notes_of({mark for g in groups for s in g.measured() for mark in g.mark(s)} & {UNSURE_MARK})


def dots(groups, values, place, greys):
    """Blocks for a dot plot, one per kernel: y and values(series), and with greys quotable(), for each group that it
    ran in. A group has height 1, from top to bottom, and each kernel has its own height inside."""
    kernels, blocks = kernels_of(groups), []
    for i, (kernel, mark) in enumerate(kernels):
        rows = [[kernel.title + mark]]
        for y, group in enumerate(groups):
            s = group.of(kernel.name)
            if s:
                offset = 0.76 * ((i + 0.5) / len(kernels) - 0.5)
                rows.append([float(y + offset), *values(s), *[quotable(group, s)] * greys])
        blocks.append(rows)
    lines = [[y, wrap(g.workload, 26, "\\n"), *place(g, p)]
             for y, g in enumerate(groups) for p in g.places()]
    return blocks, [lines]


def dot_figure(result, groups, stem, script, subject, values, place, greys=False, **variables):
    blocks, lines = dots(groups, values, place, greys)
    numbers = [v for b in blocks for row in b[1:] for v in row[1:4]]
    low, high = nice_range(numbers + [v for b in lines for row in b for v in row[2:]])
    width = max(len(part) for row in lines[0] for part in row[1].split("\\n"))
    key = 26 * (len(blocks) + 2) + 60  # the legend is taller than the dots of a single group
    return figure(script, stem, common(result, groups, subject, *unsure(groups) * greys) | {
        "low": low, "high": high, "label_width": width,
        "height": 150 + max(len(groups) * (16 * len(blocks) + 22), key)} | variables, blocks, lines)


def time(result, groups, stem):
    """Time per lookup, beside the times that compulsory traffic takes at the ceilings."""
    return dot_figure(result, groups, stem, "speed", "time per lookup",
                      lambda s: s.quartiles("ns_per_lookup"),
                      lambda g, p: (ceiling_ns(g, p, "copy_gbs"), ceiling_ns(g, p, "rmw_gbs")),
                      greys=True, unit="ns per lookup")


def traffic(series):
    """(first quartile, rate at the median time, third quartile)"""
    low, _, high = series.quartiles("traffic_gbs")
    return low, series.at_median("traffic_gbs"), high


def throughput(result, groups, stem):
    return dot_figure(result, groups, stem, "speed", "compulsory traffic", traffic,
                      lambda g, p: (g.median("copy_gbs", p), g.median("rmw_gbs", p)), greys=True,
                      unit="compulsory GB/s")


def memory(result, groups, stem):
    return dot_figure(result, groups, stem, "memory", "memory",
                      lambda s: (s.median("scratch_mib"), s.median("peak_mib")),
                      lambda g, p: (g.median("persistent_mib", p),),
                      caution=clean(result.cut_short()),
                      has_zero=int(any(s.median("scratch_mib") == 0 for g in groups for s in g.measured())))


def parts_of(mode):
    """The parts of a sample that are timed by themselves, in order."""
    return ("forward", "plan", *STAGES) if mode == ITERATION else STAGES


def stage_ends(sample, mode="cold"):
    """Where its parts end, as shares of its time. The last one ends the bar: 1 for a step without stages."""
    ends = [*accumulate((sample.get(f"{s}_ms") or 0.0) / sample.ms for s in parts_of(mode))]
    return [*ends, ends[-1] if any(sample.get(f"{s}_ms") for s in STAGES) else 1.0]


def stage_panel(group):
    """(rows of one panel, its title first; the end of its axis). A row is a kernel's median time, divided
    like its median repetition: y, name, the edges of the parts and of the whole step and the end of the bar in
    ns per lookup, the total as text, and whether the bar is cut."""
    rows, measured = [], sorted(group.measured(), key=lambda s: s.kernel.index)
    totals = [s.ns or 0.0 for s in measured]
    usual = [t for t in totals if t <= STAGE_CUT * quartiles(totals)[1]]
    cut = max(usual, default=1.0) or 1.0
    for y, (s, total) in enumerate(zip(measured, totals)):
        rows.append([y, s.kernel.title + group.mark(s), 0.0,
                     *(min(e * total, cut) for e in stage_ends(s.typical(), s.mode)), min(total, cut),
                     number(total), int(total > cut)])
    return [[-1, wrap(group.workload, 44, "\\n")], *rows], cut * 1.32


def stage_key(panels, mode):
    """(name, colour) of the parts of the bars; and of what is left of a sample, if something is: all of it if
    it has no stages."""
    rest = any(row[-4] > row[-5] for p in panels for row in p[1:])
    parts = (*parts_of(mode), REST if mode == ITERATION else WHOLE)
    return list(zip(parts, stage_shades(mode)))[:None if rest else -1]


def stage_shades(mode):
    """The colours of the parts, then the colour of the whole step."""
    return (*(BEFORE_COLOURS if mode == ITERATION else ()), *STAGE_COLOURS, WHOLE_COLOUR)


def legend(key, shades):
    """Variables of the legend above the panels, with names and colours; shades: all colours of the bars."""
    texts, colours = zip(*key)
    return {"names": names(texts), "keys": " ".join(colours), "shades": " ".join(shades)}


def grid(titles, labels, depth):
    """Variables of a figure in panels with these titles; depth is the largest number of bars in a panel."""
    columns = 1 if len(titles) == 1 else 2
    return {"columns": columns, "rows": -(-len(titles) // columns), "depth": depth,
            "label_width": max(map(len, labels)),
            "panel_titles": max(len(t.split("\\n")) for t in titles)}


def stages(result, groups, stem):
    mode = groups[0].mode
    panels, ends = zip(*(stage_panel(g) for g in groups))
    shades = stage_shades(mode)
    return figure("stages", stem, common(result, groups, "time by stage", *unsure(groups)) | {
        "parts": len(shades),
        "ends": " ".join(f"{e:.6g}" for e in ends),
        **grid([p[0][1] for p in panels], [row[1] for p in panels for row in p[1:]],
               max(len(p) - 1 for p in panels)),
        **legend(stage_key(panels, mode), shades)}, panels)


def roof_panel(group):
    """One panel, or None without a roof. Its three parts: the title and the terms of the roof (y, label,
    ns per lookup, whether it is the shorter one, text); the fastest kernels (y, name, end of the index
    stage, end of the other stages, end of a whole step, roof of its own samples, text, whether the bar is
    cut); the end of the axis."""
    lazy = [s for s in group.lazy() if s.median("share_roof")]
    shown = sorted(lazy, key=lambda s: s.ns)[:ROOF_KERNELS]
    roofs = [roof for s in shown for roof in (x.roof() for x in s.samples) if roof]
    if not roofs:
        return None
    terms = [quartiles(list(term))[1] for term in zip(*roofs)]
    memory = "copy" if group.rule in (FORWARD, GRADIENT, WEIGHT_GRAD) else "random rows"
    lines = [[-1, wrap(group.workload, 44, "\\n")]] + [
        [y, label, term, int(term < max(terms)), number(term)]
        for y, (label, term) in enumerate(zip((f"roof: {memory}", "roof: gather"), terms))]
    totals = [s.ns for s in shown]
    cut = max(t for t in totals if t <= STAGE_CUT * totals[0])
    rows = []
    for y, (s, total) in enumerate(zip(shown, totals)):
        share, (index, *_, stages_end, _) = s.median("share_roof"), stage_ends(s.typical())
        end = min(total, cut)
        rows.append([y + ROOF_LINES, s.kernel.title + group.mark(s), min(index * total, cut),
                     end if stages_end else 0.0, end, share * total,
                     f"{number(total)} · {100 * share:.0f} %{s.over()}", int(total > cut)])
    return lines, rows, 1.4 * max(cut, *terms, *(row[5] for row in rows))


def roofline(result, groups, stem):
    """The distance of each workload's fastest kernels from the roof; None if no sample has a roof."""
    panels = [p for p in map(roof_panel, groups) if p]
    if not panels:
        return None
    lines, data, ends = zip(*panels)
    labels = [row[1] for p in panels for row in (*p[0][1:], *p[1])]
    bars = [row for rows in data for row in rows]
    shades = (STAGE_COLOURS[0], STAGE_COLOURS[-1], *ROOF_COLOURS, WHOLE_COLOUR)
    parts = ("index", "rest of the step", "roof: its longer term", "its shorter term",
             "whole " + ("step" if groups[0].rule not in (FORWARD, GRADIENT) else "time"))
    there = (any(row[2] for row in bars), any(row[3] for row in bars), True, True,
             any(row[4] > row[3] for row in bars))
    over = [OVER_NOTE] * any(OVER_MARK in row[6] for rows in data for row in rows)
    notes = (ROOF_NOTE, *over, *unsure(groups))
    return figure("roofline", stem, common(result, groups, "distance from the roof", *notes) | {
        "ends": " ".join(f"{e:.6g}" for e in ends), "groups": len(panels),
        **grid([block[0][1] for block in lines], labels, ROOF_LINES + max(map(len, data))),
        **legend(compress(zip(parts, shades), there), shades)}, data, lines)


def ceiling_ns(group, place, key):
    """Time per lookup if all compulsory traffic ran at a ceiling: bytes divided by GB/s are ns."""
    rate, mib, lookups = group.median(key, place), group.median("compulsory_mib"), group.median("lookups")
    return mib * 2**20 / rate / lookups if rate and mib and lookups else None


def by_alpha(groups):
    """[(name, groups by rising alpha)] for each family that was run at several alphas."""
    found = {}
    for g in groups:
        if g.median("alpha") is not None:
            found.setdefault(family(g.workload), []).append(g)
    return [(name, sorted(f, key=lambda g: g.median("alpha"))) for name, f in found.items()
            if len({g.median("alpha") for g in f}) > 1]


def alpha(result, name, groups, stem):
    """Throughput against alpha. Per kernel: alpha, quartiles, quotable(); then the ceilings per place."""
    blocks, lines, alphas = [], [], [g.median("alpha") for g in groups]
    for kernel, mark in kernels_of(groups):
        rows = [(g, g.of(kernel.name)) for g in groups]
        blocks.append([[kernel.title + mark]] + [
            [g.median("alpha"), *(v and 1e3 / v for v in reversed(s.quartiles("ns_per_lookup"))),
             quotable(g, s)] for g, s in rows if s])
    for place in groups[0].places():
        limits = lambda g: (ceiling_ns(g, place, key) for key in ("copy_gbs", "rmw_gbs"))
        lines.append([[place]] + [[a, *(ns and 1e3 / ns for ns in limits(g))]
                                  for a, g in zip(alphas, groups)])
    low, high = nice_range([v for b in blocks + lines for row in b[1:] for v in row[1:4]])
    return figure("alpha", stem, common(result, groups, "throughput", *unsure(groups)) | {
        "family": name, "first": alphas[0], "last": alphas[-1],
        "low": low, "high": high, "places": len(lines)}, blocks, lines)


def by_rule(result, mode):
    """{rule: the groups that have something to draw}; rules never share a figure."""
    rules = {}
    for group in result.groups(mode):
        if group.measured():
            rules.setdefault(group.rule, []).append(group)
    if not rules:
        raise ResultError(f"{result.path}: nothing to draw, every kernel failed in mode {mode}")
    return rules


def figures(result, outdir, mode):
    """Writes the data of all figures of a mode; returns the figures."""
    os.makedirs(outdir, exist_ok=True)
    out = []
    for rule, groups in by_rule(result, mode).items():
        stem = lambda name: os.path.join(os.path.abspath(outdir), slug(f"{name}-{rule}-{mode}"))
        makers = [time, throughput, memory, *[stages] * (rule not in (FORWARD, WEIGHT_GRAD))]  # which have none
        out += [make(result, groups, stem(make.__name__)) for make in makers]
        roofs = roofline(result, groups, stem("roofline"))
        if roofs:
            out.append(roofs)
        elif mode != ITERATION:  # whose roof is the sum of two
            print(f"no roofline-{rule}-{mode}: no sample in {result.path} has a roof", file=sys.stderr)
        out += [alpha(result, name, f, stem(f"alpha-{name}")) for name, f in by_alpha(groups)]
    return out


def files(result, outdir, mode):
    """Writes samples.tsv and the data of all figures of a mode; yields the names of the files."""
    made = figures(result, outdir, mode)
    yield write_samples(result, os.path.join(outdir, "samples.tsv"))
    for drawn in made:
        yield from (os.path.relpath(drawn.variables[k]) for k in ("data", "lines") if k in drawn.variables)


def main(doc, make):
    """A program that makes files from a result; make(result, outdir, mode) yields their names."""
    parser = Arguments(doc)
    parser.add_result(outdir=True)
    add_precision(parser)
    args = parser.parse_args()
    result = load(args.result, args.precision)
    for name in make(result, args.outdir, result.mode(args.mode)):
        print(name)


if __name__ == "__main__":
    program.run(lambda: main(__doc__, files))
