#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables on a disk with a share of their rows in memory: hits of every policy, speed beside tables in memory, and whether
20 % of the memory gives nearly full speed.

Runs extras/tiers/study/tiers.c, unless LINES is there and --tiers is not given, and writes OUTDIR/tiers.md and two figures.
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

SPEC = ("workload tiers\nrows {rows}\ndim 64\nbatch {bags}\n{lengths}\nids {ids}\nrule rowwise_adagrad\n")
ROWS, BAGS, LOOKUPS, BATCHES = 200000, 1024, 8, 128
TRACES = {"gpt2_novels_1024": 2, "tang_poems": 12, "retail_items": 20}  # bags of a batch: its rows fit into few slots
POLICIES = ("lru", "lfu", "belady")
CLAIM = 0.2  # the share of the memory that is said to be enough
NEARLY = 0.9  # full speed
ROW = 64 * 4 + 4  # bytes with its state
# Slow memory beside fast memory: links as seen by others, fast memory nominal, in GB/s. Rows per second of an NVMe disk count, since
# 512 bytes cost as much as 4096.
CLAIM_ALPHA = "1.05"
LINKS = {"GH200, NVLink-C2C": 350 / 4000, "H100, PCIe 5": 50 / 3350, "CPU, NVMe": 1e6 * ROW / 300e9}
TEXT = """# Tables larger than the fast memory

`make bench-tiers` makes this page (extras/tiers/study/tiers.md is a copy of one run). {machine}. A table of {rows:,} rows of 64
floats with row-wise Adagrad, {bags} bags of {lookups} lookups a step, ids by Zipf; {half} batches warm the cache up, the next
{half} are measured. A row with its state is {record} bytes on the disk, of which {net} are used. Files are read and
written by {engine}, 64 at a time, not through the page cache. Kernel: cpu_fused. Rows of the last batch had the bits of
tables in memory in every case.

## Does 20 % of the memory give nearly full speed?

{answer}

![speed beside tables in memory](tiers-speed.png)

## Where it would hold

{needed}

By arithmetic, from the misses that are counted here at {claim} of the rows. With rows fetched and written back while steps run,
the speed is {nearly:g} of that in fast memory if the slow memory has at least the bandwidth

    {nearly:g} * missed rows * bytes of a row / (ids + gradient rows + 2 * distinct rows * bytes of a row)

of the fast one, in each direction: the divisor is what a step must move in fast memory. GH200: 350 of 4000 GB/s; H100: 50 of
3350 GB/s (memory as NVIDIA names it, of the links what programs are known to reach, rounded); CPU: a round 300 GB/s, and a disk of the class
that its makers name with a million random reads a second; this machine as measured. yes: enough for lfu. Otherwise: how many
times as long an iteration must be as its step of embeddings, by forward and dense layers, until all rows can move meanwhile.
Hot rows stay hot here, which is an assumption. Batches are small; larger ones miss more rows, but fewer for each lookup.

## Measured

{speed}

- share: the time of the same steps with all rows in memory (medians before and after) over that of this case. The time of a case is
  that of all its steps, the first rows of them and the last writes of them included.
- limit: what the disk allows by arithmetic, max(steps in memory, rows fetched / R + rows written / W); without batches
  ahead the sum of both. R and W are rows per second at random places, measured before each case: {rates}.
- of the limit: how near the case comes to it. Above 100 %: the disk was quicker than in its own measurement.
- rocksdb: the same slots over RocksDB in place of files: direct I/O, no block cache, no compression, no write-ahead log.
- Plain mmap would have no slots: a kernel on mapped tables, and a limit on the memory of the process with its pages. Such
  a limit is a control group's, which belongs to whoever runs the machine; the study makes none.
- page cache: what of the store's files was in it after the last step (mincore). It comes on top of the MB in memory.
  disk read: what the disk read for this process, and major faults, both by step.
- FBGEMM's table on SSD is not here: fbgemm-gpu-cpu 1.9.0, the package of `make peers`, has its Python (fbgemm_gpu.tbe.ssd), but its
  libraries have none of the operators (no EmbeddingRocksDBWrapper, no ssd_cache_populate_actions).
- budget 100 %: all rows of the measured batches were looked up before, so nothing moves.
- written: rows that had changed and left. index + remap: looking up ids, choosing slots, and giving lookups their slots; as a share
  of the time of these steps. With batches ahead another thread does it.

## Where the time goes

{stages}

Seconds of the thread that fetches, per 1000 steps. With batches ahead it works while steps run; a step then waits for its
rows as long as `wait` says. held: the thread waits until slots of batches under way are free.

## Hits

![rows of a batch that are in memory](tiers-hits.png)

{hits}

Share of a batch's distinct rows that are in memory; in brackets of its lookups. Counts, no times. belady: the fewest misses that any policy can have, since it knows all batches. `-`: the slots are
fewer than the rows of a batch. At 100 % what misses is rows that no batch of the warm-up has touched. histogram: the reuse within a batch is that of Meta's published batches; from batch to batch hot
rows stay and others are new, which is an assumption of this suite. Traces are short: {traces}.
"""


# --- what is run
def sources(args):
    """[(name, spec, trace, batches)]"""
    lengths = f"length fixed {LOOKUPS}"
    out = [(f"alpha {a}", SPEC.format(rows=ROWS, bags=BAGS, lengths=lengths, ids=f"zipf\nalpha {a}"), "-", int(args.batches))
           for a in args.alpha.split()]
    out += [(f"histogram {year}", SPEC.format(rows=10 * ROWS, bags=BAGS, lengths=lengths, ids=f"histogram-{year}"), "-",
             int(args.batches)) for year in (2021, 2022)]
    for name, bags in TRACES.items():
        path = os.path.join(args.traces, name + ".txt.gz")
        if args.traces and os.path.exists(path):
            out.append((name, SPEC.format(rows=1, bags=bags, lengths="length fixed 1", ids="zipf"), path, 4096))
    return out


def cases(name, budgets, rocksdb):
    """Steps of a source: those of Zipf alone; other stores at one skew."""
    if not name.startswith("alpha "):
        return []
    out = [f"{b},lru,{ahead}" for b in budgets for ahead in (0, 2)]
    if name == f"alpha {CLAIM_ALPHA}" and CLAIM in budgets:
        out += [f"{CLAIM},{policy},2" for policy in POLICIES[1:]] + [f"{CLAIM},lru,{ahead}" for ahead in (1, 4)]
    if name == f"alpha {CLAIM_ALPHA}":
        if CLAIM in budgets and rocksdb:
            out += [f"{CLAIM},lru,{ahead},rocksdb" for ahead in (0, 2)]
    return out


def has_rocksdb(tiers):
    linked = subprocess.run(["ldd", tiers], capture_output=True, text=True, check=False).stdout
    return "librocksdb" in linked


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
    folder = os.path.dirname(os.path.abspath(args.lines))
    os.makedirs(folder, exist_ok=True)
    for i, (name, spec, trace, batches) in enumerate(todo, 1):
        words = [f"{b:g}" for b in budgets] + cases(name, budgets, has_rocksdb(args.tiers))
        say(f"source {i} of {len(todo)}: {name}, {len(words)} cases")
        work = tempfile.mkdtemp(prefix="tables-", dir=folder)
        try:
            done = subprocess.run([args.tiers, spec, trace, str(batches), os.path.join(work, "rows"), *words],
                                  capture_output=True, text=True, check=False)
        finally:
            shutil.rmtree(work)
        if done.returncode:
            raise ResultError((done.stderr.strip().splitlines() or [f"{args.tiers} ended with status {done.returncode}"])[-1])
        lines += [{"source": name} | json.loads(line) for line in done.stdout.splitlines()]
    write_whole(args.lines, "".join(json.dumps(x) + "\n" for x in lines))


# --- what came out
def read(path):
    name, hits, steps, lacks = [], [], [], []

    def take(x):
        if "machine" in x:
            name.append(x["machine"])
        elif "hits" in x:
            hits.append(x | {"by_row": share(x, "row"), "by_lookup": share(x, "lookup")})
        elif "lacks" in x:
            lacks.append(x["lacks"])
        else:
            steps.append(x | derived(x))

    read_lines(path, "tiers", take)
    if lacks and not steps:
        raise ResultError(f"BUDGET: every one has fewer slots than a batch has rows, the best by {min(lacks)}")
    if not name or not hits or not steps:
        raise ResultError(f"{path}: lines are missing; run make bench-tiers")
    return name[0], hits, steps


def engine_of(steps):
    """What read and wrote the files; older lines do not say it."""
    say = {None: "an engine that is not recorded", "threads": "threads (the kernel allows no io_uring)"}
    return " or ".join(sorted({say.get(e, e) for e in (x.get("engine") for x in steps if x["store"] == "files")}))


def share(x, what):
    return None if x["lacks"] else 1 - x[f"{what}_misses"] / x[f"{what}s"]


def derived(x):
    if not x["right"]:
        raise ValueError("wrong rows")
    memory = sum(x["memory"]) / 2
    if x["store"] != "files":  # nobody has measured what its disk allows
        return {"share": memory / x["seconds"], "limit": None, "of_limit": None, "in_memory": memory}
    disk = x["row_misses"] / x["reads"] + x["stored"] / x["writes"]
    least = max(memory, disk) if x["ahead"] else memory + disk
    return {"share": memory / x["seconds"], "limit": memory / least, "of_limit": least / x["seconds"], "in_memory": memory}


def percent(value, digits=3):
    return "-" if value is None else f"{number(100 * value, digits)} %"


def speed_table(steps):
    heads = ("source", "store", "budget", "policy", "ahead", "step, ms", "in memory", "share", "limit", "of the limit", "fetched / step",
             "written / step", "disk read, MB / step", "faults / step", "MB in memory", "page cache, MB", "index + remap")
    return markdown_table(heads, [
        (x["source"], x["store"], percent(x["budget"], 2), x["policy"], str(x["ahead"]), number(1e3 * x["seconds"] / x["batches"]),
         number(1e3 * x["in_memory"] / x["batches"]), percent(x["share"]), percent(x["limit"]), percent(x["of_limit"]),
         number(x["row_misses"] / x["batches"]), number(x["stored"] / x["batches"]), number(x["disk_read"] / x["batches"] / 1e6),
         number(x["faults"] / x["batches"]), number(x["bytes"] / 1e6), number(x["page_cache"] / 1e6),
         percent((x["index"] + x["remap"]) / x["seconds"], 2)) for x in steps], left=(0, 1, 3))


def stages_table(steps):
    parts = ("index", "write_back", "fetch", "remap", "held", "wait")
    return markdown_table(("source", "store", "budget", "policy", "ahead", *(p.replace("_", " ") for p in parts), "whole"), [
        (x["source"], x["store"], percent(x["budget"], 2), x["policy"], str(x["ahead"]),
         *(number(1e3 * x[p] / x["batches"]) for p in parts), number(1e3 * x["seconds"] / x["batches"])) for x in steps],
        left=(0, 1, 3))


def hits_table(hits):
    found = {(x["source"], x["budget"], x["hits"]): x for x in hits}
    rows = []
    for source, budget in dict.fromkeys((x["source"], x["budget"]) for x in hits):
        own = [found[source, budget, p] for p in POLICIES]
        rows.append((source, percent(budget, 2), *(percent(x["by_row"]) + ("" if x["lacks"] else f" ({percent(x['by_lookup'])})")
                                                  for x in own)))
    return markdown_table(("source", "budget", *POLICIES), rows)


def answer(steps):
    """The claim at 20 %, in words."""
    own = [x for x in steps if (x["store"], x["budget"], x["policy"], x["ahead"]) == ("files", CLAIM, "lru", 2)]
    if not own:
        return f"Not measured: BUDGET lacks {100 * CLAIM:g}."
    parts = "; ".join(f"{percent(x['share'])} at {x['source']}" for x in own)
    yes = sum(x["share"] >= 0.9 for x in own)
    why = max(own, key=lambda x: x["share"])
    needed = why["row_misses"] / why["in_memory"]
    return (f"{'Yes' if yes == len(own) else 'No' if not yes else 'Sometimes'}, on this disk: with LRU and 2 batches ahead the speed "
            f"is {parts}, of that with all rows in memory. A step in memory takes "
            f"{number(1e3 * why['in_memory'] / why['batches'])} ms, and misses {number(why['row_misses'] / why['batches'])} rows "
            f"({why['source']}, the best case). To keep up, a disk must read {number(needed / 1e6)} million rows per second at random "
            f"places, and write as many; this one reads {number(why['reads'] / 1e6)} million.")


# --- what a slow memory would have to give
def moved(x):
    """Bytes that the steps of a line of hits must move in fast memory."""
    return 8 * x["lookups"] + x["batches"] * BAGS * 4 * 64 + 2 * x["rows"] * ROW


def need(x):
    """The share of the fast memory's bandwidth."""
    return NEARLY * x["row_misses"] * ROW / moved(x)


def needs(hits):
    """{policy: [(alpha, share)]}"""
    own = [x for x in hits if x["source"].startswith("alpha ") and x["budget"] == CLAIM and not x["lacks"]]
    return {p: [(float(x["source"].split()[1]), need(x)) for x in own if x["hits"] == p] for p in ("lru", "lfu", "belady")}


def machines(hits, steps):
    """[(name, share)] of links, and of this machine: its disk beside its steps in memory."""
    out = list(LINKS.items())
    own = [x for x in steps if x["source"] == f"alpha {CLAIM_ALPHA}" and x["store"] == "files" and x["budget"] == CLAIM]
    found = [x for x in hits if x["source"] == f"alpha {CLAIM_ALPHA}" and x["budget"] == CLAIM]
    if own and found:
        out.append(("this machine, its disk", own[0]["reads"] * ROW / (moved(found[0]) / own[0]["in_memory"])))
    return out


def needed_table(hits, steps):
    found, have = needs(hits), machines(hits, steps)
    alphas = [a for a, _ in found["lru"]]
    head = ("", *(f"alpha {a:g}" for a in alphas))
    rows = [(f"needed, {p}", *(percent(share) for _, share in found[p])) for p in found]
    rows += [(f"{name}: {percent(share)}", *("yes" if share >= least else f"{number(least / share, 2)}x" for _, least in found["lfu"])) for name, share in have]
    if not alphas:
        return ["Not counted: BUDGET lacks 20."]
    return ["![needed bandwidth](tiers-claim.png)", "", *markdown_table(head, rows, left=range(len(head)))]


def claim_picture(name, hits, steps, outdir):
    found, have = needs(hits), machines(hits, steps)
    shares = [100 * share for p in found for _, share in found[p]] + [100 * share for _, share in have]
    alphas = [a for a, _ in found["lru"]]
    blocks = [[[p], *([a, 100 * share] for a, share in found[p])] for p in found]
    return figure(os.path.join(HERE, "claim"), os.path.join(outdir, "tiers-claim"), {
        "heading": f"Slow memory that makes {percent(CLAIM, 2)} of the rows enough, by arithmetic", "machine": "misses are counted, bandwidths are those of others",
        "series": len(found), "names": names(found), "from": min(alphas), "to": max(alphas), "colours": " ".join(COLOURS[:len(found)]),
        "least": 10 ** math.floor(math.log10(min(shares))), "most": 10 ** math.ceil(math.log10(max(shares)))}, blocks,
        [[[100 * share, n] for n, share in have]])


def limits(values):
    return f"{number(min(values))} to {number(max(values))}"


def panels(found, keys, value, x_of):
    """Blocks of the figure: panel by panel, a line for each key."""
    titles = list(dict.fromkeys(x["source"] for x in found))
    blocks = []
    for title in titles:
        for key, chosen in keys:
            own = sorted((x_of(x), value(x, key)) for x in found if x["source"] == title and chosen(x) and value(x, key) is not None)
            blocks.append([[key], *([a, 100 * b] for a, b in own or [(100, float("nan"))])])
    return titles, blocks


def pictures(name, hits, steps, outdir):
    budget = lambda x: 100 * x["budget"]
    titles, blocks = panels(hits, [(p, lambda x, p=p: x["hits"] == p) for p in POLICIES], lambda x, _: x["by_row"], budget)
    yield figure(os.path.join(HERE, "tiers"), os.path.join(outdir, "tiers-hits"), {
        "heading": "Distinct rows of a batch that are in memory, %", "machine": "counted, by share of the rows in slots", "panels": len(titles),
        "series": len(POLICIES), "titles": names(titles), "names": names(POLICIES), "least": 0,
        "colours": " ".join(COLOURS[:len(POLICIES)])}, blocks)
    lru = [x for x in steps if x["policy"] == "lru" and x["ahead"] in (0, 2) and x["store"] == "files"]
    keys = [("2 batches ahead", lambda x: x["ahead"] == 2), ("limit of the disk", lambda x: x["ahead"] == 2),
            ("none ahead", lambda x: x["ahead"] == 0)]
    titles, blocks = panels(lru, keys, lambda x, key: x["limit" if key.startswith("limit") else "share"], budget)
    yield figure(os.path.join(HERE, "tiers"), os.path.join(outdir, "tiers-speed"), {
        "heading": "Speed beside tables in memory, %", "machine": f"{name}, LRU, files by {engine_of(steps)}", "panels": len(titles), "series": len(keys),
        "titles": names(titles), "names": names(k for k, _ in keys), "least": 10 ** math.floor(math.log10(100 * min(min(x["share"], x["limit"]) for x in lru))),
        "colours": " ".join((COLOURS[0], "#777777", COLOURS[1]))}, blocks)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("lines", metavar="LINES", help="lines of extras/tiers/study/tiers")
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--tiers", help="the program: it runs first")
    parser.add_argument("--budget", default="5 10 20 50 100", help="percent of the rows in memory")
    parser.add_argument("--alpha", default="0.6 0.8 1.05 1.2")
    parser.add_argument("--batches", default=str(BATCHES), help="half of them warm up")
    parser.add_argument("--traces", default="", help="a folder with recorded ids")
    args = parser.parse_args()
    if args.tiers:
        measure(args)
    name, hits, steps = read(args.lines)
    os.makedirs(args.outdir, exist_ok=True)
    drawings = [*pictures(name, hits, steps, os.path.abspath(args.outdir))]
    if needs(hits)["lru"]:
        drawings.append(claim_picture(name, hits, steps, os.path.abspath(args.outdir)))
    for drawn in drawings:
        list(draw(drawn, args.outdir))
    speed = "\n".join(speed_table(steps))
    rates = f"{limits([x['reads'] for x in steps if x['reads']])} and {limits([x['writes'] for x in steps if x['writes']])}"
    found = list(dict.fromkeys(x["source"] for x in hits if not x["source"].startswith(("alpha", "histogram"))))
    traces = "; ".join(f"{t} has {next(x['batches'] for x in hits if x['source'] == t)} measured batches" for t in found)
    write_whole(os.path.join(args.outdir, "tiers.md"), TEXT.format(
        machine=name, engine=engine_of(steps), rows=ROWS, bags=BAGS, lookups=LOOKUPS, half=steps[0]["batches"], record=steps[0]["record"], net=ROW,
        answer=answer(steps), needed="\n".join(needed_table(hits, steps)), claim=percent(CLAIM, 2), nearly=NEARLY, speed=speed, rates=rates, stages="\n".join(stages_table(steps)), hits="\n".join(hits_table(hits)),
        traces=traces or "none was there"))
    print(speed)


if __name__ == "__main__":
    program.run(main)
