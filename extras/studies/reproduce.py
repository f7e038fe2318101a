#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes every figure and table of the pages again: from the recorded results, in a copy under OUTDIR that is
compared with the pages, or from a new run (--run). Prints each item with its command and its cost.

From records: --again are the commands that write the pages; they run in the copy. A page or the data of a picture
that comes out different is older than its record, or was edited. Records and pictures must have the sums that were
written with the pages, since other libraries draw other pictures. --run: measures items on this machine, one after
another, and writes what they cost to OUTDIR/costs.json. --update: only fills the table of ARTIFACT.md, and writes the
sums.

Exit status: 0 every page is as its records are, 1 usage, 2 an item of a new run failed, 3 a page is older than its
record, or something was edited by hand.
"""
import datetime
import glob
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "reports"))
import items
import program
import section
from items import BY_NAME, COSTS, ITEMS
from program import Arguments, ResultError, say, write_whole
from recorded import ROOT, STORED, cpu_name
from style import markdown_table, text_table

# What the copy has of its own; all else is linked.
OWN = ("README.md", "ARTIFACT.md", "docs", "reports", "extras/studies",
       *(os.path.relpath(p, ROOT) for p in glob.glob(os.path.join(ROOT, "extras/*/study")) if p.split("/")[-2] != "studies"))
COMPARED = (".md", ".tsv")  # pictures themselves differ with the libraries that draw them
SUMS = "reports/results/SHA256SUMS"  # sha256sum -c reads it
SUMMED = ("reports/results/*.json", "reports/results/*/gpu-verify.txt", "reports/results/*/*.json.gz",
          *(f"{folder}.{kind}" for folder in ("reports/results/*", "reports/results/*/*", "extras/*/study/*",
                                              "extras/*/study/*/*") for kind in ("svg", "png")))
SAME, OLD, BY_RUN, NOT_THERE = "same", "OLD", "needs a run", "not recorded"
HEADS = ("item", "what", "shows on", "new run", "time", "memory", "disk")
NAME = "mine"  # of a machine, in commands of pages


# --- from records
def take(source, target):
    """Copies a file; a result is linked, since no page writer writes it."""
    (os.symlink if source.endswith(STORED) else shutil.copyfile)(source, target)


def copy(root, into, own=OWN):
    """A copy of the tree in which pages can be written again."""
    shutil.rmtree(into, ignore_errors=True)
    os.makedirs(into)
    for name in {*os.listdir(root)} - {"build", ".git"}:
        source, target = os.path.join(root, name), os.path.join(into, name)
        inside = [path.removeprefix(f"{name}/") for path in own if path.startswith(f"{name}/")]
        if inside:
            copy(source, target, inside)
        elif name not in own:
            os.symlink(source, target)
        elif os.path.isdir(source):
            shutil.copytree(source, target, copy_function=take, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)


def make_again(commands, root):
    for command in commands:
        done = subprocess.run(shlex.split(command), cwd=root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ResultError((done.stderr.strip().splitlines() or [f"{command} ended with {done.returncode}"])[-1])


def texts(root):
    """{file: text} of the pages and the data of pictures, relative to the root."""
    files = [p for name in OWN for p in (Path(root, name), *Path(root, name).rglob("*"))]
    return {os.path.relpath(p, root): p.read_text(encoding="utf-8", errors="surrogateescape") for p in files
            if p.suffix in COMPARED and p.is_file()}


def older(root, new):
    """(files that come out different, {item} that shows in one of them)"""
    ours, theirs = texts(root), texts(new)
    differ = sorted(f for f in ours.keys() | theirs.keys() if ours.get(f) != theirs.get(f))
    old = {item.name for f in differ for item in ITEMS if item.owns(f)}
    for f in differ:
        was, now = (items.sections(t.get(f, "")) for t in (ours, theirs))
        changed = {n for n in was.keys() | now.keys() if was.get(n) != now.get(n)}
        old |= {item.name for item in ITEMS if any(map(item.fills, changed))}
    return differ, old


def sums(root):
    """{record or picture: its sum}, relative to the root."""
    found = sorted(p for pattern in SUMMED for p in glob.glob(os.path.join(root, pattern)))
    return {os.path.relpath(p, root): hashlib.sha256(Path(p).read_bytes()).hexdigest() for p in found}


def edited(root):
    """Lines about records and pictures that are not as they were when the pages were written."""
    now, path = sums(root), Path(root, SUMS)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    known = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    state = lambda name: "is not there" if name not in now else "is new" if name not in known else "was edited"
    return [f"{name} {state(name)}; {SUMS} has its sum of the last make readme"
            for name in sorted(now.keys() | known.keys()) if now.get(name) != known.get(name)]


# --- what is printed
def short(pages):
    """Pages as a list of few words."""
    own = [os.path.basename(p) for p in pages if not p.startswith("reports/results/")]
    count = len(pages) - len(own)
    return ", ".join([*own, *[f"{count} machine page{'s'[:count > 1]}"] * bool(count)]) or "-"


def command(item, name):
    return item.run.format(name=name)


def rows(root, name):
    """A row per item: the cells of HEADS."""
    where, costs = items.shown(root)[0], items.costs(root)
    return [(i.name, i.what, short(where[i.name]), command(i, name), *costs[i.name].texts()) for i in ITEMS]


def update(path):
    root = os.path.dirname(os.path.abspath(path))
    own = [(f"`{a}`", b, c, f"`{d}`", *more) for a, b, c, d, *more in rows(root, NAME)]
    section.update(path, "items", "\n".join(markdown_table(HEADS, own, left=range(4))))
    write_whole(os.path.join(root, SUMS), "".join(f"{digest}  {name}\n" for name, digest in sums(root).items()))
    print(path)


def state(item, root, old):
    if not item.remade:
        return BY_RUN
    there = any(glob.glob(os.path.join(root, f"reports/results/*/{n}{STORED}")) for n in item.records)
    return OLD if item.name in old else SAME if there or not item.records else NOT_THERE


def from_records(args):
    new = os.path.join(args.outdir, "pages")
    copy(ROOT, new)
    make_again(args.again, new)
    differ, old = older(ROOT, new)
    orphans = items.shown(ROOT)[1] + edited(ROOT)
    table = [("item", "state", *HEADS[2:])]
    table += [(name, state(BY_NAME[name], ROOT, old), *more) for name, _, *more in rows(ROOT, args.name or "NAME")]
    print("\n".join(text_table(table, left=range(4))))
    print(f"\n{SAME}: made again from the records, byte for byte, in {new}; a picture by its data.\n"
          f"{BY_RUN}: not made of a record. RUN=1 ITEMS='drift zero' measures items on this machine.", flush=True)
    for line in [f"{file} is not what the records say; make readme writes it again" for file in differ] + orphans:
        print(f"OLD: {line}", file=sys.stderr)
    return 3 if differ or orphans else 0


# --- from a new run
def size(folder):
    return sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()) / 2**20


def measure(item, args):
    """Runs an item; returns (exit status, its cost as a record)."""
    out = os.path.join(os.path.abspath(args.outdir), item.name)
    words = [*shlex.split(args.make), *shlex.split(command(item, args.name))[1:], f"OUT={out}"]
    begin, process = time.monotonic(), subprocess.Popen(words, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)  # with the most memory of any process below it
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, {"seconds": round(time.monotonic() - begin, 1),
                                "mib": round(usage.ru_maxrss / 1024, 1), "disk": round(size(out), 2)}


def chosen_items(args):
    names = args.items.split() or [i.name for i in ITEMS if i.measures]
    unknown = [n for n in names if n not in BY_NAME]
    if unknown:
        raise ResultError(f"ITEMS: no item {unknown[0]}; they are {' '.join(BY_NAME)}")
    chosen = [BY_NAME[n] for n in names]
    if not args.name and any(i.of_machine for i in chosen):
        raise ResultError("NAME: a new run is a record of this machine, in reports/results/NAME: NAME=mine")
    return chosen


def new_run(args):
    failed, path = [], os.path.join(args.outdir, "costs.json")
    chosen, known = chosen_items(args), items.costs(ROOT)
    done = {"cpu": cpu_name(), "cpus": os.cpu_count(), "date": str(datetime.date.today()), "items": {}}
    os.makedirs(args.outdir, exist_ok=True)
    for item in chosen:
        say(f"{item.name}: {command(item, args.name)}; {', '.join(known[item.name].texts())}")
        status, cost = measure(item, args)
        if status:
            failed.append(f"{item.name} ended with status {status}")
        elif not item.of_machine:
            done["items"][item.name] = cost
            write_whole(path, json.dumps(done, indent=1) + "\n")
        say(f"{item.name}: {'failed' if status else 'done'}, {cost['seconds']:.0f} s")
    folder = f"reports/results/{args.name or 'NAME'}"
    print(f"New pages of studies are in {args.outdir}/ITEM; {path} has what they took, for {COSTS}.\n"
          f"make readme FRONT={folder} RECORDED={folder} puts a new record on the pages.")
    for line in failed:
        print(f"FAILED: {line}", file=sys.stderr)
    return 2 if failed else 0


def main():
    parser = Arguments(__doc__)
    parser.add_argument("outdir", metavar="OUTDIR", nargs="?", default="build/results/reproduce")
    parser.add_argument("--again", metavar="COMMAND", action="append", default=[], help="writes pages; repeat it")
    parser.add_argument("--run", action="store_true", help="from a new run on this machine")
    parser.add_argument("--items", default="", metavar="LIST", help="of a new run (all)")
    parser.add_argument("--name", default="", help="of the machine: its folder in reports/results")
    parser.add_argument("--make", default="make")
    parser.add_argument("--update", metavar="ARTIFACT.md", help="only fill its table")
    args = parser.parse_args()
    if args.update:
        return update(args.update)
    if args.run:
        return new_run(args)
    if args.items:
        raise ResultError("ITEMS: for a new run, RUN=1; from records all pages are made again")
    return from_records(args)


if __name__ == "__main__":
    program.run(main)
