#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Merges several results of one machine into one, so that one table and one figure can show all rows: for
example the rows of a peer (torch_peer.py) beside the rows of the kernels.

It refuses results that cannot be compared: of another machine, or with other work under the name of a workload.
"""
import itertools
import json

import program
from identity import same_machine, same_work
from program import Arguments, ResultError, read_text, write_whole
from results import add_not_run, load, read_not_run


def read(path):
    return json.loads(read_text(path))


def add_cut_short(context, other):
    """Adds to a context what cut `other` short."""
    cut = dict.fromkeys(c["emb_cut_short"] for c in (context, other) if c.get("emb_cut_short"))
    context |= {"emb_cut_short": "; ".join(cut)} if cut else {}


def add(into, data):
    """Adds the rows of a result, and what its context says about kernels and workloads."""
    context = into["context"]
    add_cut_short(context, data["context"])
    add_not_run(context, read_not_run(data["context"]))
    for key, value in data["context"].items():
        if not key.startswith("emb_not_run_"):
            context.setdefault(key, value)
    into["benchmarks"] += data["benchmarks"]


def merged(paths):
    results = [load(p) for p in paths]
    for first, other in itertools.combinations(results, 2):
        same_machine(first, other)
        same_work(first, other)
        twice = {s.key for s in first.series} & {s.key for s in other.series}
        if twice:
            raise ResultError(f"{other.path}: {' '.join(min(twice))} is in {first.path} too")
    out = read(paths[0])
    for path in paths[1:]:
        add(out, read(path))
    return out


def main():
    parser = Arguments(__doc__)
    parser.add_argument("results", metavar="RESULT.json", nargs="+")
    parser.add_argument("--out", required=True, metavar="MERGED.json")
    args = parser.parse_args()
    write_whole(args.out, json.dumps(merged(args.results), indent=1) + "\n")
    print(args.out)


if __name__ == "__main__":
    program.run(main)
