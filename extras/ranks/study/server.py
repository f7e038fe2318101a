#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training on a parameter server: rates, distances in versions, loss and drift beside synchronous training.

Reads the lines that extras/ranks/study/server.c prints, and writes OUTDIR/server.md and a picture.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "reports"))
import program
from export import figure, names
from plots import draw
from program import Arguments, read_lines, write_whole
from style import COLOURS, markdown_table, number

TEXT = """# A parameter server

`make server` makes this page (extras/ranks/study/server.md is a copy of one run, on a Zen 4). {servers} server{s}
with 4 tables of 50,000 rows and 32 columns, {workers} workers with 512 bags of 4 features and 8 lookups (Zipf, alpha
1.05), {clocks} clocks, {rule} with rate 0.1. Rows learn the rows of a teacher by least squares. Ranks are processes
over MPI on {cpus} CPUs{crowded}.

![rates, versions, loss and drift](server.png)

{table}

- s: a worker may be s clocks ahead of the slowest one, and each push is a step. Synchronous: a clock is one step.
- clocks/s: of all workers together. slow: a clock of the last worker takes 10 times as long. predicted: from the clocks
  of the run without a bound, without contention.
- versions: pushes that the server applied between a pull and its push, mean / most.
- drift: distance of the weights from the synchronous run, over the distance that it went.
- loss: of the last tenth of the clocks. A row that is not admitted adds nothing to its bag.
- lost: gradient rows that were pushed and not applied.
"""

ORDER = ("synchronous", "s = 1", "s = 4", "no bound", "after 3 touches", "by chance, 0.2")
KEYS = ("mode", "staleness", "slow", "servers", "workers", "cpus", "rule", "clocks", "rate", "predicted", "pushed",
        "applied", "refused", "drift", "versions", "ahead", "loss")


def read(path):
    found = []

    def take(x):
        ORDER.index(x["mode"])
        found.append({k: x[k] for k in KEYS})

    read_lines(path, "server", take)
    return found


def mean(histogram):
    return sum(d * n for d, n in enumerate(histogram)) / sum(histogram)


def last_loss(x):
    tail = x["loss"][-max(1, len(x["loss"]) // 10):]
    return sum(tail) / len(tail)


def table(found):
    rows = []
    for x in found:
        rows.append((x["mode"], "x 10" if x["slow"] > 1 else "", number(x["rate"]),
                     number(x["predicted"]) if x["slow"] > 1 else "", str(len(x["ahead"]) - 1),
                     f"{mean(x['versions']):.2f} / {len(x['versions']) - 1}", f"{100 * x['drift']:.2f} %",
                     f"{last_loss(x):.4f}", f"{100 * x['refused']:.1f} %", str(x["pushed"] - x["applied"])))
    heads = ("mode", "slow", "clocks/s", "predicted", "most clocks ahead", "versions", "drift", "loss", "refused", "lost")
    return markdown_table(heads, rows)


def curves(found):
    """Blocks of the figure: for each mode its loss, then its versions; then a line per mode with rates and drift."""
    even = sorted((x for x in found if x["slow"] == 1), key=lambda x: ORDER.index(x["mode"]))
    slow = {x["mode"]: x for x in found if x["slow"] > 1}
    blocks = [[[x["mode"]], *([c + 1, loss] for c, loss in enumerate(x["loss"]))] for x in even]
    blocks += [[[x["mode"]], *([d, n / sum(x["versions"])] for d, n in enumerate(x["versions"]))] for x in even]
    bars = []
    for i, x in enumerate(even):
        other = slow.get(x["mode"])
        bars.append([i, x["rate"], other["rate"] if other else "NaN", other["predicted"] if other else "NaN",
                     100 * x["drift"], 100 * other["drift"] if other else "NaN"])
    return even, [*blocks, [["modes"], *bars]]


def main():
    parser = Arguments(__doc__)
    parser.add_argument("lines", metavar="LINES", help="what extras/ranks/study/server prints")
    parser.add_argument("outdir", metavar="OUTDIR")
    args = parser.parse_args()
    found = read(args.lines)
    first = found[0]
    crowded = first["servers"] + first["workers"] > first["cpus"]
    os.makedirs(args.outdir, exist_ok=True)
    even, blocks = curves(found)
    machine = f"{first['servers']} server(s), {first['workers']} workers, {first['rule']}, {first['cpus']} CPUs" + \
        (": more ranks than CPUs, rates only compare" if crowded else "")
    drawn = figure(os.path.join(HERE, "server"), os.path.abspath(os.path.join(args.outdir, "server")), {
        "heading": "Training on a parameter server", "modes": len(even),
        "unlike": sum("touches" not in x["mode"] and "chance" not in x["mode"] for x in even), "names": names(x["mode"] for x in even),
        "machine": machine, "colours": " ".join(COLOURS[:len(even)])}, blocks)
    list(draw(drawn, args.outdir))
    rows = "\n".join(table(found))
    text = TEXT.format(**first, s="s" * (first["servers"] > 1), table=rows,
                       crowded=": more ranks than CPUs, so rates only compare" if crowded else "")
    write_whole(os.path.join(args.outdir, "server.md"), text)
    print(rows)


if __name__ == "__main__":
    program.run(main)
