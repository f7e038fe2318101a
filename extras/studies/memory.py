#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What memory costs one thread on this machine: runs extras/studies/memory/memory.c, shows the latency of each span
and what prefetches of many rows at once are worth, and writes OUTDIR/memory.json.

Exit status: 0 fine, 1 usage or environment.
"""
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from merge import read
from program import Arguments
from style import markdown_table, number, text_table
from tune import measured, read_lines

SPAN_HEADS = ("span", "cold, ns a line", "warm, ns a line")
WAY_HEADS = ("the rows have had", "that took, ns a row", "reading them then, ns a row")


def result(lines):
    """The usual schema, from the lines of the program; what was measured is in the place of a workload."""
    (context, samples), rows = read_lines(lines), []
    for x in samples:
        name = f"{x['part']}/{x.get('span', x.get('way'))}"
        rows.append({"name": name, "run_name": name, "run_type": "iteration", "iterations": 1,
                     "real_time": x.get("cold", x.get("read")), "time_unit": "ns", "label": ""} | x)
    return {"context": context, "benchmarks": rows}


def medians(data, part, key, values):
    """{value of key: (medians of values)}, in the order of measurement"""
    found = {}
    for row in data["benchmarks"]:
        if row["part"] == part:
            found.setdefault(row[key], []).append([row[v] for v in values])
    return {k: tuple(map(statistics.median, zip(*samples))) for k, samples in found.items()}


def size(bytes_):
    return next(f"{bytes_ / unit:g} {name}" for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
                if bytes_ >= unit)


def findings(data):
    """Two lines: which span the caches hold for the most part, and the share of prefetches that did nothing."""
    latency = medians(data, "latency", "span", ("cold", "warm"))
    held = [span for span, (cold, warm) in latency.items() if 2 * warm < cold]
    ways = medians(data, "prefetches", "way", ("before", "read"))
    slow, fast, read = (ways[way][1] for way in ("nothing", "loads", "prefetches"))
    said = data["context"].get("emb_last_level_cache")
    yield (f"Warm reads take less than half of cold ones up to {size(max(held, default=0)) if held else 'no span'}"
           + (f"; the last-level cache is said to have {said}." if said else "."))
    yield (f"Of prefetches for a block of rows at once, {100 * min(max((read - fast) / (slow - fast), 0), 1):.0f} % "
           "did nothing, by the time of the reads after them.")


def tables(data):
    """(heads, rows) of both parts"""
    text = lambda ns: number(ns) if ns >= 1 else "-"
    rows = lambda found, name: [(name(k), *map(text, values)) for k, values in found.items()]
    yield SPAN_HEADS, rows(medians(data, "latency", "span", ("cold", "warm")), size)
    yield WAY_HEADS, rows(medians(data, "prefetches", "way", ("before", "read")), str)


def page(path):
    """The lines of a section."""
    data = read(path)
    latency, ways = (list(markdown_table(heads, rows)) for heads, rows in tables(data))
    return [*findings(data), "", *latency, "", *ways]


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--memory", default="build/extras/studies/memory/memory", help="the program")
    parser.add_argument("--mib", default="4096", help="of the largest span")
    args = parser.parse_args()
    data = measured([args.memory, args.mib], result, os.path.join(args.outdir, "memory.json"))
    for heads, rows in tables(data):
        print()
        print("\n".join(text_table([heads, *rows])))
    print()
    print("\n".join(findings(data)))
    return 0


if __name__ == "__main__":
    program.run(main)
