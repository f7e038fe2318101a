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

HEADS = ("workload", "rule", "mode", "fastest", "ns/lookup", "±%", "second", "lead", "% roof", "GB/s", "scratch MiB",
         "threads", "lookups", "distinct %", "file", "machine")
POINT_HEADS = ("distance", "workload", "rule", "types", "threads", "rows", "floats", "alpha", "lookups", "per bag",
               "tables", "fastest", "ns/lookup", "lead", "file", "machine")
TEXTS = ("workload", "rule", "mode", "fastest", "second", "types", "file", "machine")  # heads of columns of text


def texts_of(heads):
    return [i for i, head in enumerate(heads) if head in TEXTS]


def colours(machines_):
    """{kernel: its colour on the page}; the first file with the kernel decides."""
    found = {}
    for source in (s for m in machines_ for s in m.sources):
        for name, kernel in source.result.kernels.items():
            found.setdefault(name, colour(kernel))
    return found


def groups_of(source):
    """All groups of a file, the groups of the figures' mode first."""
    modes = sorted(source.modes, key=lambda mode: mode != source.mode)
    return [g for mode in modes for g in source.result.groups(mode)]


# --- who wins
def percent(part, whole=1):
    return f"{100 * part / whole:.1f}" if part is not None and whole else "-"


def row(source, group):
    """The cells of a line of the headline table."""
    best, second = [*sorted(group.lazy(), key=lambda s: s.ns), None, None][:2]
    of = lambda key: best.median(key) if best else None
    return (group.workload, group.rule, group.mode, best.kernel.title if best else "-", number(best and best.ns),
            percent(spread(best.quartiles("ns_per_lookup")) if best else None),
            second.kernel.title if second else "-", lead_text(group),
            percent(of("share_roof")) + (best.over() if best else ""), number(best and best.at_median("traffic_gbs")),
            number(of("scratch_mib")), short(group.median("threads")), short(group.median("lookups")),
            percent(group.median("distinct"), group.median("lookups")), source.name, source.machine)


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
def point(source, group):
    """The cells of a measured point, or None if a coordinate is missing or no kernel wins. A script fills in the
    distance."""
    # Variants of another kernel do not compete.
    own = [s for s in group.series if s.kernel.family != LADDER and "@" not in s.kernel.name]
    group = replace(group, series=own)
    rows, dim, alpha, lookups, bags = map(group.median, ("rows", "dim", "alpha", "lookups", "bags"))
    best = group.best()
    if None in (rows, dim, alpha, lookups) or not best:
        return None
    return ("-", group.workload, group.rule, type_text(group.types), f"{group.median('threads') or 0:g}", short(rows),
            f"{dim:g}", f"{alpha:g}", short(lookups), short(bags and float(f"{lookups / bags:.3g}")),
            short(group.median("tables")), best.kernel.title, number(best.ns), lead_text(group), source.name,
            source.machine)


def points(machines_):
    """(all points of the explorer, number of groups that have no place in it), of cold caches."""
    cold = [s for m in machines_ for s in m.sources if "cold" in s.modes]
    found = [point(s, g) for s in cold for g in s.result.groups("cold")]
    return [p for p in found if p], found.count(None)
