# SPDX-License-Identifier: MIT
"""A part of a page for each workload: what its batches were like, and every kernel's time."""
from collections import namedtuple

from paper import short
from style import number
from table import heading, notes, tables_of
from webpage.outcomes import groups_of, is_sweep, percent

BINS = ("1", "2", *(f"{2**(b - 1) + 1} to {2**b}" for b in range(2, 16)), "more than 32768")  # lookups of a row

WorkloadPart = namedtuple("WorkloadPart", "name summary specs facts runs blocks")
Block = namedtuple("Block", "title facts table notes legend")


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
                                           f"({percent(of('distinct'), lookups)} % of the lookups)"),
             ("hottest row", f"{number(of('hottest_share') and 100 * of('hottest_share'), 2)} % of the lookups"),
             ("bags", short(bags)),
             ("lookups per bag", f"{number(lookups / bags if lookups and bags else None)} on average, "
                                 f"{short(of('longest_bag'))} in the longest"),
             ("empty bags", short(of("empty_bags"))),
             ("twice in a bag", f"{percent(of('in_bag_duplicates'))} % of the lookups"),
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
    for name, own in found.items():
        groups = [g for _, gs in own.values() for g in gs]
        first = next((g for g in groups if g.measured()), groups[0])
        specs = dict.fromkeys(str(s.result.context.get(f"emb_workload_{name}", "")) for s, _ in own.values())
        best, lookups = first.best(), first.median("lookups")
        time = f"{best.kernel.title} {number(best.ns)} ns, {first.mode}" if best else "no time"
        yield WorkloadPart(
            name, f"{short(lookups)} lookups, {percent(first.median('distinct'), lookups)} % distinct; {time}",
            [s for s in specs if s], workload_facts(first), runs(first),
            [b for s, gs in own.values() for b in blocks(s, gs)])
