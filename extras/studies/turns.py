#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures this checkout and another revision of it in turns, sample by sample: OUT/bench-old.json and
OUT/bench-new.json, for compare.py. That is the one comparison which a noisy machine allows.

Noise, history and the comparison of compilers measure by the functions of this module, too: several builds of bench
take turns in one run. In every round each build takes one sample of every case, in alternating order, so a machine that
gets slower or faster meanwhile does the same to all of them.

Another revision is built in a clone of its own. It measures with its own program, and with workloads and options of
this checkout. Exit status: 0 fine, 1 usage or environment (the revision is unknown or does not build), 2 a wrong result.
"""
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from merge import add_cut_short, read
from parts import write
from program import Arguments, ResultError, say
from results import WRONG, add_not_run, fields, load, read_not_run, words

PROGRAM = "build/bench"
NAMES = ("old", "new")
STANDARD = "datasets/standard.spec"
WORKLOADS = ("zipf/alpha:0", "zipf/alpha:1.05", "zipf/alpha:1.2", "cached")  # in STANDARD
CHOICE = ("spec", "trace", "alpha", "dims", "rows", "batch", "pooling")  # options that select workloads
OF_ONE_RUN = ("executable", "emb_var_OUT")  # of the context; they say where files lay
OPTIONS = (*CHOICE, "filter", "rule", "seed", "threads", "reps", "ring", "modes", "place")  # of bench


@dataclass(frozen=True)
class Build:
    name: str
    bench: str
    embfuse: str = ""
    env: dict = field(default_factory=dict, hash=False)


def add_arguments(parser, folder):
    parser.add_argument("--make", default="make")
    parser.add_argument("--out", default=f"build/results/{folder}", help="folder for the results")
    for o in OPTIONS:
        parser.add_argument(f"--{o}", default="", help="as in bench")


def count_of(args, preset_):
    """The number of rounds."""
    reps = args.reps or str(preset_)
    if not re.fullmatch(r"\d{1,4}", reps) or not 1 <= int(reps) <= 1000:
        raise ResultError(f"REPS: '{reps}' is not a number from 1 to 1000")
    return int(reps)


def call(command, env):
    """Runs a program to its end. Status 1 or a signal raises an error with the program's own last line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | env)
    if done.returncode not in (0, 2):
        own = [x for x in done.stderr.splitlines() if x.strip() and not x.startswith("[")]
        why = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise ResultError(own[-1] if own else f"{command[0]} ended with {why}")
    return done


def listed(build):
    """The host kernels of a step, and the rules of a build."""
    known = json.loads(call([build.embfuse, "list", "--json"], build.env).stdout)
    kernels = [k for k in known["kernels"] if k["place"] == "host" and k["operation"] == "step"]
    return kernels, [r["name"] for r in known["rules"]]


def preset(filter_, rules, build, modes):
    """A filter for the default workloads that match. Without a filter it skips kernels with a dense gradient
    or atomics on large tables: they take as long as all others together."""
    kernels, known = listed(build)
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


def options_of(args, build):
    """The options of bench, with defaults for those that are not given."""
    given = {o: getattr(args, o) for o in OPTIONS if getattr(args, o)}
    if given.setdefault("place", "host") != "host":
        raise ResultError("PLACE: only kernels of the host take turns")
    given = {"modes": "cold", "ring": "1"} | given | {"reps": "1"}
    if not any(o in given for o in CHOICE):
        given.setdefault("rule", "rowwise_adagrad")
        given |= {"spec": STANDARD, "filter": preset(args.filter, re.split("[ ,]+", given["rule"]),
                                                     build, re.split("[ ,]+", given["modes"]))}
    return [f"--{o}={v}" for o, v in given.items()]


def gather(into, data, round_, count):
    """Adds the rows of a round to a result, and what its context says of samples and kernels."""
    rows = [r | {"repetitions": count, "repetition_index": round_, "visit": round_} for r in data["benchmarks"]]
    if not into:
        into |= {"context": {k: v for k, v in data["context"].items() if k not in OF_ONE_RUN}, "benchmarks": rows}
        return
    add_cut_short(into["context"], data["context"])
    known = {entry[:2] for entry in read_not_run(into["context"])}
    add_not_run(into["context"], [e for e in read_not_run(data["context"]) if e[:2] not in known])
    into["benchmarks"] += rows


def measure(builds, count, options, keep):
    """Measures `count` rounds. keep() gets {name: result} after every round, so that a run that is cut short keeps its
    finished rounds."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = {b.name: {} for b in builds}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.json")
        for r in range(count):
            for b in builds[::-1] if r % 2 else builds:
                say(f"round {r + 1} of {count}: {b.name}")
                call([b.bench, *options, f"--out={folder}"], b.env)
                gather(results[b.name], read(path), r, count)
                os.unlink(path)
            keep(results)


def joined(parts, context):
    """One result of the results {name: result} of all builds, with kernels named KERNEL@NAME and this context."""
    first, out, rows, not_run = next(iter(parts.values()))["context"], {}, [], {}
    for name, part in parts.items():
        for workload, kernel, reason in read_not_run(part["context"]):
            not_run[workload, f"{kernel}@{name}"] = reason
        for row in part["benchmarks"]:
            kernel = words(row).get("kernel", "")
            rows.append(row | {"name": row["name"].replace(f"/{kernel}/", f"/{kernel}@{name}/"),
                               "label": row["label"].replace(f" kernel={kernel} ", f" kernel={kernel}@{name} ")})
    kernels = [k for k in first if re.match("emb_kernel_(?!os$)", k)]
    out = {k: v for k, v in first.items() if k not in kernels and not k.startswith("emb_not_run_")}
    for other in list(parts.values())[1:]:
        add_cut_short(out, other["context"])
    used = {words(r).get("kernel") for r in rows} | {k for _, k in not_run}
    for key, name in itertools.product(kernels, parts):
        family, place, traits, label, idea = fields(first[key], 5)
        if f"{key.removeprefix('emb_kernel_')}@{name}" in used:
            out[f"{key}@{name}"] = " | ".join((family, place, traits, f"{label}@{name}", idea))
    add_not_run(out, ((*key, reason) for key, reason in not_run.items()))
    bad = {key for key, why in not_run.items() if why.startswith(WRONG)}
    return {"context": out | context,
            "benchmarks": [r for r in rows if (words(r).get("workload"), words(r).get("kernel")) not in bad]}


# --- builds
def run_make(make, *words):
    """Whether make can build it, only with the kernels of the host. Its job server, and CC= and NATIVE= of the command
    line reach it, too (close_fds)."""
    return subprocess.run([*make.split(), "--no-print-directory", "NVCC=", *words], close_fds=False, stdout=sys.stderr,
                          check=False).returncode == 0


def git(*words):
    """The output of git in this checkout, or None if it failed."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except OSError as e:
        raise ResultError(f"git: {e.strerror}; other revisions come from it") from None
    return None if done.returncode else done.stdout.strip()


def resolve(name):
    """The full hash of a revision."""
    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}")
    if not found:
        raise ResultError(f"'{name}' is no revision of this repository; git log lists them")
    return found


def build_revision(name, folder, make):
    """A Build of the host's kernels at a revision, in FOLDER/HASH; what an earlier call has built is used again."""
    revision = resolve(name)
    clone = os.path.join(folder, revision)
    if not os.path.isdir(clone):
        os.makedirs(folder, exist_ok=True)
        if git("clone", "--quiet", "--shared", "--no-checkout", ".", clone) is None:
            raise ResultError(f"{clone}: git cannot clone this repository there")
    if git("-C", clone, "checkout", "--quiet", "--force", "--detach", revision) is None:
        raise ResultError(f"{clone}: git cannot check out {revision}; remove the folder")
    say(f"building {name} ({revision[:12]})")
    if not run_make(make, "-C", clone, "B=build", PROGRAM):
        raise ResultError(f"'{name}' does not build: make -C {clone} NVCC= B=build {PROGRAM}")
    return Build(name, os.path.join(clone, PROGRAM))


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("revision", help="such as HEAD~1, main or a hash")
    parser.add_argument("--bench", required=True, metavar="PROGRAM", help="bench of this checkout")
    parser.add_argument("--embfuse", required=True, metavar="PROGRAM", help="embfuse of this checkout")
    parser.add_argument("--builds", default="build/against", help="folder for the other revision")
    add_arguments(parser, "against")
    args = parser.parse_args()
    count, new = count_of(args, 9), Build("new", args.bench, args.embfuse)
    options = options_of(args, new)  # a wrong option fails before the work
    old = Build("old", build_revision(args.revision, args.builds, args.make).bench)
    path = lambda name: os.path.join(args.out, f"bench-{name}.json")
    os.makedirs(args.out, exist_ok=True)
    measure([old, new], count, options, lambda parts: [write(path(n), parts[n]) for n in NAMES])
    say("wrote " + " and ".join(map(path, NAMES)))
    return 2 if any(load(path(n)).failures() for n in NAMES) else 0


if __name__ == "__main__":
    program.run(main, "interrupted; bench-old.json and bench-new.json have the finished rounds, if any")
