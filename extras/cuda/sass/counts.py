#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions that warps issue in a kernel, executed on the CPU: a table, and tests/golden/sass_counts.txt.

A line of the table is a point: a batch, a row width and a rule. A sample of the launch's blocks runs, evenly spread,
one after another. In a tree over blocks the last one to arrive does work, and in a sample few are the last:
--blocks=all leaves nothing out; it takes 20 s and up to 4 GB for a point.

An instruction is hot if it is issued more than once for HOT lookups: what a warp does once for the entries that its
lanes hold is hot, what it does once at the begin of a chunk is not. Of hot instructions, those that are slow, or a sign
of code that knows too little, are listed."""
import argparse
import collections
import functools
import os
import re
import sys

from batch import entries
from kernel import ROOT, Kernels, Run
from machine import Stopped, library

sys.path.insert(0, os.path.join(ROOT, "extras", "cuda", "tests"))
from ptx_record import release  # noqa: E402

HOT = 64
UNWANTED = {"generic": r"(LD|ST|ATOM)(\.|$)", "local": r"(LD|ST)L(\.|$)", "S2R": r"S2U?R(\.|$)", "CALL": r"CALL",
            "BRA.DIV": r"BRA\.DIV", "MATCH": r"MATCH", "UBLKPF": r"UBLKPF", "R2UR": r"R2UR"}
BLOCKS = 100
# Of the table and the golden file: (batch, dim, rules), in an order that draws each batch once.
POINTS = [("alpha 0", 64, ("sgd", "rowwise_adagrad", "adagrad", "adam")), ("alpha 0.8", 64, ("rowwise_adagrad",)),
          ("alpha 1.05", 32, ("rowwise_adagrad",)), ("alpha 1.05", 64, ("sgd", "rowwise_adagrad", "adagrad", "adam")),
          ("alpha 1.05", 128, ("rowwise_adagrad",)), ("alpha 1.2", 64, ("rowwise_adagrad",)),
          ("dynamicemb", 128, ("sgd", "adam"))]
GOLDEN = os.path.join(ROOT, "extras", "cuda", "tests", "golden", "sass_counts.txt")
HEAD = f"""\
# Instructions that warps issue in the kernel of extras/cuda/sass/target.cu: kernel, batch and dim; of {BLOCKS} blocks:
# issued, lookups, rows (runs that end there), right (rows that they finish, all with the right bits); registers, blocks
# (that an SM holds), code (bytes); unwanted instructions of the code that are hot. extras/cuda/sass/counts.py says more.
# extras/cuda/tests/test_sass_counts.py compares with this file, and `make sass-counts-renew` writes it.
"""


def hot(run):
    """{kind: unwanted instructions of the code that are hot}"""
    often = [name for name, n in zip(run.code.names, run.issued) if n * HOT > run.lookups]
    found = {kind: sum(bool(re.match(pattern, name)) for name in often) for kind, pattern in UNWANTED.items()}
    return {kind: n for kind, n in found.items() if n}


def record(run, kernels):
    """What the golden file says of a run."""
    rows, wrong, first = run.checked
    if wrong:
        raise Stopped(f"{run.facts.kernel}, {run.point}: {wrong} of {rows} rows are wrong, {first}")
    code = dict(zip(("registers", "blocks", "code"), kernels.resources(run.facts)))
    return {"issued": int(run.issued.sum()), "lookups": run.lookups, "rows": run.rows, "right": rows, **code,
            "hot": " ".join(f"{kind} {n}" for kind, n in hot(run).items()) or "none"}


@functools.cache
def kernels_of(build, rule):
    return Kernels(os.environ.get("SASS_OBJECT") or os.path.join(build, made_from().replace("%", rule) + ".o"),
                   os.path.join(ROOT, "build", "sass", "venv"))


def measured(build, blocks=BLOCKS, points=None, see=None):
    """{(kernel, point): record} of all points. see: called with each run and its record."""
    here = os.path.join(build, "extras", "cuda", "sass")
    lib = library(os.path.join(here, "libsass.so"))
    target = os.environ.get("SASS_TARGET") or os.path.join(here, "target")
    result, drawn = {}, (None, None)
    for batch, dim, rules in points or POINTS:
        drawn = drawn if drawn[0] == batch else (batch, entries(batch))
        for rule in rules:
            kernels = kernels_of(build, rule)
            run = Run(lib, kernels, target, batch, drawn[1], dim, rule, blocks)
            result[f"{rule}: {run.facts.kernel}", run.point] = record(run, kernels)
            if see:
                see(run, rule, result[f"{rule}: {run.facts.kernel}", run.point])
    return result


def made_from():
    """The object that target.cu names."""
    with open(os.path.join(ROOT, "extras", "cuda", "sass", "target.cu"), encoding="utf-8") as file:
        return re.search(r'^#define OBJECT "(.*)"', file.read(), re.M)[1]


# --- the golden file
def write(path, records, made_by):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{HEAD}# nvcc {made_by}\n")
        for (kernel, point), r in records.items():
            words = " ".join(f"{name} {value}" for name, value in r.items() if name != "hot")
            file.write(f"{kernel} | {point} | {words} | {r['hot']}\n")


def read(path):
    """(release of nvcc, {(kernel, point): record})"""
    made_by, records = None, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("# nvcc "):
                made_by = line.split()[2]
            elif not line.startswith("#"):
                kernel, point, words, unwanted = (part.strip() for part in line.split(" | "))
                words = words.split()
                records[kernel, point] = {**dict(zip(words[::2], map(int, words[1::2]))), "hot": unwanted}
    return made_by, records


def differences(old, new):
    """Lines that say what is not as it was."""
    for key in sorted(old.keys() | new.keys()):
        name = ", ".join(key)
        if key not in old or key not in new:
            yield f"{name}: not in {'the golden file' if key in new else 'the build'}"
            continue
        was, is_now = old[key], new[key]
        changed = [f"{what} {was[what]} -> {is_now[what]}" for what in is_now if was[what] != is_now[what]]
        if changed:
            before, now = (r["issued"] / r["lookups"] for r in (was, is_now))
            yield f"{name}: {before:.2f} -> {now:.2f} for a lookup: {', '.join(changed)}"


# --- for people
def show(run, rule, r):
    each = r["issued"] / r["lookups"]
    print(f"{rule + ': ' + run.facts.kernel:38} {run.point:20} {each:8.2f} {r['issued'] / max(r['rows'], 1):8.2f} "
          f"{each * run.facts.lookups / 1e6:8.1f} {r['rows'] / r['lookups']:8.3f} {run.ends / run.facts.lookups:8.3f} "
          f"{r['right']:7} {r['code'] / 1024:6.1f} {r['registers']:4} {r['blocks']:4}  {r['hot']}", flush=True)


def source(chain):
    """The innermost line that is not of CUDA's headers."""
    file, line = next((c for c in chain if not c[0].startswith("/")), chain[0] if chain else ("?", 0))
    return f"{file}:{line}"


def show_most(run, count):
    """The lines and opcodes that are issued most."""
    for title, names in (("line", map(source, run.code.chains)), ("opcode", run.code.names)):
        total = collections.Counter()
        for name, n in zip(names, run.issued):
            total[name] += int(n)
        print(f"\n{'for a lookup':>12}      %  {title}")
        for name, n in total.most_common(count):
            print(f"{n / run.lookups:12.3f} {100 * n / run.issued.sum():6.1f}  {name}")
    print()


def write_listing(path, run):
    with open(path, "w", encoding="utf-8") as file:
        file.write("# issued, lanes on average, instruction of line\n")
        for k, n in enumerate(run.issued):
            file.write(f"{n:9} {run.lanes[k] / max(n, 1):5.1f}  {run.code.place(k)}\n")


def chosen(a):
    """The points of the table that options name."""
    points = [(batch, dim, tuple(r for r in rules if a.rule in (None, r))) for batch, dim, rules in POINTS
              if a.batch in (None, batch) and a.dim in (None, dim)]
    if not any(rules for *_, rules in points):
        raise Stopped("no such point: see the table without --batch, --dim and --rule")
    return points


def main():
    p = argparse.ArgumentParser(description="What a kernel executes, without a GPU.")
    p.add_argument("--build", default="build")
    p.add_argument("--blocks", default=str(BLOCKS), help="how many, or all")
    p.add_argument("--batch", help="'alpha 1.05' or another one of the table")
    p.add_argument("--dim", type=int)
    p.add_argument("--rule")
    p.add_argument("--lines", type=int, default=0, help="also this number of lines and opcodes that are issued most")
    p.add_argument("--listing", help="also write the code of the last point, with counts, to this file")
    p.add_argument("--renew", action="store_true", help="write the golden file")
    a = p.parse_args()
    print(f"{'kernel':38} {'batch':20} {'a lookup':>8} {'a row':>8} {'M in all':>8} {'rows':>8} {'of all':>8} "
          f"{'right':>7} {'KiB':>6} {'regs':>4} {'SM':>4}  hot and unwanted")

    def see(run, rule, r):
        show(run, rule, r)
        if a.lines:
            show_most(run, a.lines)
        if a.listing:
            write_listing(a.listing, run)
    try:
        records = measured(a.build, None if a.blocks == "all" else int(a.blocks), chosen(a), see)
    except Stopped as e:
        sys.exit(f"sass-counts: {e}")
    if a.renew:
        write(GOLDEN, records, release())


if __name__ == "__main__":
    main()
