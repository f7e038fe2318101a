#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables with a share of their rows in memory: hits of every policy, speed beside tables in memory, and whether 20 % of
the memory gives nearly full speed.

Runs extras/tiers/study/tiers.c, unless --tiers is not given, and writes OUTDIR/tiers.md and three figures from LINES.
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "reports"))
import program
from export import figure, names
from parts import this_machine
from plots import draw
from program import Arguments, ResultError, read_lines, say, write_whole
from style import COLOURS, markdown_table, number

SPEC = "workload tiers\nrows {rows}\ndim {dim}\nbatch {bags}\nlength fixed {lookups}\nids {ids}\nrule rowwise_adagrad\n"
ROWS, DIM, BAGS, LOOKUPS = 200000, 64, 1024, 8
ROW = 4 * DIM + 4  # bytes with its state
TRACES = {"gpt2_novels_1024": 2, "tang_poems": 12, "retail_items": 20}  # bags of a batch: its rows fit into few slots
POLICIES = ("lru", "lfu", "belady")
# The share of the memory that is said to be enough; where policies and stores are compared; nearly full speed.
CLAIM, CLAIM_ALPHA, NEARLY = 0.2, "alpha 1.05", 0.9
# Runs: store, policies, batches ahead, and where: every budget of every source, of Zipf sources, or the claim.
POINTS = (("memory", POLICIES, (0,), "sources"),
          ("files", ("lru",), (0, 2), "alphas"),
          ("files", ("lfu", "belady"), (2,), "claim"),
          ("files", ("lru",), (1, 4), "claim"),
          ("rocksdb", ("lru",), (0, 2), "claim"))
# Slow memory beside fast memory: links as seen by others, fast memory nominal, in GB/s. Rows per second of an NVMe disk
# count, since 512 bytes cost as much as 4096.
LINKS = {"GH200, NVLink-C2C": 350 / 4000, "H100, PCIe 5": 50 / 3350, "CPU, NVMe": 1e6 * ROW / 300e9}
TEXT = """# Tables larger than the fast memory

`make bench-tiers` makes this page (extras/tiers/study/tiers.md is a copy of one run). {machine}. A table of {rows:,}
rows of {dim} floats with row-wise Adagrad, {bags} bags of {lookups} lookups a step, ids by Zipf; {half} batches warm
the cache up, the next {half} are measured. A row with its state is {record} bytes on the disk, of which {net} are
used. 64 threads read and write the files, not through the page cache. Kernel: cpu_fused. All rows had the bits of
tables in memory in every case.

## Does 20 % of the memory give nearly full speed?

{answer}

![speed beside tables in memory](tiers-speed.png)

## Where it would hold

{needed}

This is arithmetic on the misses that are counted here at {claim} of the rows. If rows move while steps run, the speed
is {nearly:g} of that in fast memory as soon as the slow memory has, in each direction, this share of its bandwidth:

    {nearly:g} * missed rows * bytes of a row / (ids + gradient rows + 2 * distinct rows * bytes of a row)

GH200 has 350 of 4000 GB/s, H100 50 of 3350 GB/s (memory nominal, links as programs reach them, rounded). The CPU has
a round 300 GB/s, and a disk that its maker names with a million random reads a second. This machine is as measured.
yes: enough for lfu. Otherwise: how many times as long as its step of embeddings an iteration must be until all rows
can move. It is an assumption that hot rows stay hot. Larger batches miss more rows, but fewer for each lookup.

## Measured

{speed}

- share: the time of the same steps with all rows in memory (medians before and after) over that of this case, with the
  first rows and the last writes.
- limit: what the disk allows, max(steps in memory, rows fetched / R + rows written / W); without batches ahead the sum
  of both. R and W are rows per second at random places, measured before each case: {rates}. Above 100 % of the limit,
  the disk was quicker than in its own measurement.
- rocksdb: direct I/O, no block cache, no compression, no write-ahead log. Its own memory is not in the MB.
- budget 100 %: all rows of the measured batches were looked up before, so nothing moves.
- fetched, written: rows that came, and changed rows that left.
- index, write back, fetch: ms of a step for look-ups and the choice of slots, for rows that leave, and for rows that
  come. With batches ahead a thread does this while steps run, and a step waits for its rows as long as `wait` says.
- Not here: mmap without slots, which takes a limit on the memory of the process; FBGEMM's table on SSD, whose operators
  are not in the package fbgemm-gpu-cpu 1.9.0.

## Hits

![rows of a batch that are in memory](tiers-hits.png)

{hits}

Share of a batch's distinct rows that are in memory, and in brackets of its lookups; counted. belady knows all
batches, so no policy misses fewer rows. `-`: the slots are fewer than the rows of a batch. At 100 %, only rows miss
that no batch of the warm-up touched. histogram: reuse within a batch as in Meta's published batches; that hot rows
stay from batch to batch is an assumption. Traces are short: {traces}."""


# --- what is run
def sources(args):
    """[(name, spec, trace, batches)]"""
    spec = dict(rows=ROWS, dim=DIM, bags=BAGS, lookups=LOOKUPS)
    out = [(f"alpha {a}", {"ids": f"zipf\nalpha {a}"}, "-") for a in args.alpha.split()]
    for year in (2021, 2022):
        out.append((f"histogram {year}", {"rows": 10 * ROWS, "dim": 4, "ids": f"histogram-{year}"}, "-"))
    for name, bags in TRACES.items():
        path = os.path.join(args.traces, name + ".txt.gz")
        if args.traces and os.path.exists(path):
            out.append((name, {"rows": 1, "dim": 4, "bags": bags, "lookups": 1, "ids": "zipf"}, path))
    return [(name, SPEC.format(**spec | facts), trace, int(args.batches) if trace == "-" else 4096)
            for name, facts, trace in out]


def cases(source, budgets, rocksdb):
    """The points of a source, as the program takes them."""
    out = []
    for store, policies, aheads, where in POINTS:
        chosen = [b for b in budgets if where != "claim" or source == CLAIM_ALPHA and b == CLAIM]
        if where == "sources" or source.startswith("alpha ") and (store != "rocksdb" or rocksdb):
            out += [f"{store},{b:g},{policy},{ahead}" for b in chosen for policy in policies for ahead in aheads]
    return out


def checked(args):
    """Budgets as shares."""
    for name in ("budget", "alpha"):
        for word in getattr(args, name).split():
            if not re.fullmatch(r"\d+(\.\d+)?", word):
                raise ResultError(f"{name.upper()}: '{word}' is no number")
    if not re.fullmatch(r"[1-9]\d{1,3}", args.batches) or int(args.batches) > 4096:
        raise ResultError(f"BATCHES: '{args.batches}' is no number from 10 to 4096")
    budgets = [float(b) / 100 for b in args.budget.split()]
    if not budgets or not all(0 < b <= 1 for b in budgets):
        raise ResultError(f"BUDGET: '{args.budget}': percent of the rows, above 0 and up to 100")
    return budgets


def measure(args):
    budgets, lines, todo = checked(args), [{"machine": this_machine()}], sources(args)
    rocksdb = "librocksdb" in subprocess.run(["ldd", args.tiers], capture_output=True, text=True, check=False).stdout
    folder = os.path.dirname(os.path.abspath(args.lines))
    os.makedirs(folder, exist_ok=True)
    for i, (name, spec, trace, batches) in enumerate(todo, 1):
        words = cases(name, budgets, rocksdb)
        say(f"source {i} of {len(todo)}: {name}, {len(words)} cases")
        work = tempfile.mkdtemp(prefix="tables-", dir=folder)
        try:
            done = subprocess.run([args.tiers, spec, trace, str(batches), os.path.join(work, "rows"), *words],
                                  capture_output=True, text=True, check=False)
        finally:
            shutil.rmtree(work)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"{args.tiers} ended with status {done.returncode}"]
            raise ResultError(said[-1])
        lines += [{"source": name} | json.loads(line) for line in done.stdout.splitlines()]
    write_whole(args.lines, "".join(json.dumps(x) + "\n" for x in lines))


# --- what came out
def read(path):
    """The machine, lines of hits (store memory), and lines of steps."""
    machine, hits, steps = [], [], []

    def take(x):
        if "machine" in x:
            machine.append(x["machine"])
        elif x["store"] == "memory":
            hits.append(x if "missing" in x else x | {"hits": 1 - x["row_misses"] / x["rows"],
                                                    "by_lookup": 1 - x["lookup_misses"] / x["lookups"]})
        elif "missing" not in x:
            steps.append(x | speed(x))

    read_lines(path, "tiers", take)
    missing = [x["missing"] for x in hits if "missing" in x]
    if missing and not steps:
        raise ResultError(f"BUDGET: every one has fewer slots than a batch has rows, the best by {min(missing)}")
    if not machine or not hits or not steps:
        raise ResultError(f"{path}: lines are missing; run make bench-tiers")
    return machine[0], hits, steps


def speed(x):
    memory = sum(x["memory"]) / 2
    found = {"in_memory": memory, "share": memory / x["seconds"], "limit": None, "of_limit": None}
    if x["store"] != "files":  # what its disk allows is not measured
        return found
    disk = x["row_misses"] / x["reads"] + x["written_back"] / x["writes"]
    least = max(memory, disk) if x["ahead"] else memory + disk
    return found | {"limit": memory / least, "of_limit": least / x["seconds"]}


def percent(value, digits=3):
    return "-" if value is None else f"{number(100 * value, digits)} %"


def speed_table(steps):
    heads = ("source", "store", "budget", "policy", "ahead", "step, ms", "in memory", "share", "limit", "of the limit",
             "fetched / step", "written / step", "disk read, MB / step", "MB in memory", "index", "write back", "fetch",
             "wait")
    rows = []
    for x in steps:
        each = lambda scale, *parts, x=x: [number(scale * x[p] / x["batches"]) for p in parts]
        rows.append((x["source"], x["store"], percent(x["budget"], 2), x["policy"], str(x["ahead"]),
                     *each(1e3, "seconds", "in_memory"), *(percent(x[p]) for p in ("share", "limit", "of_limit")),
                     *each(1, "row_misses", "written_back"), *each(1e-6, "disk_read"), number(x["bytes"] / 1e6),
                     *each(1e3, "index", "write_back", "fetch", "wait")))
    return markdown_table(heads, rows, left=(0, 1, 3))


def hits_table(hits):
    found = {(x["source"], x["budget"], x["policy"]): x for x in hits}
    text = lambda x: "-" if "missing" in x else f"{percent(x['hits'])} ({percent(x['by_lookup'])})"
    return markdown_table(("source", "budget", *POLICIES), [
        (source, percent(budget, 2), *(text(found[source, budget, p]) for p in POLICIES))
        for source, budget in dict.fromkeys((x["source"], x["budget"]) for x in hits)])


def answer(steps):
    """The claim at 20 %, in words."""
    own = [x for x in steps if (x["store"], x["budget"], x["policy"], x["ahead"]) == ("files", CLAIM, "lru", 2)]
    if not own:
        return f"Not measured: BUDGET does not have {100 * CLAIM:g}."
    parts = "; ".join(f"{percent(x['share'])} at {x['source']}" for x in own)
    yes = sum(x["share"] >= NEARLY for x in own)
    best = max(own, key=lambda x: x["share"])
    needed = best["row_misses"] / best["in_memory"]
    verdict = "Yes" if yes == len(own) else "No" if not yes else "Sometimes"
    return (f"{verdict}, on this disk: with LRU and 2 batches ahead the speed is {parts}, of that with all rows in "
            f"memory. A step in memory takes {number(1e3 * best['in_memory'] / best['batches'])} ms, and misses "
            f"{number(best['row_misses'] / best['batches'])} rows ({best['source']}, the best case). To keep up, a "
            f"disk must read {number(needed / 1e6)} million rows per second at random places, and write as many; "
            f"this one reads {number(best['reads'] / 1e6)} million.")


# --- what a slow memory would have to give
def moved(x):
    """Bytes that the steps of a line must move in fast memory."""
    return 8 * x["lookups"] + x["batches"] * BAGS * 4 * DIM + 2 * x["rows"] * ROW


def needs(hits):
    """{policy: [(alpha, share of the fast memory's bandwidth)]}"""
    own = [x for x in hits if x["source"].startswith("alpha ") and x["budget"] == CLAIM and "missing" not in x]
    need = lambda x: (float(x["source"].split()[1]), NEARLY * x["row_misses"] * ROW / moved(x))
    return {p: [need(x) for x in own if x["policy"] == p] for p in POLICIES}


def machines(steps):
    """[(name, share)] of links, and of this machine: its disk beside its steps in memory."""
    own = [x for x in steps if (x["source"], x["store"], x["budget"]) == (CLAIM_ALPHA, "files", CLAIM)]
    disk = [("this machine, its disk", x["reads"] * ROW / (moved(x) / x["in_memory"])) for x in own[:1]]
    return [*LINKS.items(), *disk]


def needed_table(found, have):
    enough = lambda share, least: "yes" if share >= least else f"{number(least / share, 2)}x"
    rows = [(f"needed, {p}", *(percent(share) for _, share in found[p])) for p in POLICIES]
    for name, share in have:
        rows.append((f"{name}: {percent(share)}", *(enough(share, least) for _, least in found["lfu"])))
    heads = ("", *(f"alpha {a:g}" for a, _ in found["lru"]))
    return ["![needed bandwidth](tiers-claim.png)", "", *markdown_table(heads, rows, left=range(len(heads)))]


# --- figures: blocks of data are panel by panel, a line of (x, y) with its title for each key
def panels(found, keys):
    """keys: {title: y of a line, or None}. x: percent of the rows in memory."""
    titles = list(dict.fromkeys(x["source"] for x in found))
    blocks = []
    for source in titles:
        for key, value in keys.items():
            own = [x for x in found if x["source"] == source and value(x) is not None]
            points = sorted((100 * x["budget"], 100 * value(x)) for x in own)
            blocks.append([[key], *(points or [(100, float("nan"))])])
    return {"panels": len(titles), "titles": names(titles), "series": len(keys), "names": names(keys)}, blocks


def decades(values):
    """Powers of ten around percentages."""
    least, most = math.log10(100 * min(values)), math.log10(100 * max(values))
    return {"least": 10 ** math.floor(least), "most": 10 ** math.ceil(most)}


def pictures(machine, hits, steps, found, have, outdir):
    colours = " ".join(COLOURS[:len(POLICIES)])
    facts, blocks = panels(hits, {p: lambda x, p=p: x.get("hits") if x["policy"] == p else None for p in POLICIES})
    yield figure(os.path.join(HERE, "tiers"), os.path.join(outdir, "tiers-hits"), facts | {
        "heading": "Distinct rows of a batch that are in memory, %",
        "machine": "counted, by share of the rows in slots", "least": 0, "colours": colours}, blocks)
    lru = [x for x in steps if x["policy"] == "lru" and x["ahead"] in (0, 2) and x["store"] == "files"]
    at = lambda ahead, what: lambda x: x[what] if x["ahead"] == ahead else None
    facts, blocks = panels(lru, {"2 batches ahead": at(2, "share"), "limit of the disk": at(2, "limit"),
                                 "none ahead": at(0, "share")})
    yield figure(os.path.join(HERE, "tiers"), os.path.join(outdir, "tiers-speed"), facts | {
        "heading": "Speed beside tables in memory, %", "machine": f"{machine}, LRU, files",
        **decades([x[what] for x in lru for what in ("share", "limit")]),
        "colours": " ".join((COLOURS[0], "#777777", COLOURS[1]))}, blocks)
    if not found["lru"]:
        return
    alphas = [a for a, _ in found["lru"]]
    yield figure(os.path.join(HERE, "claim"), os.path.join(outdir, "tiers-claim"), {
        "heading": f"Slow memory that makes {percent(CLAIM, 2)} of the rows enough, by arithmetic",
        "machine": "misses are counted, bandwidths are published", "series": len(POLICIES),
        "names": names(POLICIES), "from": min(alphas), "to": max(alphas), "colours": colours,
        **decades([share for line in (*found.values(), have) for _, share in line])},
        [[[p], *([a, 100 * share] for a, share in found[p])] for p in POLICIES],
        [[[100 * share, name] for name, share in have]])


def main():
    parser = Arguments(__doc__)
    parser.add_argument("lines", metavar="LINES", help="lines of extras/tiers/study/tiers")
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--tiers", help="the program: it runs first")
    parser.add_argument("--budget", default="5 10 20 50 100", help="percent of the rows in memory")
    parser.add_argument("--alpha", default="0.6 0.8 1.05 1.2")
    parser.add_argument("--batches", default="128", help="half of them warm up")
    parser.add_argument("--traces", default="", help="a folder with recorded ids")
    args = parser.parse_args()
    if args.tiers:
        measure(args)
    machine, hits, steps = read(args.lines)
    found, have = needs(hits), machines(steps)
    os.makedirs(args.outdir, exist_ok=True)
    for drawn in [*pictures(machine, hits, steps, found, have, os.path.abspath(args.outdir))]:
        list(draw(drawn, args.outdir))
    lines = "\n".join
    table = lines(speed_table(steps))
    rates = [[number(f(x[what] for x in steps if x[what])) for f in (min, max)] for what in ("reads", "writes")]
    traces = {x["source"]: x["batches"] for x in hits if "batches" in x and x["source"] in TRACES}
    write_whole(os.path.join(args.outdir, "tiers.md"), TEXT.format(
        machine=machine, rows=ROWS, dim=DIM, bags=BAGS, lookups=LOOKUPS, half=steps[0]["batches"],
        record=steps[0]["record"], net=ROW, answer=answer(steps), claim=percent(CLAIM, 2), nearly=NEARLY, speed=table,
        needed=lines(needed_table(found, have)) if found["lru"] else "Not counted: BUDGET does not have 20.",
        rates=" and ".join(" to ".join(r) for r in rates), hits=lines(hits_table(hits)),
        traces="; ".join(f"{t} has {n} measured batches" for t, n in traces.items()) or "none was there"))
    print(table)


if __name__ == "__main__":
    program.run(main)
