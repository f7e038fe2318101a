# SPDX-License-Identifier: MIT
"""What came out, for the tables and the explorer of a page: who wins each group of kernels and by how much, the
same on several machines, and every measured point with its coordinates.

Only the lazy operation wins. Rungs of the ladder and builds by several compilers are variants of one kernel, and
never compete in the explorer.
"""
from collections import namedtuple
from dataclasses import replace

import machines
from drawings.choose import type_text
from drawings.maps import lead_text
from identity import of_gpu
from paper import short
from results import LADDER, spread
from style import colour, number

MOST = 8  # columns of a table; the others are shown on demand
HEADS = ("machine", "workload", "rule", "mode", "fastest", "ns/lookup", "lead", "% roof", "second", "±%", "GB/s",
         "scratch MiB", "threads", "lookups", "distinct %", "file")
POINT_HEADS = ("machine", "distance", "rows", "floats", "alpha", "lookups", "fastest", "ns/lookup", "lead", "workload",
               "rule", "types", "threads", "per bag", "tables", "file")
TEXTS = ("machine", "workload", "rule", "mode", "fastest", "second", "types", "file")  # heads of columns of text
PHONE = ("workload", "fastest", "distance", "ns/lookup", "lead")  # of HEADS, what a narrow screen has room for

Row = namedtuple("Row", "cells caution")


class Count(str):
    """A number in short, which keeps its exact value for scripts."""

    def __new__(cls, value):
        made = super().__new__(cls, short(value))
        made.value = value
        return made


class Table:
    """A table of the page: its columns (head, classes) and rows. A phone shows fewer columns, and the others in small
    print below the name of a row."""

    def __init__(self, name, heads, rows):
        classes = lambda i, h: (("n", h not in TEXTS), ("more", i >= MOST), ("wide", h not in PHONE))
        self.id, self.rows, self.whole = name, rows, len(heads) <= MOST
        self.columns = [(h, " ".join(c for c, there in classes(i, h) if there)) for i, h in enumerate(heads)]
        self.name = next(i for i, h in enumerate(heads) if h in ("workload", "fastest"))

    def small(self, row):
        return " · ".join(f"{h} {cell}".replace(" ", "\u00a0") if "n" in classes.split() else cell for (h, classes), cell
                          in zip(self.columns, row.cells) if "wide" in classes and "more" not in classes and cell != "-")


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
def caution(source, group):
    """Why the row of a group must not be quoted; '' if it may be."""
    best = group.best()
    unsure = best is not None and group.quotable(best) is False
    return "; ".join(filter(None, (source.result.cut_short(), "not to be quoted" * unsure)))


def percent(part, whole=1):
    return f"{100 * part / whole:.1f}" if part is not None and whole else "-"


def threads_of(group):
    """The threads of the CPU; None if the fastest kernel is one of a GPU."""
    best = group.best()
    return None if best and best.kernel.place == "device" else group.median("threads", "host")


def row(source, group):
    """The cells of a line of the headline table."""
    best, second = [*sorted(group.lazy(), key=lambda s: s.ns), None, None][:2]
    of = lambda key: best.median(key) if best else None
    return Row((source.machine, group.workload, group.rule, group.mode, best.kernel.title if best else "-",
                number(best and best.ns), lead_text(group), percent(of("share_roof")) + (best.over() if best else ""),
                second.kernel.title if second else "-", percent(spread(best.quartiles("ns_per_lookup")) if best else None),
                number(best and best.at_median("traffic_gbs")), number(of("scratch_mib")), Count(threads_of(group)),
                Count(group.median("lookups")), percent(group.median("distinct"), group.median("lookups")), source.name),
               caution(source, group))


# --- machines side by side
def side_by_side(machines_, kernel, below):
    """({name: cells of its first file}, table) of workloads that several machines have; None otherwise."""
    firsts = {m.name: m.sources[0] for m in machines_ if "cold" in m.sources[0].modes}
    columns = {name: machines.cells(s.result, kernel, below) for name, s in firsts.items()}
    shared = [w for w in machines.workloads(columns) if sum(w in own for own in columns.values()) > 1]
    if len(columns) < 2 or not shared:
        return None
    columns = {name: {w: c for w, c in own.items() if w in shared} for name, own in columns.items()}
    cautions = {(name, g.workload): caution(s, g) for name, s in firsts.items() for g in reversed(s.result.groups("cold"))}
    results = [firsts[name].result for name in columns]
    references = [machines.kernel_on("device" if of_gpu(r.context) else "host", below) for r in results]
    heads = ("machine", "workload", "ns/lookup", f"over {' or '.join(dict.fromkeys(references))}",
             f"of the {machines.limit_of(results)}")
    return columns, Table("machines-beside", heads, [Row((name, w, *machines.texts(own[w], kernel)), cautions[name, w])
                                                     for w in shared for name, own in columns.items() if w in own])


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
    per_bag = bags and float(f"{lookups / bags:.3g}")
    return Row((source.machine, "-", Count(rows), f"{dim:g}", f"{alpha:g}", Count(lookups), best.kernel.title,
                number(best.ns), lead_text(group), group.workload, group.rule, type_text(group.types),
                short(threads_of(group)), *map(Count, (per_bag, group.median("tables"))), source.name),
               caution(source, group))


def points(machines_):
    """(all points of the explorer, number of groups that have no place in it), of cold caches."""
    cold = [s for m in machines_ for s in m.sources if "cold" in s.modes]
    found = [point(s, g) for s in cold for g in s.result.groups("cold")]
    return [p for p in found if p], found.count(None)
