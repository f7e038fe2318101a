#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What ZeRO-1, ZeRO-3 and rows sharded over the ranks move, hold and take for one embedding table.

Reads the lines that extras/ranks/study/zero.c prints, and writes OUTDIR/zero.md and a picture. Bytes depend on no
machine; in its seconds threads copy memory, with no network between them."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "reports"))
import program
from export import figure, names
from plots import draw
from program import Arguments, read_lines, write_whole
from style import COLOURS, markdown_table, number

TEXT = """# ZeRO or sharded rows

`make zero` makes this page (extras/ranks/study/zero.md is a copy of one run, on a Zen 4). One table of 64 fp32 columns
with Adagrad, 1,024 bags of 10 lookups (Zipf, alpha 1.05), {ranks} ranks. ZeRO-3 gathers the table for the forward and
again for the backward, and both stages reduce a gradient of all rows. Sharded rows exchange what the batch looks up, so
their bytes do not grow with the table.

![bytes and seconds](zero.png)

{table}

- sent: bytes of a forward and a step, of the rank that sends most. held: weights, gradients and states of a rank at the
  peak, without buffers of a batch; counted for ZeRO, the size of a shard for sharded rows.
- ms: an iteration of the slowest rank, the best of 5. Ranks are threads of one process on {cores} cores: bytes are
  copied, not sent, and with more ranks than cores times only compare. Each rank has one thread.
"""


def read(path):
    """{way: [line by rising rows]}"""
    found = {}

    def take(x):
        found.setdefault(x["way"], []).append({k: x[k] for k in ("ranks", "rows", "sent", "peak", "seconds")})

    read_lines(path, "zero", take)
    return found


def table(found):
    base = {(x["ranks"], x["rows"]): x for x in list(found.values())[-1]}
    rows = []
    for way, lines in found.items():
        for x in lines:
            own = base[x["ranks"], x["rows"]]
            rows.append((way, str(x["ranks"]), f"{x['rows']:,}", number(x["sent"] / 1e6), number(x["peak"] / 1e6),
                         number(1e3 * x["seconds"]), number(x["sent"] / own["sent"]) if own["sent"] else "-",
                         number(x["seconds"] / own["seconds"])))
    heads = ("way", "ranks", "rows", "sent, MB", "held, MB", "ms", "sent / sharded", "time / sharded")
    return markdown_table(heads, rows)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("lines", metavar="LINES", help="what extras/ranks/study/zero prints")
    parser.add_argument("outdir", metavar="OUTDIR")
    args = parser.parse_args()
    found = read(args.lines)
    os.makedirs(args.outdir, exist_ok=True)
    most = max(x["ranks"] for lines in found.values() for x in lines)
    blocks = [[[way], *([x["rows"], x["sent"] or "NaN", x["peak"], x["seconds"]] for x in lines if x["ranks"] == most)]
              for way, lines in found.items()]
    drawn = figure(os.path.join(HERE, "zero"), os.path.abspath(os.path.join(args.outdir, "zero")), {
        "heading": f"One embedding table on {most} ranks", "ways": len(found), "names": names(found),
        "machine": "ranks are threads of one process: seconds have no network in them",
        "colours": " ".join(COLOURS[:len(found)])}, blocks)
    list(draw(drawn, args.outdir))
    text = TEXT.format(ranks=" and ".join(map(str, sorted({x["ranks"] for v in found.values() for x in v}))),
                       table="\n".join(table(found)), cores=os.cpu_count())
    write_whole(os.path.join(args.outdir, "zero.md"), text)
    print("\n".join(table(found)))


if __name__ == "__main__":
    program.run(main)
