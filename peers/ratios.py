#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kernels and peers of a result side by side: ns per lookup, and how many times the time of the
suite's fused kernel; below, where a peer is faster than one of the kernels.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reports"))
from results import DENSE_NOTE, Arguments, ResultError, load
from style import number

OURS = ("cpu", "cuda")  # families; any other is a peer


def is_peer(series):
    return series.kernel.family not in OURS


def time_of(series):
    return series.median("ns_per_lookup")


def base_of(group, name):
    return next((s for s in group.measured() if s.kernel.name == name), None)


def cell(series, base):
    if series is None:
        return "-"
    if series.failed:
        return "FAILED"
    times = f" ({number(time_of(series) / time_of(base))}x)" if base and series is not base else ""
    return number(time_of(series)) + series.mark() + times


def table(result, mode, base):
    groups = result.groups(mode)
    names = [k for k in result.kernels
             if any(s.kernel.name == k for g in groups for s in g.series)]
    names.sort(key=lambda k: (result.kernels[k].family not in OURS, k != base))
    rows = [("workload", "rule", *names)]
    for g in groups:
        by_name = {s.kernel.name: s for s in g.series}
        rows.append((g.workload, g.rule, *(cell(by_name.get(n), base_of(g, base)) for n in names)))
    return rows


def faster(result, mode):
    """Lines: a peer that beats a kernel of the suite that does the same operation."""
    out = []
    for g in result.groups(mode):
        for peer in filter(is_peer, g.measured()):
            beaten = [s for s in g.measured() if not is_peer(s) and s.operation == peer.operation
                      and time_of(peer) < time_of(s)]
            if beaten:
                out.append(f"{peer.kernel.name} is faster on {g.workload}, {g.rule}: " + ", ".join(
                    f"{number(time_of(s) / time_of(peer))}x than {s.kernel.name}" for s in beaten))
    return out or ["No peer is faster than any of these kernels."]


def notes(result):
    maths = [f"{k[len('emb_peer_'):]}: {v}" for k, v in result.context.items()
             if k.startswith("emb_peer_")]
    return maths + [f"PyTorch {result.context.get('emb_torch')}, FBGEMM "
                    f"{result.context.get('emb_fbgemm')}, {result.context.get('emb_threads')} threads; "
                    "median, backward and optimizer; in brackets the time over that of the first."]


def main():
    parser = Arguments(prog="ratios.py", description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("--mode", default="cold", help="cold (default) or warm")
    parser.add_argument("--base", default="cpu_fused", help="kernel that the others are held against")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    result = load(args.result)
    rows = table(result, args.mode, args.base)
    if args.markdown:
        rows.insert(1, ("---", "---", *["---:"] * (len(rows[0]) - 2)))
        print("\n".join("| " + " | ".join(r) + " |" for r in rows))
    else:
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            print("  ".join(c.ljust(w) if i < 2 else c.rjust(w)
                            for i, (c, w) in enumerate(zip(row, widths))).rstrip())
    print()
    lines = faster(result, args.mode) + notes(result)
    if any(s.mark() for s in result.series):
        lines.append(DENSE_NOTE)
    print("\n".join(f"- {x}" if args.markdown else x for x in lines))


if __name__ == "__main__":
    try:
        main()
    except ResultError as e:
        sys.exit(f"ratios.py: {e}")
