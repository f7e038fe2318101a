#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes every figure and table of the pages again from the recorded results, in a copy under OUTDIR that is compared
with the pages. Prints each item with the command and the cost of a new run.

--again are the commands that write the pages; they run in the copy. A page or the data of a picture that comes out
different is older than its record, or was edited. Records and pictures must have the sums that were written with the
pages, since other libraries draw other pictures. --update: only fills the table of ARTIFACT.md, and writes the sums.

Exit status: 0 every page is as its records are, 1 usage, 3 a page is older than its record, or something was edited by
hand.
"""
import glob
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "reports"))
import items
import program
import section
from items import BY_NAME, ITEMS
from program import Arguments, ResultError, write_whole
from recorded import ROOT, STORED
from style import markdown_table, text_table

# What the copy has of its own; all else is linked.
OWN = ("README.md", "ARTIFACT.md", "docs", "reports", "extras")
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


def copy(root, into):
    """A copy of the tree in which pages can be written again."""
    shutil.rmtree(into, ignore_errors=True)
    os.makedirs(into)
    for name in {*os.listdir(root)} - {"build", ".git"}:
        source, target = os.path.join(root, name), os.path.join(into, name)
        if name not in OWN:
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


def rows(root):
    """A row per item: the cells of HEADS."""
    where, costs = items.shown(root)[0], items.costs(root)
    return [(i.name, i.what, short(where[i.name]), i.run.format(name=NAME), *costs[i.name]) for i in ITEMS]


def update(path):
    root = os.path.dirname(os.path.abspath(path))
    own = [(f"`{a}`", b, c, f"`{d}`", *more) for a, b, c, d, *more in rows(root)]
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
    table += [(name, state(BY_NAME[name], ROOT, old), *more) for name, _, *more in rows(ROOT)]
    print("\n".join(text_table(table, left=range(4))))
    print(f"\n{SAME}: made again from the records, byte for byte, in {new}; a picture by its data.\n"
          f"{BY_RUN}: not made of a record, but by its command.", flush=True)
    for line in [f"{file} is not what the records say; make readme writes it again" for file in differ] + orphans:
        print(f"OLD: {line}", file=sys.stderr)
    return 3 if differ or orphans else 0


def main():
    parser = Arguments(__doc__)
    parser.add_argument("outdir", metavar="OUTDIR", nargs="?", default="build/results/reproduce")
    parser.add_argument("--again", metavar="COMMAND", action="append", default=[], help="writes pages; repeat it")
    parser.add_argument("--update", metavar="ARTIFACT.md", help="only fill its table, and write the sums")
    args = parser.parse_args()
    return update(args.update) if args.update else from_records(args)


if __name__ == "__main__":
    program.run(main)
