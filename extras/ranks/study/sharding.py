#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What an iteration costs on several ranks, by number of ranks and sharding: lookup, update and the exchanges of
ids, outputs and gradients, and the bytes that ranks send.

The report prints a table for each workload and writes OUTDIR/sharding.md and a figure; --bench measures the
result first, with mpirun. Ranks share the CPUs of this machine; with more ranks than CPUs times show no speed-up, and
are marked.
"""
import itertools
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "reports"))
import program
from export import common, figure, grid, legend as key_of
from parts import CORES, Part, add_arguments, publish, study
from program import Arguments, ResultError
from style import BEFORE_COLOURS, STAGE_COLOURS, WHOLE_COLOUR, markdown_table, number, wrap

LAUNCH = os.path.join(HERE, "..", "launch.py")
WORKLOADS = {
    "tables": "tables 16\n    rows 100000\n    dim 64\n    batch 2048\n    length fixed 8",
    "one-table": "rows 2000000\n    dim 64\n    batch 16384\n    length uniform 1 15"}
# The parts of an iteration in their order: its name, counters in ms.
PARTS = (("ids", ("exchange_ids_ms",)), ("lookup", ("forward_ms",)), ("outputs", ("exchange_output_ms",)),
         ("gradients", ("exchange_gradient_ms",)),
         ("update", ("plan_ms", "index_ms", "zero_ms", "reduce_ms", "update_ms")))
SENT = ("ids", "output", "gradient")


# --- what is run
def workload(name, keys, cut, ranks):
    return (f"workload {name}.{cut}.x{ranks}\n    {keys}\n    ids zipf\n    alpha 1.05\n    rule adagrad\n")


def parts(args):
    """One part for each number of ranks and sharding: a run of mpirun."""
    out = []
    for ranks in args.ranks.split():
        if not re.fullmatch(r"[1-9]\d{0,3}", ranks):
            raise ResultError(f"RANKS: '{ranks}' is no number from 1 to 9999")
        threads = str(max(1, CORES // int(ranks)))
        for cut in args.sharding.split():
            given = {"modes": "iteration", "place": "host", "reps": args.reps, "ring": "2", "seed": args.seed,
                     "threads": threads, "filter": f"/{args.kernel}/", "sharding": cut}
            spec = "\n".join(workload(n, keys, cut, ranks) for n, keys in WORKLOADS.items())
            out.append(Part(f"{cut}-{ranks}", spec, tuple((k, v) for k, v in given.items() if v),
                            (sys.executable, LAUNCH, "-np", ranks)))
    return out


# --- what came out
def points(result, kernel):
    """{workload: [(sharding, ranks, its series)]} in the order of the file."""
    found = {}
    for group in result.groups("iteration"):
        own = group.of(kernel)
        name = re.fullmatch(r"(.+)\.([a-z-]+)\.x(\d+)", group.workload)
        if own and own.ns and name:
            found.setdefault(name[1], []).append((name[2], int(name[3]), own))
    if not found:
        raise ResultError(f"{result.path}: no iteration of {kernel} on ranks")
    return found


def ms(series, counters):
    return sum(series.median(c) or 0.0 for c in counters)


def iteration(series):
    return series.ns * series.median("lookups") / 1e6


def label(cut, ranks):
    return f"{cut}, {ranks} rank{'s' * (ranks > 1)}" + " *" * (ranks > CORES)


def table(own):
    one = {cut: s.ns for cut, ranks, s in own if ranks == 1}
    rows = []
    for cut, ranks, s in own:
        rows.append((label(cut, ranks), number(iteration(s)),
                     *(number(ms(s, counters)) for _, counters in PARTS),
                     *(number(s.median(f"exchange_{what}_sent_mib")) for what in SENT),
                     number(one[cut] / s.ns) + "x" if cut in one else "-"))
    heads = ("sharding", "iteration", *(name for name, _ in PARTS), *(f"{what}, MiB" for what in SENT),
             "speed beside 1 rank")
    return markdown_table(heads, rows, left=(0,))


def legend(result):
    return [f"- median times in ms, cold caches; {result.machine()}. ids, outputs and gradients are the exchanges. A part is that "
            "of the rank that takes longest, so the parts may add up to more than the iteration; the figure shows their "
            "proportion.",
            "- MiB: sent to other ranks by the rank that sends most.",
            f"- *: more ranks than the {CORES} CPUs here; such times show no speed-up, bytes are what they are."]


def bar(y, text, parts, total):
    """A row of a panel: the parts, stretched to the total."""
    ends = list(itertools.accumulate(parts))
    return [y, text, 0.0, *(e * total / ends[-1] for e in ends), total, number(total), 0]


def bars(stem, facts, panels):
    """A figure of panels, each with its title in the first row."""
    shades = (*BEFORE_COLOURS, *STAGE_COLOURS, WHOLE_COLOUR)[:len(PARTS)]
    return figure(os.path.join(HERE, "sharding"), stem, facts | {
        "parts": len(shades), "groups": len(panels),
        "ends": " ".join(f"{1.25 * max(row[-3] for row in p[1:]):.6g}" for p in panels),
        **grid([p[0][1] for p in panels], [row[1] for p in panels for row in p[1:]], max(len(p) - 1 for p in panels)),
        **key_of(list(zip((name for name, _ in PARTS), shades)), shades)}, panels)


def picture(result, found, stem):
    panels = [[[-1, wrap(name, 44, "\\n")],
               *(bar(y, label(cut, ranks), [ms(s, counters) for _, counters in PARTS], iteration(s))
                 for y, (cut, ranks, s) in enumerate(own))] for name, own in found.items()]
    return bars(stem, common(result, result.groups("iteration"), "on ranks") | {
        "heading": "Forward, backward and optimizer on ranks: parts of the iteration (largest of all ranks)"}, panels)


def report(result, outdir, kernel):
    """(pictures, text)"""
    found = points(result, kernel)
    tables = [line for name, own in found.items() for line in (f"**{name}** ({WORKLOADS.get(name, '?')})".replace(
        "\n    ", ", "), "", *table(own), "")]
    text = "\n".join([*result.cautions("**"), *tables, *legend(result),
                      *(f"- {line}" for line in result.left_out())])
    return publish("sharding", outdir, "An iteration on several ranks", text,
                   lambda stem: picture(result, found, stem)), text


def main():
    parser = Arguments(__doc__)
    add_arguments(parser, reps=3)
    parser.add_argument("--ranks", default="1 2 4", metavar="LIST", help="numbers of ranks (1 2 4)")
    parser.add_argument("--sharding", default="table row column data", metavar="LIST",
                        help="how tables are cut (table row column data)")
    args = parser.parse_args()
    return study(args, parts(args) if args.bench else [], report)


if __name__ == "__main__":
    program.run(main, "interrupted; the same command continues after the finished parts")
