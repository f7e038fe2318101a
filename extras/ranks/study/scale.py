#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Iterations on several ranks: measured on this machine and on nodes with shaped links, each beside the model of
extras/ranks/rank_model.py; and where the best sharding changes on 8 to 16,384 ranks of a cluster, only modelled.

Reads lines of what was measured, and writes OUTDIR/scale.md and two figures; --build measures them first, with mpirun.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS_FOLDER = os.path.join(HERE, "..")
sys.path[:0] = [RANKS_FOLDER, os.path.join(HERE, "..", "..", "..", "reports")]
import cluster
import plan
import program
import rank_model as model
import sharding
from parts import CORES, publish, this_machine
from plots import draw
from program import Arguments, ResultError, read_lines, say, write_whole
from results import load
from style import markdown_table, number

BAGS = 4096  # of all ranks; in weak scaling, of each
SPEC = ("workload here\n  tables 8\n  rows 100000\n  dim 64\n  batch {bags}\n  length fixed 8\n  ids zipf\n  alpha 1.05\n"
        "  rule adagrad\n")
NODES = 2  # with a shaped link between them
FIT_REPS = 3  # times as many iterations of one rank: all predictions are made of them
EXCHANGES = ("ids", "outputs", "gradients")
KERNEL = "cpu_fused"
COUNTERS = dict(sharding.PARTS)  # lengths travel with the ids
PARTS = tuple(COUNTERS)
CHECK = {"ranks": 128, "rows": 10**7, "lookups": 8}  # the nearest point to the published one
TEXT = """`make scale` makes this page (extras/ranks/study/scale.md is a copy of one run, on a Zen 4).

## On this machine: measured and predicted

{machine}. Ranks are processes of MPI with one thread each. With more ranks than CPUs (*) they take turns, and times
show no speed-up. 8 tables of 100,000 rows of 64 floats, bags of 8 lookups (Zipf, alpha 1.05), Adagrad, cpu_fused,
cold caches, medians. Strong scaling: {bags} bags in all. Weak scaling: {bags} bags of each rank.

A prediction takes the bytes of extras/ranks/rank_model.py, links and local speeds measured with that number of ranks at
work, and the local work of **one** rank. So 1 rank is a fit. Error: predicted / measured - 1. Each part is that of its
slowest rank.

{errors}

![measured and predicted](scale-here.png)

{here}

## Nodes with a shaped link

{links}

## On a cluster: MODELLED, nothing of it is measured

![map of shardings](scale.png)

An iteration of embeddings: 26 equal tables, one feature each, 128 columns, fp32 rows with Adagrad's state, outputs
and gradients in fp16, 1024 bags of each rank, uniform ids. Nodes of 8 H100: NVLink at 370 GB/s and InfiniBand NDR at
48 GB/s for each GPU (NVIDIA/nccl-tests issues 212, 267 and 290); assumed are 1 and 1.5 us a message and 20 us a call.
Local work runs at the nominal 3350 GB/s of the memory, so it is a lower bound. 80 GiB hold tables and exchange; a
line ends where they no longer fit. Stages do not overlap.

- *row* sends a bag's gradient to ranks that have a row of the bag; *row, all-gather* to all ranks, as TorchRec does.
- *table-row, two hops* sums in the node and sends one copy to every other node, as TorchRec does; extras/ranks sends
  directly to each rank of the node.
- *data, all-reduce* sums dense gradients of all rows; *data, sparse* sends gradient rows as extras/ranks does.

Shardings that win, and from which number of ranks:

{winners}

To compare: MLPerf v4.0 DLRM-DCNv2 on 16 nodes of 8 H100 takes 2.3 ms for a whole iteration of 1056 samples a GPU
(HugeCTR's submission). The model gives the embeddings alone, with 26 tables of 10^7 rows, 8 lookups and 128 ranks,
{check} ({best}). More than the published time would prove the model wrong; less proves nothing.
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
    groups = {}
    for x in here:
        if "not_run" not in x and 1 < x["ranks"] <= x["cpus"] and not x["overlap"]:
            title = f"{x['scaling']} scaling" if "scaling" in x else f"2 nodes, {x['link']}"
            own = groups.setdefault(title, [[-1, title]])
            for kind, stages in (("measured", "measured_stages"), ("predicted", "stages")):
                own.append(sharding.bar(len(own) - 1, f"{x['sharding']}, {x['ranks']} ranks, {kind}",
                                        [ms(x, stages, [part]) for part in PARTS], 1e3 * x[kind]))
    return sharding.bars(stem, {"heading": "An iteration on ranks, measured and predicted", "machine": name, "notes": ""},
                         list(groups.values())) if groups else None


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
    there = cluster.points()
    best = cluster.cells(there)
    point = best.get((CHECK["lookups"], CHECK["ranks"], CHECK["rows"]))
    scaling = [x for x in here if "scaling" in x]
    one = {x["sharding"]: x["bags"] / x["measured"] for x in scaling if x["ranks"] == 1}
    tables = [line for kind in ("strong", "weak") for line in
              (f"**{kind.capitalize()} scaling**", "", *here_table([x for x in scaling if x["scaling"] == kind], one), "")
              if any(x["scaling"] == kind for x in scaling)]
    text = TEXT.format(machine=name, bags=BAGS, errors=errors_text(scaling), here="\n".join(tables),
                       links=links_text([x for x in here if "link" in x]), winners="\n".join(cluster.winners_table(best)),
                       check=f"{number(1e3 * point['seconds'])} ms" if point else "nothing",
                       best=point["sharding"] if point else cluster.NOTHING)
    print("\n".join(publish("scale", args.outdir, "Ranks: the model, measured and extrapolated", text,
                            lambda stem: cluster.picture(there, best, stem))))
    measured = here_picture(name, here, os.path.join(os.path.abspath(args.outdir), "scale-here"))
    if measured:
        print("\n".join(draw(measured, args.outdir)))
    print(os.path.join(args.outdir, "scale.md"))


if __name__ == "__main__":
    program.run(main)
