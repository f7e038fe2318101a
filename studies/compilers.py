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
import itertools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reports"))
import program
from compare import verdict
from merge import add_disturbances, read
from program import Arguments, ResultError, say, write_whole
from ranks import LEVEL
from results import (WRONG, add_not_run, fields, load, notes_of, read_not_run, spread,
                     words)
from style import markdown_table, number

STANDARD, SMOKE = "datasets/standard.spec", "datasets/smoke.spec"
WORKLOADS = ("zipf/alpha:0", "zipf/alpha:1.05", "zipf/alpha:1.2", "cached")  # in STANDARD, to measure
SAME_BITS = ("ragged/alpha:1", "sequence", "mixed", "histogram/ids:histogram-2022")  # in SMOKE, for the bits
CHOICE = ("spec", "trace", "alpha", "dims", "rows", "batch", "pooling")  # options that select workloads
OPTIONS = (*CHOICE, "filter", "rule", "seed", "threads", "reps", "ring", "modes", "place")  # of bench
MIN_EFFECT = 0.05  # as in compare.py
Build = namedtuple("Build", "name bench embfuse env")


def call(command, env):
    """Runs a program to its end. Status 1 or a signal raises an error with the program's own last line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | env)
    if done.returncode not in (0, 2):
        own = [x for x in done.stderr.splitlines() if x.strip() and not x.startswith("[")]
        why = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise ResultError(own[-1] if own else f"{command[0]} ended with {why}")
    return done


def make(args, name, *variables):
    """Builds the programs of a Build, only with the CPU kernels; returns their paths."""
    programs = [os.path.join(args.builds, name, p) for p in ("bench", "embfuse")]
    say(f"building with {name}")
    # close_fds=False hands on make's job server.
    if subprocess.run([*args.make.split(), "--no-print-directory", *variables, "NVCC=",
                       f"B={os.path.dirname(programs[0])}", *programs], close_fds=False, stdout=sys.stderr,
                      check=False).returncode:
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
    return [Build(n, *make(args, n, f"CC={c}"), {}) for c, n in zip(args.compilers, names)]


def listed(build_):
    """The host kernels of a step, and the rules of a build."""
    known = json.loads(call([build_.embfuse, "list", "--json"], build_.env).stdout)
    kernels = [k for k in known["kernels"] if k["place"] == "host" and k["operation"] == "step"]
    return kernels, [r["name"] for r in known["rules"]]


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
def preset(filter_, rules, build_, modes):
    """A filter for the default workloads that match. Without a filter it skips kernels with a dense gradient
    or atomics on large tables: they take as long as all others together."""
    kernels, known = listed(build_)
    rules = known if "all" in rules else rules
    small = lambda k: "deterministic" in k["traits"] and "dense_gradient" not in k["traits"]
    quick = lambda w, k: filter_ or w == WORKLOADS[-1] or small(k)
    names = [f"{w}/{r}/{k['name']}/{m}" for w in WORKLOADS for r in rules for k in kernels for m in modes
             if quick(w, k)]
    try:
        names = [n for n in names if re.search(filter_, n)]
    except re.error as e:
        raise ResultError(f"FILTER='{filter_}': {e}") from None
    if not names:
        raise ResultError(f"FILTER='{filter_}' matches none of WORKLOAD/RULE/KERNEL/MODE, such as "
                          f"cached/{rules[0]}/cpu_fused/cold; SPEC={STANDARD} has other workloads")
    return "^(" + "|".join(n.replace(".", r"\.") for n in names) + ")$"


def options_of(args, build_):
    """The options of bench, with defaults for those that are not given."""
    given = {o: getattr(args, o) for o in OPTIONS if getattr(args, o)}
    if given.setdefault("place", "host") != "host":
        raise ResultError("PLACE: only kernels of the host are built by these compilers")
    given = {"modes": "cold", "ring": "1"} | given | {"reps": "1"}
    if not any(o in given for o in CHOICE):
        given.setdefault("rule", "rowwise_adagrad")
        given |= {"spec": STANDARD, "filter": preset(args.filter, re.split("[ ,]+", given["rule"]),
                                                     build_, re.split("[ ,]+", given["modes"]))}
    return [f"--{o}={v}" for o, v in given.items()]


class Record:
    """The result of all builds. Its context is that of the first run, with what all runs add to it."""

    def __init__(self, builds, args, lines):
        self.builds, self.args, self.rows, self.contexts, self.not_run = builds, args, [], {}, {}
        self.bits = {f"emb_bits_{i}": line for i, line in enumerate(lines)}

    def add(self, name, round_, data):
        if self.contexts:
            add_disturbances(self.contexts[self.builds[0].name], data["context"])
        self.contexts.setdefault(name, data["context"])
        for workload, kernel, reason in read_not_run(data["context"]):
            self.not_run.setdefault((workload, f"{kernel}@{name}"), reason)
        for row in data["benchmarks"]:
            kernel = words(row).get("kernel", "")
            row["name"] = row["name"].replace(f"/{kernel}/", f"/{kernel}@{name}/")
            row["label"] = row["label"].replace(f" kernel={kernel} ", f" kernel={kernel}@{name} ")
            self.rows.append(row | {"repetitions": self.args.count, "repetition_index": round_})

    def context(self):
        first = self.contexts[self.builds[0].name]
        kernels = [k for k in first if re.match("emb_kernel_(?!os$)", k)]
        flags = {re.sub(r"-I\S+", "", c.get("emb_flags", "")) for c in self.contexts.values()}
        out = {k: v for k, v in first.items() if k not in kernels and not k.startswith("emb_not_run_")}
        out |= self.bits | {
            "emb_compiler": "; ".join(dict.fromkeys(str(c.get("emb_compiler")) for c in self.contexts.values())),
            "emb_same_flags": "yes" if len(flags) == 1 else "no",
            f"emb_var_{self.args.variable}": " ".join(b.name for b in self.builds), "emb_var_OUT": self.args.out,
            "emb_var_REPS": str(self.args.count)}
        used = {words(r).get("kernel") for r in self.rows} | {k for _, k in self.not_run}
        for key, build_ in itertools.product(kernels, self.builds):
            family, place, traits, label, idea = fields(first[key], 5)
            if f"{key.removeprefix('emb_kernel_')}@{build_.name}" in used:
                out[f"{key}@{build_.name}"] = " | ".join(
                    (family, place, traits, f"{label}@{build_.name}", idea))
        add_not_run(out, ((*key, reason) for key, reason in self.not_run.items()))
        return out

    def write(self):
        bad = {key for key, why in self.not_run.items() if why.startswith(WRONG)}
        rows = [r for r in self.rows if (words(r).get("workload"), words(r).get("kernel")) not in bad]
        path = os.path.join(self.args.out, "bench.json")
        write_whole(path, json.dumps({"context": self.context(), "benchmarks": rows}, indent=1))
        return path


def measure(builds, args, lines, folder):
    """Returns the path of the result."""
    record, options = Record(builds, args, lines), options_of(args, builds[0])
    for r in range(args.count):
        for b in builds[::-1] if r % 2 else builds:
            say(f"round {r + 1} of {args.count}: {b.name}")
            call([b.bench, *options, f"--out={folder}"], b.env)
            path = os.path.join(folder, "bench.json")
            record.add(b.name, r, read(path))
            os.unlink(path)
        path = record.write()  # a run that is cut short keeps its finished rounds
    say(f"wrote {path}")
    return path


# --- the table
def judged(base, other):
    """(text, ratio of the medians or None): '=' means the same, '?' means unsure."""
    if base is None or other is None or base.failed or other.failed:
        return "-", None
    if base.fingerprints != other.fingerprints or base.operation != other.operation:
        raise ResultError(f"{base.workload}, {other.kernel.name}: different work is not compared")
    word, ratio, _ = verdict(base.times, other.times, MIN_EFFECT, LEVEL)
    return {"SAME": "=", "UNSURE": f"{ratio:.2f} ?"}.get(word, f"{ratio:.2f}"), ratio


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
            "than 5 samples never show a difference); otherwise compare.py's verdict at p < 0.01.",
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
    parser.add_argument("--table", metavar="RESULT.json", help="only print the table of a saved result")
    parser.add_argument("--make", default="make")
    parser.add_argument("--builds", default="build/compilers", help="folder of the builds")
    parser.add_argument("--out", default="build/results/compilers", help="folder for bench.json")
    for o in OPTIONS:
        parser.add_argument(f"--{o}", default="", help="as in bench")
    args = parser.parse_args()
    if args.table:
        print("\n".join(table(load(args.table))))
        return 0
    args.variable = "LEVELS" if args.levels else "COMPILERS"
    reps = args.reps or "5"
    if not re.fullmatch(r"\d{1,4}", reps) or not 1 <= int(reps) <= 1000:
        raise ResultError(f"REPS: '{reps}' is not a number from 1 to 1000")
    args.count = int(reps)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = os.path.join(args.out, "work")
    os.makedirs(folder, exist_ok=True)
    try:
        builds = build(args)
        options_of(args, builds[0])  # a wrong option fails before the work
        say("comparing bits")
        lines = bits(builds, folder)
        result = load(measure(builds, args, lines, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(table(result)))
    return 2 if result.failures() or not lines[0].startswith("same bits") else 0


if __name__ == "__main__":
    program.run(main, "interrupted; bench.json has the finished rounds, if any")
