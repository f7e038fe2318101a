# SPDX-License-Identifier: MIT
"""What came out, for the tables and the explorer of a page: who wins each group of kernels and by how much, the
same on several machines, and every measured point with its coordinates.

Only the lazy operation wins. Rungs of the ladder and builds by several compilers are variants of one kernel, and
never compete in the explorer.
"""
from dataclasses import replace

import machines
from drawings.choose import type_text
from drawings.maps import lead_text
from paper import short
from results import LADDER, spread
from style import colour, number
from webpage.inline_svg import variable

AXES = ("rows", "dim", "alpha", "lookups")  # where a point lies; all of these, or it is no point
SWEEP = 30  # workloads of a file; more of them have no part each
LEAD = "Time of the second kernel over that of the fastest. ≈: the samples cannot tell the two apart."


def colours(machines_):
    """{kernel: its colour on the page}: that of the first file with the kernel."""
    found = {}
    for source in (s for m in machines_ for s in m.sources):
        for name, kernel in source.result.kernels.items():
            found.setdefault(name, variable(colour(kernel)))
    return found


def groups_of(source):
    """All groups of a file, those of the figures' mode first."""
    modes = sorted(source.modes, key=lambda mode: mode != source.mode)
    return [g for mode in modes for g in source.result.groups(mode)]


# --- who wins
def share_of(part, whole):
    return f"{100 * part / whole:.1f}" if part is not None and whole else "-"


def row(source, group):
    """The cells of a line of the headline table, (text, what it sorts by)."""
    best, lazy = group.best(), sorted(group.lazy(), key=lambda s: s.ns)
    lookups, distinct = group.median("lookups"), group.median("distinct")
    of = lambda key: best.median(key) if best else None
    number_cell = lambda value, scale=1: (number(value and value * scale), value)
    count_cell = lambda value: (short(value), value)
    lead = lazy[1].ns / lazy[0].ns if len(lazy) > 1 else None
    roof = of("share_roof")
    return [(group.workload, None), (group.rule, None), (group.mode, None),
            (best.kernel.title if best else "-", None), number_cell(best and best.ns),
            number_cell(best and spread(best.quartiles("ns_per_lookup")), 100),
            (lazy[1].kernel.title if len(lazy) > 1 else "-", None), (lead_text(group) if lead else "-", lead),
            (number(roof and 100 * roof) + (best.over() if best else ""), roof),
            number_cell(best and best.at_median("traffic_gbs")), number_cell(of("scratch_mib")),
            count_cell(group.median("threads")), count_cell(lookups),
            (share_of(distinct, lookups), distinct and lookups and distinct / lookups),
            (source.name, None), (source.machine, None)]


HEADS = (("workload", ""), ("rule", ""), ("mode", "State of the caches, or an iteration"), ("fastest", ""),
         ("ns/lookup", "Of the fastest kernel, median of the repetitions"),
         ("±%", "Half the quartile range of the fastest"), ("second", ""), ("lead", LEAD),
         ("% roof", "What the traffic or the gathers take at their ceilings, of the time taken"),
         ("GB/s", "Compulsory traffic, at the median time"), ("scratch MiB", "Of the fastest"), ("threads", ""),
         ("lookups", "In a batch"), ("distinct %", "Distinct rows, of the lookups"), ("file", ""), ("machine", ""))
TEXTS = {i for i, (head, _) in enumerate(HEADS) if head in
         ("workload", "rule", "mode", "fastest", "second", "file", "machine")}


def headline(machines_):
    """(heads, columns of text, rows) of the table that sorts; one machine needs no column."""
    rows = [row(s, g) for m in machines_ for s in m.sources for g in groups_of(s)]
    count = len(HEADS) - (len(machines_) == 1)
    return HEADS[:count], TEXTS, [r[:count] for r in rows]


# --- machines side by side
def side_by_side(machines_, kernel, below):
    """({name: cells of its first file}, heads, rows) of workloads that several machines have; None otherwise."""
    columns = {m.name: machines.cells(m.sources[0].result, kernel, below) for m in machines_
               if "cold" in m.sources[0].modes}
    shared = [w for w in machines.workloads(columns) if sum(w in own for own in columns.values()) > 1]
    if len(columns) < 2 or not shared:
        return None
    columns = {name: {w: c for w, c in own.items() if w in shared} for name, own in columns.items()}
    heads = ["workload", *(h for name in columns for h in (f"{name}: ns/lookup", f"over {below}", "of the roof"))]
    return columns, heads, [[w, *(t for own in columns.values() for t in machines.texts(own.get(w), kernel))]
                            for w in shared]


# --- the explorer
def contestants(group):
    """The group without kernels that are variants of another one."""
    own = [s for s in group.series if s.kernel.family != LADDER and "@" not in s.kernel.name]
    return replace(group, series=own)


def point(source, group):
    """A measured point, or None if a coordinate is missing or nobody wins."""
    group = contestants(group)
    at = {axis: group.median(axis) for axis in AXES}
    best = group.best()
    if None in at.values() or not best:
        return None
    bags, fastest = group.median("bags"), group.fastest()
    kernels = [{"name": s.kernel.name, "title": s.kernel.title + s.mark(), "best": s is best, "tied": s in fastest,
                "ns": [float(f"{v:.4g}") for v in s.quartiles("ns_per_lookup")]}
               for s in sorted(group.measured(), key=lambda s: s.ns or 0) if s.ns]
    return at | {"name": group.workload, "rule": group.rule, "type": type_text(group.types),
                 "threads": group.median("threads") or 0, "file": source.name, "machine": source.machine,
                 "tables": group.median("tables"), "bag": bags and float(f"{at['lookups'] / bags:.3g}"),
                 "lead": lead_text(group), "kernels": kernels}


def points(machines_):
    """(all points of the explorer, number of groups that have no place in it), of cold caches."""
    cold = [s for m in machines_ for s in m.sources if "cold" in s.modes]
    found = [point(s, g) for s in cold for g in s.result.groups("cold")]
    return [p for p in found if p], found.count(None)


def is_sweep(source):
    """Whether a file has too many workloads for a part of each."""
    return len({s.workload for s in source.result.series}) > SWEEP
