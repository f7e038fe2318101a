#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Iterations on several ranks: measured on this machine and on nodes with shaped links, each beside the model of
extras/ranks/rank_model.py; and where the best sharding changes on 8 to 16,384 ranks of a cluster, only modelled.

Reads lines of what was measured, and writes OUTDIR/scale.md and two figures; --build measures them first, with mpirun.
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS_FOLDER = os.path.join(HERE, "..")
sys.path[:0] = [RANKS_FOLDER, os.path.join(HERE, "..", "..", "..", "reports")]
import plan
import program
import rank_model as model
from export import figure, grid, legend as key_of, names
from parts import CORES, publish, this_machine
from plots import draw
from program import Arguments, ResultError, read_lines, say, write_whole
from results import load
from style import BEFORE_COLOURS, COLOURS, STAGE_COLOURS, WHOLE_COLOUR, markdown_table, number

BAGS = 4096  # of all ranks; in weak scaling, of each
SPEC = ("workload here\n  tables 8\n  rows 100000\n  dim 64\n  batch {bags}\n  length fixed 8\n  ids zipf\n  alpha 1.05\n"
        "  rule adagrad\n")
NODES = 2  # with a shaped link between them
FIT_REPS = 3  # times as many iterations of one rank: all predictions are made of them
PARTS = ("ids", "lookup", "outputs", "gradients", "update")
EXCHANGES = ("ids", "outputs", "gradients")
KERNEL = "cpu_fused"
COUNTERS = {"ids": ("exchange_ids_ms",), "lookup": ("forward_ms",), "outputs": ("exchange_output_ms",),
            "gradients": ("exchange_gradient_ms",),
            "update": ("plan_ms", "index_ms", "zero_ms", "reduce_ms", "update_ms")}  # lengths travel with the ids
NOTHING = "nothing fits"
DRAWN_ROWS = 10**7  # of a table, in the panels below the maps
CHECK = {"ranks": 128, "rows": 10**7, "lookups": 8}  # the nearest point to the published one
TEXT = """`make scale` makes this page (extras/ranks/study/scale.md is a copy of one run, on a Zen 4).

## On this machine: measured and predicted

{machine}. Ranks are processes of MPI with one thread each, bound to CPUs of their own; with more ranks than CPUs (*)
they take turns, and their times show no speed-up. 8 tables of 100,000 rows of 64 floats, bags of 8 lookups (Zipf, alpha
1.05), Adagrad, cpu_fused, cold caches, medians. Strong scaling: {bags} bags in all. Weak scaling: {bags} bags of each
rank.

A prediction is made of the bytes of extras/ranks/rank_model.py, links and local speeds that are measured with that
number of ranks at work, and the local work of an iteration of **one** rank. So the rows of 1 rank are a fit, and all others are
predictions. Error: predicted / measured - 1. Parts are those of the slowest rank each.

{errors}

![measured and predicted](scale-here.png)

{here}

## Nodes with a shaped link

{links}

## On a cluster: MODELLED, nothing of it is measured

![map of shardings](scale.png)

An iteration of embeddings: ids, lookup, outputs, gradients, update. 26 tables that are alike, one feature each, 128
columns, fp32 rows with Adagrad's state, outputs and gradients in fp16, 1024 bags of each rank (weak scaling), uniform
ids. Nodes of 8 H100: NVLink at 370 GB/s and InfiniBand NDR at 48 GB/s for each GPU, as seen in NVIDIA/nccl-tests
issues 212, 267 and 290; 1 and 1.5 us a message, 20 us a call (assumed, of the size that NCCL and MPI are known for);
local work at the nominal 3350 GB/s of the memory, so it is a lower bound; 80 GiB for tables and exchange. Stages
do not overlap. A message goes from every rank to every other one, but for table-row.

- *row* sends a bag's gradient only to ranks that have a row of the bag; *row, all-gather* is TorchRec's way.
- *table-row, two hops* sums in the node and sends one copy to every other node, as TorchRec does; extras/ranks/ here sends
  directly to each rank of the node. Ids go directly in both.
- *data, all-reduce* sums dense gradients of all rows; *data, sparse* sends them as extras/ranks/ does.
- A line ends where tables and exchange no longer fit.

Shardings that win somewhere, and the number of ranks from which on (of those that fit):

{winners}

A published point to compare with: MLPerf v4.0 DLRM-DCNv2 on 16 nodes of 8 H100, 1056 samples a GPU, 2.3 ms for a
whole iteration, dense layers included (HugeCTR's submission). For the embeddings alone, with 26 tables of 10^7 rows,
8 lookups and 128 ranks, the model gives {check} ({best}). More than the published time would be a wrong model; less
proves nothing.
"""


# --- what is run
def runs(args):
    """[(what, words before the program, bags)]: one rank first; over links one rank a node, and two."""
    if not re.fullmatch(r"[1-9]\d{0,2}", args.reps):
        raise ResultError(f"REPS: '{args.reps}' is no number from 1 to 999")
    ranks = sorted({int(r) for r in args.ranks.split() if r.isdigit()} | {1})
    if not all(re.fullmatch(r"[1-9]\d{0,3}", r) for r in args.ranks.split()):
        raise ResultError(f"RANKS: '{args.ranks}' is no list of numbers from 1 to 9999")
    launch = os.path.join(RANKS_FOLDER, "launch.py")
    out = [({"scaling": "strong"}, (launch, "-np", str(r)), BAGS) for r in ranks]
    out += [({"scaling": "weak"}, (launch, "-np", str(r)), BAGS * r) for r in ranks[1:]]
    for link in args.links.split():
        network = (os.path.join(RANKS_FOLDER, "network.py"), f"--nodes={NODES}", f"--link={link}", "-np")
        out += [({"link": link}, (*network, str(r)), BAGS) for r in ranks[1:] if r % NODES == 0 and r <= 2 * NODES]
    return out


def launched(words):
    """What a program that launch.py or network.py starts prints to stdout."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode < 0 or done.returncode > 128:
        raise KeyboardInterrupt
    if done.returncode:
        silent = f"{words[-1]} ended with status {done.returncode}"
        raise ResultError((done.stderr.strip().splitlines() or [silent])[-1])
    return done.stdout


def measure_cut(build, launch, folder, cut, reps):
    """The sample with the median time of an iteration."""
    name, _, overlap = cut.partition("+")
    launched([*launch, os.path.join(build, "extras/ranks/bench"), f"--spec={folder}/spec", f"--out={folder}",
              f"--reps={reps}", "--modes=iteration", "--place=host", "--ring=1", "--threads=1",
              f"--filter=/{KERNEL}/", f"--sharding={name}", *(["--overlap"] if overlap else [])])
    series = load(os.path.join(folder, "bench.json")).groups("iteration")[0].of(KERNEL)
    if not series:
        raise ResultError(f"{cut}: {KERNEL} was not measured")
    return series.typical()


def ms_of(sample, part):
    return sum(sample.get(counter) or 0.0 for counter in COUNTERS[part])


def predict(machine, batch, cut, ranks, fit):
    """The cost of a sharding, tables dealt in turn, with the local work that a fit says."""
    on_node = ranks // machine.nodes
    needs = [{cut: model.counted_need(cut, batch, table, ranks, on_node)} for table in batch.tables]
    machine.reached, machine.grouping = fit["reached"], fit["grouping"] / machine.gather
    dealt = plan.Plan(machine, ranks, needs)
    dealt.start(cut)
    return dealt.cost()


def fit_of(machine, batch, cut, sample):
    """The local work of one rank beside the calibrated speeds: shares of them by stage, and the bytes in caches that
    are gathered while a step groups one lookup. It makes the prediction of one rank right."""
    grouping = 1e-3 * sum(sample.get(c) or 0.0 for c in ("plan_ms", "index_ms"))
    expected = predict(machine, batch, cut, 1, {"reached": {}, "grouping": 0.0}).stages
    expected["ids"] += expected["lengths"]
    reached = {part: expected[part] / (1e-3 * ms_of(sample, part) - grouping * (part == "update")) for part in PARTS
               if ms_of(sample, part) > 0 and expected[part] > 0}
    lookups = sum(len(f.ids) for table in batch.tables for f in table.features)
    return {"reached": reached | {"lengths": reached["ids"]}, "grouping": grouping * machine.gather / lookups}


def measure_run(args, what, launch, bags, wanted, fits):
    """Lines of all cuts with that number of ranks, or one that says why there are none. Fills fits with one rank."""
    ranks, nodes, lines = int(launch[-1]), NODES if "link" in what else 1, []
    with tempfile.TemporaryDirectory() as folder:
        write_whole(os.path.join(folder, "spec"), SPEC.format(bags=bags))
        embfuse, measures = (os.path.join(args.build, name) for name in ("embfuse", "extras/ranks/study/machine"))
        subprocess.run([embfuse, "gen", os.path.join(folder, "spec"), "--out", os.path.join(folder, "b")], check=True,
                       stdout=subprocess.DEVNULL)
        batch = plan.read_batch(os.path.join(folder, "b"), plan.read_rules(embfuse))
        for cut in wanted:
            name = cut.partition("+")[0]
            try:  # each time, since other work comes and goes
                machine = model.machine_of(json.loads(launched([*launch, measures, "1"])))
            except ResultError as e:
                if "link" in what and str(e).startswith("network.py: "):
                    return [what | {"not_run": str(e).removeprefix("network.py: ")}]
                raise
            reps = int(args.reps) * (1 if name in fits else FIT_REPS)
            sample = measure_cut(args.build, launch, folder, cut, reps)
            if ranks == 1:
                fits[name] = fit_of(machine, batch, name, sample)
            predicted = predict(machine, batch, name, ranks, fits[name])
            sent = sum(sample.get(f"exchange_{x}_sent_mib") or 0.0 for x in ("ids", "output", "gradient"))
            lines.append(what | {
                "ranks": ranks, "nodes": nodes, "cpus": CORES, "sharding": name, "overlap": cut != name, "bags": bags,
                "measured": 1e-3 * sample.ms, "measured_stages": {p: 1e-3 * ms_of(sample, p) for p in PARTS},
                "predicted": predicted.seconds, "stages": predicted.stages, "links": machine.links,
                "sent": round(sent * 2**20)})
    return lines


def measure(args):
    """Writes all lines."""
    cuts, fits, lines, todo = args.sharding.split(), {}, [{"machine": this_machine()}], runs(args)
    if unknown := set(cuts) - set(model.KINDS):
        raise ResultError(f"SHARDING: '{unknown.pop()}' is none of {' '.join(model.KINDS)}")
    for i, (what, launch, bags) in enumerate(todo, 1):
        say(f"run {i} of {len(todo)}: {' '.join(launch[1:])}, {bags} bags")
        lines += measure_run(args, what, launch, bags,
                             [c + o for c in cuts for o in (("", "+overlap") if "link" in what else ("",))], fits)
    os.makedirs(os.path.dirname(os.path.abspath(args.lines)), exist_ok=True)
    write_whole(args.lines, "".join(json.dumps(x) + "\n" for x in lines))


# --- a cluster, modelled
# The tables, all alike, of DLRM-DCNv2 in MLPerf: 26 features, 128 columns, fp16 on the wire; fp32 rows. Nodes of H100.
FEATURES, DIM, RANK_BAGS, ON_NODE, RANKS_MOST = 26, 128, 1024, 8, 16384
# Ways on the map: kinds of the suite, and flows of other systems.
WAYS = {"table": "table", "row": "row", "row, all-gather": "row", "column": "column",
        "table-row, two hops": "table-row", "data, sparse": "data", "data, all-reduce": "data"}


def two_hops(m):
    """Output and gradient of rows over a node: summed in the node, then one copy to each other node, and back
    (TorchRec's reduce-scatter and all-to-all; for the backward all-to-all and all-gather)."""
    (near, near_speed), (far, far_speed), size = *m.links, FEATURES * RANK_BAGS * DIM * 2
    return (m.call + near * (ON_NODE - 1) + size * (ON_NODE - 1) / near_speed + (m.call if m.nodes > 1 else 0) +
            far * (m.nodes - 1) + size * (m.nodes - 1) / m.nodes / far_speed)


def all_reduce(m, ranks, rows, lookups):
    """Stages with an all-reduce of gradients of all rows: 2 (W-1)/W of them over the slowest link, in 2 log2(W)
    messages; and a pass over them to clear, to add and to apply."""
    size, slowest = FEATURES * rows * DIM * 2, m.links[1 if m.nodes > 1 else 0][1]
    return {"lengths": 0.0, "ids": 0.0,
            "gradients": m.call + 2 * math.log2(ranks) * m.links[1][0] + 2 * (ranks - 1) / ranks * size / slowest,
            "update": (FEATURES * RANK_BAGS * lookups * DIM * 2 / m.gather + 2 * size / m.copy +
                       4 * FEATURES * rows * DIM * 4 / m.rows)}


def modelled(way, ranks, rows, lookups):
    """A point of the map."""
    kind, m = WAYS[way], model.Machine(ranks // ON_NODE, **model.H100)
    table = model.Table(rows, DIM, [], states=4)
    batch = model.Batch(RANK_BAGS * ranks, [], id_bytes=4, element=2)
    needed = model.expected_need(kind, batch, table, ranks, ON_NODE, lookups, way == "row, all-gather")
    on_ranks = np.zeros((ranks, model.COLUMNS))
    for t in range(FEATURES):
        model.put(on_ranks, needed, t % model.places_of(kind, ranks, ON_NODE))
    cost = model.cost(m, on_ranks)
    if kind == "table-row":
        cost.stages["outputs"] = cost.stages["gradients"] = two_hops(m)
    if way == "data, all-reduce":  # a gradient of all rows lies beside them
        cost.stages |= all_reduce(m, ranks, rows, lookups)
        cost.lacks = max(0.0, on_ranks[0, model.MEMORY] + FEATURES * rows * DIM * 2 - m.memory) * ranks
    return {"ranks": ranks, "rows": rows, "lookups": lookups, "sharding": way, "seconds": sum(cost.stages.values()),
            "lacks": float(cost.lacks), "stages": cost.stages}


def cluster():
    numbers = [ON_NODE * 2**k for k in range(int(math.log2(RANKS_MOST // ON_NODE)) + 1)]
    return [modelled(way, ranks, 10**e, lookups)
            for lookups in (1, 8, 64) for ranks in numbers for e in range(3, 10) for way in WAYS]


# --- what came out
def read(path):
    """(machine, lines of this machine)"""
    name, here = [], []

    def take(x):
        if "machine" in x:
            name.append(x["machine"])
            return
        numbers = ("ranks", "measured", "predicted", "cpus", "sent")
        if "not_run" not in x and (any(not isinstance(x[k], (int, float)) for k in numbers) or not x["sharding"]):
            raise ValueError("a number is missing")
        here.append(x)

    read_lines(path, "scale", take)
    if not here or not name:
        raise ResultError(f"{path}: no lines of this machine; run make scale")
    return name[0], here


def error(measured, predicted):
    return predicted / measured - 1


def percent(x):
    return f"{100 * x:+.0f} %"


def ms(x, stages, parts):
    """Lengths travel with the ids."""
    return 1e3 * sum(x[stages][p] + (x[stages].get("lengths", 0) if p == "ids" else 0) for p in parts)


def ranks_of(x):
    return f"{x['ranks']}{'*' * (x['ranks'] > x['cpus'])}"


def errors_text(lines):
    """How well the model does, with few ranks and with many."""
    out = []
    for what, own in (("as many CPUs as", [x for x in lines if 1 < x["ranks"] <= x["cpus"]]),
                      ("fewer CPUs than", [x for x in lines if x["ranks"] > x["cpus"]])):
        all_errors = sorted(abs(error(x["measured"], x["predicted"])) for x in own)
        if own:
            out.append(f"With {what} ranks, {sum(e <= 0.15 for e in all_errors)} of {len(own)} predictions are within "
                       f"15 %; the median error is {number(100 * all_errors[len(own) // 2], 2)} %.")
    return " ".join(out)


def here_table(lines, one):
    heads = ("ranks", "sharding", "measured, ms", "predicted", "error", "bags/s beside 1 rank",
             *(f"{p}, measured / predicted" for p in PARTS))
    return markdown_table(heads, [
        (ranks_of(x), x["sharding"], number(1e3 * x["measured"]), number(1e3 * x["predicted"]),
         percent(error(x["measured"], x["predicted"])) if x["ranks"] > 1 else "fit",
         f"{x['bags'] / x['measured'] / one[x['sharding']]:.2f}x",
         *(f"{number(ms(x, 'measured_stages', [p]))} / {number(ms(x, 'stages', [p]))}" for p in PARTS)) for x in lines],
        left=(1,))


def links_table(lines, overlapped):
    heads = ("link", "ranks", "sharding", "measured, ms", "predicted", "error", "exchanges, ms", "bytes / speed + latency",
             "error", "with overlap, ms")
    rows = []
    for x in lines:
        times = [ms(x, k, EXCHANGES) for k in ("measured_stages", "stages")]
        other = overlapped.get((x["link"], x["ranks"], x["sharding"]))
        rows.append((x["link"], ranks_of(x), x["sharding"], number(1e3 * x["measured"]), number(1e3 * x["predicted"]),
                     percent(error(x["measured"], x["predicted"])), *map(number, times), percent(error(*times)),
                     number(1e3 * other["measured"]) if other else "-"))
    return markdown_table(heads, rows, left=(0, 2))


def speed_text(lines):
    """What the links gave."""
    seen = {(x["link"], x["ranks"]): x for x in lines}
    return "; ".join(f"{link} with {ranks} ranks: {number(x['links'][1][1] / 1e6)} MB/s and "
                     f"{number(1e6 * x['links'][1][0])} us a message of each rank" for (link, ranks), x in seen.items())


def links_text(lines):
    left_out = [f"{x['link']} was not run: {x['not_run']}" for x in lines if "not_run" in x]
    found = [x for x in lines if "not_run" not in x]
    plain = [x for x in found if not x["overlap"]]
    if not plain:
        return "\n".join(left_out) or 'Not run; `make scale LINKS="1gbit 10gbit"` runs them, as root.'
    overlapped = {(x["link"], x["ranks"], x["sharding"]): x for x in found if x["overlap"]}
    text = (f"Strong scaling on {NODES} nodes that are network namespaces of this machine (extras/ranks/network.py), with the same "
            "ranks on each. A link sends and receives at the rate at the same time. Calibrated: " + speed_text(plain) +
            ". Exchanges: ids, outputs and gradients together, with packing. With overlap: one half of the tables takes "
            "its step while the gradients of the other are on their way.\n")
    return "\n".join([text, *links_table(plain, overlapped), *left_out])


def here_picture(name, here, stem):
    """Measured and predicted iterations, one above the other, of as many ranks as there are CPUs."""
    drawn = [x for x in here if "not_run" not in x and 1 < x["ranks"] <= x["cpus"] and not x["overlap"]]
    groups = {}
    for x in drawn:
        groups.setdefault(f"{x['scaling']} scaling" if "scaling" in x else f"2 nodes, {x['link']}", []).append(x)
    panels, limits = [], []
    for title, own in groups.items():
        rows = [[-1, title]]
        for x in own:
            for kind, stages in (("measured", "measured_stages"), ("predicted", "stages")):
                ends = [ms(x, stages, PARTS[:i + 1]) for i in range(len(PARTS))]
                total = 1e3 * x[kind]
                rows.append([len(rows) - 1, f"{x['sharding']}, {x['ranks']} ranks, {kind}", 0.0,
                             *(e * total / ends[-1] for e in ends), total, number(total), 0])
        panels.append(rows)
        limits.append(1.25 * max(1e3 * max(x["measured"], x["predicted"]) for x in own))
    shades = (*BEFORE_COLOURS, *STAGE_COLOURS, WHOLE_COLOUR)[:len(PARTS)]
    return figure(os.path.join(HERE, "sharding"), stem, {
        "heading": "An iteration on ranks, measured and predicted", "machine": name, "notes": "", "parts": len(PARTS),
        "groups": len(panels), "ends": " ".join(f"{e:.6g}" for e in limits),
        **grid([p[0][1] for p in panels], [row[1] for p in panels for row in p[1:]], max(len(p) - 1 for p in panels)),
        **key_of(list(zip(PARTS, shades)), shades)}, panels) if panels else None


def cells(there):
    """{(lookups, ranks, rows): the quickest line that fits, or None}"""
    best = {}
    for x in there:
        key = x["lookups"], x["ranks"], x["rows"]
        best.setdefault(key, None)
        if not x["lacks"] and (best[key] is None or x["seconds"] < best[key]["seconds"]):
            best[key] = x
    return best


def won(best, lookups, rows):
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
                          [(f"{rows:,}", *(won(best, n, rows) for n in axes[0])) for rows in axes[1]],
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
    return figure(os.path.join(HERE, "scale"), stem, {
        "heading": "Embeddings of an iteration on a cluster: the best sharding",
        "machine": "nodes of 8 H100, InfiniBand NDR; 26 tables x 128, 1024 bags a rank; ms in the cells",
        "caution": "MODELLED: bytes, latency and bandwidth; nothing here is measured", "panels": len(lookups),
        "ways": len(ways), "names": names(ways), "colours": " ".join(COLOURS[:6] + ("#777777",)),
        "ranks": " ".join(f"{r}" for r in ranks), "rows": " ".join(f"{r:.0e}".replace("e+0", "e") for r in rows),
        "lookups": " ".join(f"{n:g}" for n in lookups), "drawn": "10 million"}, blocks)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("lines", metavar="LINES", help="what was measured")
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--build", metavar="FOLDER", help="first measure LINES with the programs of this folder")
    parser.add_argument("--ranks", default="1 2 4 8", metavar="LIST", help="numbers of ranks (1 2 4 8)")
    parser.add_argument("--links", default="", metavar="LIST", help="rates of links between nodes: 1gbit 10gbit; needs root")
    parser.add_argument("--sharding", default="table row row-modulo column data", metavar="LIST")
    parser.add_argument("--reps", default="9", help="iterations; the median counts (9)")
    args = parser.parse_args()
    if args.build:
        measure(args)
    name, here = read(args.lines)
    there = cluster()
    best = cells(there)
    point = best.get((CHECK["lookups"], CHECK["ranks"], CHECK["rows"]))
    scaling = [x for x in here if "scaling" in x]
    one = {x["sharding"]: x["bags"] / x["measured"] for x in scaling if x["ranks"] == 1}
    tables = [line for kind in ("strong", "weak") for line in
              (f"**{kind.capitalize()} scaling**", "", *here_table([x for x in scaling if x["scaling"] == kind], one), "")
              if any(x["scaling"] == kind for x in scaling)]
    text = TEXT.format(machine=name, bags=BAGS, errors=errors_text(scaling), here="\n".join(tables),
                       links=links_text([x for x in here if "link" in x]), winners="\n".join(winners_table(best)),
                       check=f"{number(1e3 * point['seconds'])} ms" if point else "nothing",
                       best=point["sharding"] if point else NOTHING)
    print("\n".join(publish("scale", args.outdir, "Ranks: the model, measured and extrapolated", text,
                            lambda stem: picture(there, best, stem))))
    measured = here_picture(name, here, os.path.join(os.path.abspath(args.outdir), "scale-here"))
    if measured:
        print("\n".join(draw(measured, args.outdir)))
    print(os.path.join(args.outdir, "scale.md"))


if __name__ == "__main__":
    program.run(main)
