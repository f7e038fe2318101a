# SPDX-License-Identifier: MIT
"""A measurement in parts: bench runs once for each part, with its own spec and options, and the rows of all
parts become one result. This module also has what the reports on such results share.

RESULT.json.parts keeps finished parts until all are done, so that a run that was cut short can continue. A
part of another program, spec or options is measured again. Workloads that do not fit are named and left out.
"""
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from merge import merged, read
from plots import draw
from program import ResultError, say, write_whole
from results import add_not_run, load

CORES = len(os.sched_getaffinity(0))
OUT_OF_MEMORY = -signal.SIGKILL  # the status of a bench that the system has ended, perhaps for memory
NOT_RUN = re.compile(r"not run: (\S+), ([^:]*): (.*)")


def this_machine():
    """'AMD EPYC, 2 CPUs'"""
    found = re.search(r"(?m)^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{found[1] if found else 'unknown CPU'}, {CORES} CPUs"


@dataclass(frozen=True)
class Part:
    name: str       # name of its folder
    spec: str       # its workloads
    options: tuple  # of bench: (("threads", "2"), ...)
    launch: tuple = ()  # words before the program: mpirun and its options

    def workloads(self):
        return re.findall(r"(?m)^workload (\S+)", self.spec)


def report_arguments(parser):
    """The arguments of all studies' reports."""
    parser.add_result(outdir=True, mode=False)
    parser.add_argument("--kernel", required=True, metavar="NAME", help="the kernel under study")


def add_arguments(parser, reps):
    """The arguments of all measurements in parts and their reports."""
    report_arguments(parser)
    parser.add_argument("--bench", metavar="PROGRAM", help="first measure RESULT.json with this program")
    parser.add_argument("--others", default="", metavar="LIST", help="kernels to measure beside it")
    parser.add_argument("--dense", default="", metavar="NAME", help="one more, with a gradient of all rows")
    parser.add_argument("--threads", default="", metavar="LIST", help="thread counts (1 and all cores)")
    parser.add_argument("--reps", default=str(reps), help=f"samples of every kernel ({reps})")
    parser.add_argument("--seed", default="", help="seed of all random numbers")


def threads_of(args):
    """Thread counts, ascending."""
    words = re.split("[ ,]+", args.threads.strip()) if args.threads.strip() else ["1", str(CORES)]
    if not all(re.fullmatch(r"[1-9]\d{0,3}", w) for w in words):
        raise ResultError(f"THREADS: '{args.threads}' is no list of numbers from 1 to 9999")
    return sorted({int(w) for w in words})


def options_of(args, threads, dense):
    """The options of bench, with the dense kernel or without it."""
    kernels = [args.kernel, *args.others.split(), *([args.dense] if dense and args.dense else [])]
    given = {"modes": "cold", "place": "host", "reps": args.reps, "seed": args.seed,
             "threads": str(threads), "filter": f"/({'|'.join(kernels)})/"}
    return tuple((k, v) for k, v in given.items() if v)


def bench_run(command):
    """(exit status, lines of stderr); passes the progress on to stderr at once."""
    lines = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as bench:
        try:
            for line in bench.stderr:
                lines.append(line.strip())
                if line.startswith(("[", "not run: ")):
                    print("   ", line, end="", file=sys.stderr, flush=True)
        except BaseException:
            bench.kill()
            raise
    return bench.returncode, lines


def measure(bench, part, folder, stamp):
    """Measures a part into its folder: state.json has the outcome, bench.json has the rows."""
    os.makedirs(folder)
    spec, result = os.path.join(folder, "part.spec"), os.path.join(folder, "bench.json")
    write_whole(spec, part.spec)
    status, lines = bench_run([*part.launch, bench, f"--spec={spec}", f"--out={folder}",
                               *(f"--{k}={v}" for k, v in part.options)])
    if status > 128:  # bench was stopped, so its result is not the whole part
        raise KeyboardInterrupt
    not_run = [m.groups() for m in map(NOT_RUN.fullmatch, lines) if m]
    if status < 0:
        why = f"bench was ended by {signal.Signals(-status).name}"
        why += ", perhaps out of memory" * (status == OUT_OF_MEMORY)
        not_run = [(w, "all kernels", why) for w in part.workloads()]
        say(why)
    elif not os.path.exists(result) and not not_run:
        raise ResultError(lines[-1] if lines else f"{bench} ended with status {status}")
    measured = status >= 0 and os.path.exists(result)  # what a bench leaves that died is not the whole part
    state = {"stamp": stamp, "status": status, "measured": measured, "not_run": not_run}
    write_whole(os.path.join(folder, "state.json"), json.dumps(state))
    return state


def finished(folder, stamp):
    """The state that an earlier run left, if it is of the same part."""
    try:
        state = read(os.path.join(folder, "state.json"))
    except (OSError, ValueError):
        return None
    return state if state.get("stamp") == stamp else None


def context(data, contexts):
    """Joins the values that differ between the parts."""
    out = data["context"]
    for key in [k for k in out if k.startswith("emb_var_") or k == "emb_threads"]:
        out[key] = " or ".join(sorted({str(c.get(key, "")) for c in contexts}, key=lambda v: (len(v), v)))
    out["emb_var_SPEC"] = f"of {os.path.basename(sys.argv[0])}, in {len(contexts)} parts"


def write(path, data):
    """Writes one line per sample, numbers with seven digits; leaves out bench's aggregates of samples."""
    short = lambda v: float(f"{v:.7g}") if isinstance(v, float) else v
    rows = [json.dumps({k: short(v) for k, v in r.items()}) for r in data["benchmarks"]
            if r.get("run_type") != "aggregate"]
    write_whole(path, f'{{"context": {json.dumps(data["context"], indent=1)},\n"benchmarks": [\n'
                + ",\n".join(rows) + "\n]}\n")


def measure_all(bench, parts, path):
    """Measures the missing parts and writes the result. True if a kernel was wrong or crashed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    program, work, states = Path(bench).read_bytes(), path + ".parts", []
    folders = [os.path.join(work, p.name) for p in parts]
    for i, (part, folder) in enumerate(zip(parts, folders), 1):
        stamp = hashlib.sha256(program + repr(part).encode()).hexdigest()
        state = finished(folder, stamp)
        say(f"part {i} of {len(parts)}: {part.name}" + (", is there already" if state else ""))
        if not state:
            shutil.rmtree(folder, ignore_errors=True)
            state = measure(bench, part, folder, stamp)
        states.append(state)
    paths = [os.path.join(f, "bench.json") for f, s in zip(folders, states) if s["measured"]]
    if not paths:
        raise ResultError("nothing was measured: " + " ".join(states[0]["not_run"][0]))
    data = merged(paths)
    context(data, [read(p)["context"] for p in paths])
    add_not_run(data["context"], [n for s in states if not s["measured"] for n in s["not_run"]])
    write(path, data)
    say(f"wrote {path}")
    shutil.rmtree(work)
    return any(s["status"] not in (0, 1, OUT_OF_MEMORY) for s in states)


# --- the reports
def publish(name, outdir, title, text, figure):
    """Writes OUTDIR/NAME.md and draws figure(stem) beside it; returns the names of the pictures."""
    stem = os.path.join(os.path.abspath(outdir), name)
    os.makedirs(outdir, exist_ok=True)
    write_whole(stem + ".md", f"# {title}\n\n![{title}]({name}.svg)\n\n{text}\n")
    return list(draw(figure(stem), outdir))


def study(args, parts, report):
    """Measures the parts if there is a bench, then reports on the result; returns the exit status."""
    wrong = bool(args.bench) and measure_all(args.bench, parts, args.result)
    pictures, summary = report(load(args.result), args.outdir, args.kernel)
    print("\n".join(pictures), f"{os.path.splitext(pictures[0])[0]}.md", "", summary, sep="\n")
    return 2 if wrong else 0
