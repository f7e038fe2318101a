#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares compilers: builds the CPU kernels with each of them at the same flags and measures all builds. Or
compares levels of instructions (--levels): of one portable build, which runs at each of them.

First all builds run the same small batches, and the script compares the bytes of their results. Then they
take turns: in every round each build takes one sample of every case, in alternating order. The result has
the usual schema, with kernels named KERNEL@COMPILER. The table compares every compiler with the first one,
with the verdicts of compare.py. In all of this a level stands in the place of a compiler.

Exit status: 0 fine, 1 usage or environment, 2 a wrong result, or different bits in exact mode.
"""
import os
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
import turns
from parts import write
from program import Arguments, ResultError, say, write_whole
from results import load, notes_of, spread
from style import markdown_table, number
from turns import Build, call, listed
from verdict import effect

SMOKE = "datasets/smoke.spec"
SAME_BITS = ("ragged/alpha:1", "sequence", "mixed", "histogram/ids:histogram-2022")  # in SMOKE, for the bits


def make(args, name, *variables):
    """Builds the programs of a Build, only with the CPU kernels; returns their paths."""
    programs = [os.path.join(args.builds, name, p) for p in ("bench", "embfuse")]
    say(f"building with {name}")
    if not turns.run_make(args.make, *variables, f"B={os.path.dirname(programs[0])}", *programs):
        raise ResultError(f"{name} could not build it")
    return programs


def build(args):
    names = [os.path.basename(c) for c in args.compilers]
    if len(set(names)) < len(names) or len(names) < 2:
        raise ResultError(f"{args.variable}='{' '.join(args.compilers)}': name two or more, each once")
    if args.levels:
        programs = make(args, "portable", "NATIVE=0")
        return [Build(n, *programs, {"EMBFUSE_ISA": n}) for n in names]
    for c in args.compilers:
        if not shutil.which(c):
            raise ResultError(f"COMPILERS: there is no '{c}' here")
    return [Build(n, *make(args, n, f"CC={c}")) for c, n in zip(args.compilers, names)]


# --- the same bits
def of_rule(text, rule):
    """The spec with this rule in all workloads."""
    return re.sub(r"(?m)^(workload .*)$", rf"\1\n    rule {rule}",
                  re.sub(r"(?m)^\s+rule\s.*\n?", "", text))


def step(build_, kernel, batch, folder):
    """(exact, {file: bytes}) of a step; a wrong result has its reason instead of files."""
    for old in Path(folder).glob("new.*"):
        old.unlink()
    done = call([build_.embfuse, "step", "--kernel", kernel, "--batch", batch, "--steps", "2",
                 "--out", os.path.join(folder, "new")], build_.env)
    if done.returncode:
        return True, {f"wrong result: {done.stderr.strip()}": b""}
    files = {path.name.removeprefix("new."): path.read_bytes() for path in Path(folder).glob("new.*.npy")}
    return "checked: exact" in done.stdout, files


def bits(builds, folder):
    """A line for each kernel with other bits, or one line that there is none."""
    kernels, rules = listed(builds[0])
    smoke, count, differ = Path(SMOKE).read_text(encoding="utf-8"), 0, {}
    spec, batch = os.path.join(folder, "a.spec"), os.path.join(folder, "b")
    for rule in rules:
        write_whole(spec, of_rule(smoke, rule))
        for workload in SAME_BITS:
            call([builds[0].embfuse, "gen", spec, "--workload", workload, "--initial-tables",
                  "--out", batch], builds[0].env)
            for k in (k["name"] for k in kernels if rule in k["rules"]):
                own = [step(b, k, batch, folder) for b in builds]
                if not all(exact for exact, _ in own):
                    continue
                count += 1
                for b, (_, files) in zip(builds[1:], own[1:]):
                    other = sorted(f for f in own[0][1].keys() | files.keys()
                                   if own[0][1].get(f) != files.get(f))
                    if other:
                        differ.setdefault((k, b.name), []).append(f"{rule} {workload} {other[0]}")
            for old in Path(folder).glob("b.*"):
                old.unlink()
    return [f"OTHER BITS: {k}, {name} and {builds[0].name}: {len(found)} results, such as {found[0]}"
            for (k, name), found in differ.items()] or [f"same bits: {count} results"]


# --- measure
def context(args, lines, parts):
    """What the context of all builds together says of them."""
    contexts = [p["context"] for p in parts.values()]
    flags = {re.sub(r"-I\S+", "", c.get("emb_flags", "")) for c in contexts}
    return {f"emb_bits_{i}": line for i, line in enumerate(lines)} | {
        "emb_compiler": "; ".join(dict.fromkeys(str(c.get("emb_compiler")) for c in contexts)),
        "emb_same_flags": "yes" if len(flags) == 1 else "no",
        f"emb_var_{args.variable}": " ".join(parts), "emb_var_REPS": str(args.count)}


# --- the table
def judged(base, other):
    """(text, ratio of the medians or None): '=' means the same, '?' means unsure."""
    if base is None or other is None or base.failed or other.failed:
        return "-", None
    if base.fingerprints != other.fingerprints or base.operation != other.operation:
        raise ResultError(f"{base.workload}, {other.kernel.name}: different work is not compared")
    found = effect(base.times, other.times)
    return {"SAME": "=", "UNSURE": f"{found.ratio:.2f} ?"}.get(found.word(), f"{found.ratio:.2f}"), found.ratio


def cells(series):
    if series is None or series.failed:
        return ("FAILED" if series else "-", "-")
    q = series.quartiles("ns_per_lookup")
    return number(q[1]) + series.mark(), f"{100 * spread(q):.1f}" if spread(q) is not None else "-"


def lines_of(group, names, ratios):
    """The lines of a group; adds its ratios to {compiler: {kernel: ratios}}."""
    by = {s.kernel.name: s for s in group.series}
    in_order = sorted(group.series, key=lambda s: s.kernel.index)
    for kernel in dict.fromkeys(s.kernel.name.rpartition("@")[0] for s in in_order):
        own = [by.get(f"{kernel}@{n}") for n in names]
        row = [group.workload, kernel, *cells(own[0])]
        for name, series in zip(names[1:], own[1:]):
            text, ratio = judged(own[0], series)
            row += [*cells(series), text]
            if ratio:
                ratios.setdefault(name, {}).setdefault(kernel, []).append(ratio)
        yield row


def table(result):
    names = str(result.context.get("emb_var_COMPILERS") or result.context.get("emb_var_LEVELS", "")).split()
    if len(names) < 2:
        raise ResultError(f"{result.path}: not a result of several compilers or levels")
    heads = ["workload", "kernel", names[0], "±%"]
    for n in names[1:]:
        heads += [n, "±%", f"{n}/{names[0]}"]
    out = result.cautions("**")
    groups = [g for m in sorted({s.mode for s in result.series}) for g in result.groups(m)]
    for title in dict.fromkeys((g.rule, g.mode) for g in groups):
        ratios, mean = {}, statistics.geometric_mean
        rows = [row for g in groups if (g.rule, g.mode) == title for row in lines_of(g, names, ratios)]
        out += [f"**{title[0]} · {title[1]}**, ns per lookup", "",
                *markdown_table(heads, rows, left=(0, 1)), "",
                *(f"- {n}/{names[0]}, geometric mean of the workloads: "
                  + ", ".join(f"{k} {mean(v):.2f}" for k, v in by.items())
                  + f"; all {mean([r for v in by.values() for r in v]):.2f}" for n, by in ratios.items()), ""]
    out += ["- median, ±half the quartile range, of the samples of a run in which the builds take "
            "turns. Ratio above 1: slower. =: the same within 5 %; ?: cannot be told from noise (less "
            "than 5 samples never show a difference); otherwise the verdict of compare.py for one row, p < 0.01.",
            f"- {result.machine()}; {result.context.get('emb_compiler')}; each with the OpenMP runtime "
            "that it links."]
    if result.context.get("emb_same_flags") == "no":
        out.append("- NOT at the same flags")
    out += [f"- {line}" for line in result.left_out()]
    out += [f"- {note}" for note in notes_of({s.mark() for s in result.series})]
    return out + [f"- {v}" for k, v in result.context.items() if k.startswith("emb_bits_")]


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("compilers", nargs="*", metavar="COMPILER")
    parser.add_argument("--levels", action="store_true", help="these are levels of instructions: avx512, avx2, plain")
    parser.add_argument("--builds", default="build/compilers", help="folder of the builds")
    turns.add_arguments(parser, "compilers")
    args = parser.parse_args()
    args.variable = "LEVELS" if args.levels else "COMPILERS"
    args.count = turns.count_of(args, 5)
    path, builds = os.path.join(args.out, "bench.json"), build(args)
    options = turns.options_of(args, builds[0])  # a wrong option fails before the work
    say("comparing bits")
    with tempfile.TemporaryDirectory() as folder:
        lines = bits(builds, folder)
    os.makedirs(args.out, exist_ok=True)
    turns.measure(builds, args.count, options,
                  lambda parts: write(path, turns.joined(parts, context(args, lines, parts))))
    say(f"wrote {path}")
    result = load(path)
    print("\n".join(table(result)))
    return 2 if result.failures() or not lines[0].startswith("same bits") else 0


if __name__ == "__main__":
    program.run(main, "interrupted; bench.json has the finished rounds, if any")
