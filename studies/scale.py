#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Iterations on several ranks: the model of ranks/cost.h beside measured iterations of this machine, and where the
best sharding changes on 8 to 16,384 ranks of a cluster, which is only modelled.

Reads the lines that studies/scale/scale.c prints, and writes OUTDIR/scale.md, scale.png and scale.svg.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reports"))
import program
from export import figure, names
from parts import publish
from program import Arguments, ResultError, read_lines
from style import COLOURS, markdown_table, number

NOTHING = "nothing fits"
DRAWN_ROWS = 10**7  # of a table, in the panels below the maps
CHECK = {"ranks": 128, "rows": 10**7, "lookups": 8}  # the nearest point to the published one
TEXT = """`make scale` makes this page.

## On this machine: measured and predicted

Ranks are threads that exchange through memory, on {cores} cores; with more ranks than cores they take turns, marked
with *. One thread of a rank; 8 tables of 100,000 rows of 64 floats, 4096 bags of 8 lookups, Adagrad, caches warm. A
prediction is made of the bytes of ranks/formulas.h, links and local speeds that are calibrated with that number of
ranks at work, and the local work of an iteration of **one** rank. So the rows of 1 rank are a fit, and all others
are predictions. Error: predicted / measured - 1. The median absolute error of the predictions on at most {cores}
ranks is {few} %, of those on more {many} %.

{here}

## On a cluster: MODELLED, nothing of it is measured

![map of shardings](scale.png)

An iteration of embeddings: ids, lookup, outputs, gradients, update. 26 tables that are alike, one feature each, 128
columns, fp32 rows with Adagrad's state, outputs and gradients in fp16, 1024 bags of each rank (weak scaling), uniform
ids. Nodes of 8 H100: NVLink at 370 GB/s and InfiniBand NDR at 48 GB/s for each GPU, as seen in NVIDIA/nccl-tests
issues 212, 267 and 290; 1 and 1.5 us a message, 20 us a call (assumed, of the size that NCCL and MPI are known for);
local work at the nominal 3350 GB/s of the memory, so it is a lower bound; 80 GiB for tables and exchange. Stages
do not overlap. A message goes from every rank to every other one, but for table-row.

- *row* sends a bag's gradient only to ranks that have a row of the bag; *row, all-gather* is TorchRec's way.
- *table-row, two hops* sums in the node and sends one copy to every other node, as TorchRec does; ranks/ here sends
  directly to each rank of the node. Ids go directly in both.
- *data, all-reduce* sums dense gradients of all rows; *data, sparse* sends them as ranks/ does.
- A line ends where tables and exchange no longer fit.

Shardings that win somewhere, and the number of ranks from which on (of those that fit):

{winners}

A published point to compare with: MLPerf v4.0 DLRM-DCNv2 on 16 nodes of 8 H100, 1056 samples a GPU, 2.3 ms for a
whole iteration, dense layers included (HugeCTR's submission). For the embeddings alone, with 26 tables of 10^7 rows,
8 lookups and 128 ranks, the model gives {check} ({best}). More than the published time would be a wrong model; less
proves nothing.
"""


def read(path):
    """(lines of this machine, lines of the map)"""
    here, there = [], []

    def take(x):
        needed = ("measured", "predicted", "cores") if x["what"] == "here" else ("rows", "lookups", "seconds", "lacks")
        if any(not isinstance(x[k], (int, float)) for k in (*needed, "ranks")) or not x["sharding"]:
            raise ValueError("a number is missing")
        (here if x["what"] == "here" else there).append(x)

    read_lines(path, "scale", take)
    if not here or not there:
        raise ResultError(f"{path}: no lines of this machine, or none of the map; run make scale")
    return here, there


def error(x):
    return x["predicted"] / x["measured"] - 1


def median_error(lines):
    errors = sorted(abs(error(x)) for x in lines)
    return number(100 * errors[len(errors) // 2], 2) if errors else "-"


def here_table(here):
    parts = ("ids", "lookup", "outputs", "gradients", "update")
    ms = lambda x, k, of: 1e3 * (x[of][k] + (x[of]["lengths"] if k == "ids" else 0))
    heads = ("ranks", "sharding", "measured, ms", "predicted", "error", *(f"{p}, measured / predicted" for p in parts))
    return markdown_table(heads, [
        (f"{x['ranks']}{'*' * (x['ranks'] > x['cores'])}", x["sharding"], number(1e3 * x["measured"]),
         number(1e3 * x["predicted"]), f"{100 * error(x):+.0f} %" if x["ranks"] > 1 else "fit",
         *(f"{number(ms(x, p, 'measured_stages'))} / {number(ms(x, p, 'stages'))}" for p in parts)) for x in here],
        left=(1,))


def cells(there):
    """{(lookups, ranks, rows): the quickest line that fits, or None}"""
    best = {}
    for x in there:
        key = x["lookups"], x["ranks"], x["rows"]
        best.setdefault(key, None)
        if not x["lacks"] and (best[key] is None or x["seconds"] < best[key]["seconds"]):
            best[key] = x
    return best


def runs(best, lookups, rows):
    """'table from 8, row from 64': the winners over the ranks."""
    text, last = [], None
    for (_, ranks, _), x in sorted((k, x) for k, x in best.items() if (k[0], k[2]) == (lookups, rows)):
        name = x["sharding"] if x else NOTHING
        if name != last:
            text.append(f"{name} from {ranks:,}")
        last = name
    return "; ".join(text)


def winners_table(best):
    axes = [sorted({k[i] for k in best}) for i in (0, 2)]
    return markdown_table(("rows of a table", *(f"{n:g} lookups a bag" for n in axes[0])),
                          [(f"{rows:,}", *(runs(best, n, rows) for n in axes[0])) for rows in axes[1]],
                          left=(1, 2, 3))


def picture(there, best, stem):
    """Maps of the best sharding over ranks and rows, a panel for each number of lookups; below each, the time of
    every sharding over the ranks."""
    ways = list(dict.fromkeys(x["sharding"] for x in there))
    lookups, ranks, rows = (sorted({k[i] for k in best}) for i in range(3))
    blocks = []
    for n in lookups:
        blocks.append([[f"{n:g}"], *([ranks.index(k[1]), rows.index(k[2]), ways.index(x["sharding"]) if x else -1,
                                      number(1e3 * x["seconds"], 2) if x else "-"]
                                     for k, x in best.items() if k[0] == n)])
    for n in lookups:
        for way in ways:
            points = [[x["ranks"], 1e3 * x["seconds"]] for x in there if not x["lacks"] and
                      (x["lookups"], x["rows"], x["sharding"]) == (n, DRAWN_ROWS, way)]
            blocks.append([[way], *(sorted(points) or [[1e30, 1.0]])])
    return figure("scale", stem, {
        "heading": "Embeddings of an iteration on a cluster: the best sharding",
        "machine": "nodes of 8 H100, InfiniBand NDR; 26 tables x 128, 1024 bags a rank; ms in the cells",
        "caution": "MODELLED: bytes, latency and bandwidth; nothing here is measured", "panels": len(lookups),
        "ways": len(ways), "names": names(ways), "colours": " ".join(COLOURS[:6] + ("#777777",)),
        "ranks": " ".join(f"{r}" for r in ranks), "rows": " ".join(f"{r:.0e}".replace("e+0", "e") for r in rows),
        "lookups": " ".join(f"{n:g}" for n in lookups), "drawn": "10 million"}, blocks)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("lines", metavar="LINES", help="what studies/scale/scale prints")
    parser.add_argument("outdir", metavar="OUTDIR")
    args = parser.parse_args()
    here, there = read(args.lines)
    best = cells(there)
    cores = here[0]["cores"]
    point = best.get((CHECK["lookups"], CHECK["ranks"], CHECK["rows"]))
    predictions = [x for x in here if x["ranks"] > 1]
    text = TEXT.format(cores=cores, few=median_error([x for x in predictions if x["ranks"] <= cores]),
                       many=median_error([x for x in predictions if x["ranks"] > cores]),
                       here="\n".join(here_table(here)), winners="\n".join(winners_table(best)),
                       check=f"{number(1e3 * point['seconds'])} ms" if point else "nothing",
                       best=point["sharding"] if point else NOTHING)
    print("\n".join(publish("scale", args.outdir, "Ranks: the model, measured and extrapolated", text,
                            lambda stem: picture(there, best, stem))))
    print(os.path.join(args.outdir, "scale.md"))


if __name__ == "__main__":
    program.run(main)
