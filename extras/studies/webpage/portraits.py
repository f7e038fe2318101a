# SPDX-License-Identifier: MIT
"""A part of a page for each kernel and for each workload, from what result files say about them."""
import re
from collections import namedtuple
from pathlib import Path

from export import parts_of, stage_ends, stage_shades
from paper import short
from recorded import ROOT
from results import quartiles
from style import number
from table import heading, notes, tables_of
from webpage.inline_svg import variable
from webpage.outcomes import groups_of, is_sweep, share_of
from webpage.sources import anchors

BINS = ("1", "2", *(f"{2**(b - 1) + 1} to {2**b}" for b in range(2, 16)), "more than 32768")  # lookups of a row

KernelPart = namedtuple("KernelPart", "id name label idea family place traits variants sentences stages rows")
WorkloadPart = namedtuple("WorkloadPart", "id name summary specs facts runs best blocks")
Block = namedtuple("Block", "title facts table notes legend")


# --- kernels
def trait_meanings():
    """{trait: its meaning}, from the table of docs/kernels.md."""
    try:
        text = Path(ROOT, "docs", "kernels.md").read_text(encoding="utf-8")
    except OSError:
        return {}
    table = text.partition("| trait | meaning |")[2].partition("\n\n")[0]
    return {name: re.sub(r"`", "", meaning) for name, meaning in re.findall(r"(?m)^\| `(\w+)` \| (.*) \|$", table)}


def idea(source, name):
    """The sentence about a kernel in a context: the field after its label."""
    text = str(source.result.context.get(f"emb_kernel_{name}", ""))
    return text.split("|", 4)[4].strip() if text.count("|") >= 4 else ""


def span(values, digits=3):
    """'20.0 to 23.5', or one number if all are the same to these digits; '' without a value."""
    values = [v for v in values if v is not None]
    ends = list(dict.fromkeys(number(v, digits) for v in (min(values), max(values)))) if values else []
    return " to ".join(ends)


def sentences(source, series):
    """What the cold series of a kernel in a file say, each with its group: lines (subject, text)."""
    own = [(g, s) for g, s in series if s.ns]
    every = [s for _, s in own]
    won = sum(s in g.fastest() for g, s in own)
    slower = [s.ns / g.best().ns for g, s in own if g.best()]
    median = lambda key: [s.median(key) for s in every]
    share = [100 * v for v in median("share_roof") if v is not None]
    persistent = [100 * s.median("scratch_mib") / p for s in every
                  if (p := s.median("persistent_mib")) and s.median("scratch_mib") is not None]
    behind = f", {span(slower)} times the fastest" if max(slower, default=1) > 1.005 else ""
    lines = [("speed", f"{span(s.ns for s in every)} ns per lookup; the fastest or not told from it on {won} of "
                       f"{len(own)} workloads and rules{behind}")]
    if persistent:
        each = span(median("scratch_per_lookup"))
        lines.append(("memory", f"scratch {span(median('scratch_mib'))} MiB, {span(persistent, 2)} % of weights "
                                "and states" + f"; {each} bytes per lookup" * bool(each)))
    if any(median("compulsory_mib")):
        lines.append(("bytes", f"{span(median('compulsory_mib'))} MiB are compulsory; moved at "
                               f"{span(s.at_median('traffic_gbs') for s in every)} GB/s" +
                      (f", {span(share, 2)} % of the roof" if share else "")))
    return [*lines, ("measured in", f"{source.machine}, {source.name}")] if own else []


def stage_shares(sample, mode):
    """[(name, share, colour)] of the timed parts of a sample."""
    *ends, _ = stage_ends(sample, mode)
    return [(name, end - begin, variable(shade)) for name, begin, end, shade in
            zip(parts_of(mode), [0, *ends], ends, stage_shades(mode)) if end > begin]


def kernel_rows(series):
    """A line per workload and rule: texts, and the shares of its stages."""
    for group, s in series:
        best = group.best()
        yield ((s.workload, s.rule, number(s.ns), number(s.ns / best.ns) if best and s.ns else "-",
                number(s.median("scratch_mib")), number(s.median("compulsory_mib")),
                number(s.at_median("traffic_gbs")) if s.ns else "-", share_of(s.median("share_roof"), 1)),
               stage_shares(s.typical(), s.mode))


KERNEL_HEADS = ("workload", "rule", "ns/lookup", "× fastest", "scratch MiB", "compulsory MiB", "GB/s", "% roof")


def kernel_part(anchor, name, source, variants, meanings):
    """The part of a kernel; source: the first file that measured it."""
    kernel, mode = source.result.kernels[name], source.mode
    series = [(g, s) for g in source.result.groups(mode) if (s := g.of(name))]
    shares = {}
    for _, s in series:
        for stage, share, shade in stage_shares(s.typical(), mode):
            shares.setdefault((stage, shade), []).append(share)
    stages = [(stage, quartiles(own + [0.0] * (len(series) - len(own)))[1], shade)
              for (stage, shade), own in shares.items()]
    traits = [(t, meanings.get(t, "")) for t in sorted(kernel.traits) if t != "none"]
    return KernelPart(anchor, name, kernel.label, idea(source, name), kernel.family, kernel.place,
                      traits, variants, sentences(source, series), stages, list(kernel_rows(series)))


def kernel_parts(machines):
    """The parts of all kernels with a time, in the order of the files; a variant KERNEL@BUILD has none."""
    sources, variants = {}, {}
    for source in (s for m in machines for s in m.sources):
        for name in dict.fromkeys(s.kernel.name for s in source.result.series if not s.failed):
            base, _, build = name.partition("@")
            if build:
                variants.setdefault(base, {})[build] = None
            elif any(g.of(name) for g in source.result.groups(source.mode)):
                sources.setdefault(name, source)
    meanings, order = trait_meanings(), [s.id for m in machines for s in m.sources]
    place = lambda name: (order.index(sources[name].id), sources[name].result.kernels[name].index)
    return [kernel_part(anchor, name, sources[name], list(variants.get(name, ())), meanings)
            for name, anchor in anchors("kernel", sorted(sources, key=place)).items()]


# --- workloads
def runs(group):
    """[(lookups of a row, % of all lookups, the first in short)] of the bins up to the last one with lookups."""
    shares = [group.median(f"run_lookups_{b}") for b in range(len(BINS))]
    if None in shares or not any(shares):
        return []
    last = max(b for b, share in enumerate(shares) if share)
    most = lambda b: "more" if b == len(BINS) - 1 else f"{2**b}" if b < 10 else f"{2**(b - 10)}k"
    return [(BINS[b], 100 * share, most(b)) for b, share in enumerate(shares[:last + 1])]


def workload_facts(group):
    """[(what, its value)]: the statistics that the ids of the batches really had."""
    of = group.median
    lookups, bags = of("lookups"), of("bags")
    every = (("lookups", short(lookups)), ("distinct rows", f"{short(of('distinct'))} "
                                           f"({share_of(of('distinct'), lookups)} % of the lookups)"),
             ("hottest row", f"{number(of('hottest_share') and 100 * of('hottest_share'), 2)} % of the lookups"),
             ("bags", short(bags)),
             ("lookups per bag", f"{number(lookups / bags if lookups and bags else None)} on average, "
                                 f"{short(of('longest_bag'))} in the longest"),
             ("empty bags", short(of("empty_bags"))),
             ("twice in a bag", f"{share_of(of('in_bag_duplicates'), 1)} % of the lookups"),
             ("tables", short(of("tables"))), ("rows of all tables", short(of("rows"))),
             ("floats per row", short(of("dim"))), ("alpha", number(of("alpha"))),
             ("weights and states", f"{number(of('persistent_mib'))} MiB"),
             ("compulsory bytes", f"{number(of('compulsory_mib'))} MiB"))
    return [(what, value) for what, value in every if not value.startswith("-")]


def blocks(source, groups):
    """The tables of a workload in a file, one or more per mode."""
    for mode in dict.fromkeys(g.mode for g in groups):
        own = [g for g in groups if g.mode == mode]
        tables, legend = tables_of(source.result, own, False)
        for i, table in enumerate(tables):
            title = f"{source.machine} · {source.name} · {table.group.rule} · {mode}"
            more = notes(source.result, own) if i == len(tables) - 1 else []
            yield Block(title, heading(table.group)[2], table, more, " ".join(legend))


def workload_parts(machines):
    """The parts of all workloads but those of sweeps, in the order of the files."""
    found = {}
    for source in (s for m in machines for s in m.sources if not is_sweep(s)):
        for group in groups_of(source):
            found.setdefault(group.workload, {}).setdefault(source.id, (source, []))[1].append(group)
    parts, ids = [], anchors("workload", found)
    for name, own in found.items():
        groups = [g for _, gs in own.values() for g in gs]
        first = next((g for g in groups if g.measured()), groups[0])
        specs = list(dict.fromkeys(str(s.result.context.get(f"emb_workload_{name}", "")) for s, _ in own.values()))
        best, lookups = first.best(), first.median("lookups")
        parts.append(WorkloadPart(
            ids[name], name, f"{short(lookups)} lookups, {share_of(first.median('distinct'), lookups)} % distinct",
            [s for s in specs if s], workload_facts(first), runs(first),
            f"{best.kernel.title} {number(best.ns)} ns, {first.mode}" if best else "no time",
            [b for s, gs in own.values() for b in blocks(s, gs)]))
    return parts
