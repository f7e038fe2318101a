#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What CI gates on without a quiet machine: bytes and instructions of every host kernel on the workloads of
datasets/metrics.spec, against tests/golden/ci_metrics.txt.

Bytes are exact: persistent ones are weights and state, scratch is what a kernel declares for two threads. Instructions
are those of one call of the kernel on one thread, at AVX2 in a portable build, as callgrind counts them; they may move
by 1 %. They depend on the compiler, the C library and valgrind, so with others than the recorded ones they are not
judged. A number that has become better fails, too: the next change would be judged by the old one.

Exit status: 0 as recorded, 1 usage or environment, 2 a kernel gave a wrong result, 3 something is worse, 4 other
numbers than recorded, and none is worse.
"""
import concurrent.futures
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "reports"))
import program  # noqa: E402
from program import Arguments, ResultError, say, write_whole  # noqa: E402
from results import FORWARD, GRADIENT, WEIGHT_GRAD, load  # noqa: E402
from style import text_table  # noqa: E402

GOLDEN, SPEC = ROOT / "tests" / "golden" / "ci_metrics.txt", ROOT / "datasets" / "metrics.spec"
HEAD = """\
# Bytes and instructions of host kernels on the workloads of datasets/metrics.spec: `make ci-metrics` compares, and
# `make ci-metrics-renew` writes this file. Below each workload and rule stand its kernels. Bytes are exact, of two
# threads; instructions may move by 1 %, and are of one thread.
"""
PERSISTENT, SCRATCH, INSTRUCTIONS = "persistent", "scratch", "instructions"
TOLERATED = {INSTRUCTIONS: 0.01}
COMMANDS = {FORWARD: "forward", GRADIENT: "gradient", WEIGHT_GRAD: "weight-grad"}  # of embfuse; else step
PREFETCH = "rows:L2:8192,grads:L1:2048,sort:524288"  # the default of a CPU with the usual caches
WORSE, OTHER = 3, 4
RENEW = "make ci-metrics-renew"


# --- the numbers of this build: {(workload, rule, kernel or ""): {what: number}}
def call(command, **more):
    """Runs a program without the settings of the caller that change what kernels do."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("EMBFUSE_", "OMP_", "GOMP_", "GLIBC_TUNABLES"))}
    return subprocess.run(list(map(str, command)), env=clean | more, capture_output=True, text=True, check=False)


def good(command, fine=(0,), **more):
    """The same, and the program must end with one of these statuses."""
    done = call(command, **more)
    if done.returncode not in fine:
        said = [line for line in done.stderr.splitlines() if not line.startswith("==")] or [""]  # not valgrind's
        raise ResultError(f"{' '.join(map(str, command))}: status {done.returncode}: {said[-1]}")
    return done


def bench(build, folder):
    """Two results with a sample of every host kernel: steps by the rule of each workload, and all other operations.
    Another bench need not wait: nothing here is a time."""
    for rules in ("", " ".join(COMMANDS)):
        good([build / "bench", f"--spec={SPEC}", f"--rule={rules}", "--place=host", "--modes=warm", "--reps=1", "--ring=1",
              "--threads=2", f"--out={folder}"], fine=(0, 2), EMBFUSE_CACHE_MIB="16", EMBFUSE_LOCK=str(folder / "lock"))
        yield load(folder / "bench.json")


def add_bytes(found, result):
    for s in result.series:
        if not s.failed:
            count = lambda key: round(s.median(key) * 2**20)
            found.setdefault((s.workload, s.rule, ""), {})[PERSISTENT] = count("persistent_mib")
            found[s.key[:3]] = {SCRATCH: count("scratch_mib")}


def instructions(build, folder, key):
    """Those of one call of a kernel's run. valgrind shows every CPU with AVX2 as the same one, and the prefetches are
    given, so they do not depend on it. The linker has done its work before, and memset and memcpy do without the
    instruction that callgrind counts once for every byte."""
    workload, rule, kernel = key
    with tempfile.TemporaryDirectory(dir=folder) as out:
        done = good(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=run",
                     build / "embfuse", COMMANDS.get(rule, "step"), "--kernel", kernel, "--batch", folder / workload,
                     "--no-check", "--threads", "1", "--out", f"{out}/new"],
                    EMBFUSE_ISA="avx2", EMBFUSE_PREFETCH=PREFETCH, LD_BIND_NOW="1", GLIBC_TUNABLES="glibc.cpu.hwcaps=-ERMS")
    count = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if not count or not int(count[1]):
        raise ResultError(f"callgrind counted nothing in the function run of {kernel}, on {workload}, {rule}")
    return int(count[1])


def add_instructions(found, build, folder):
    keys = [key for key in found if key[2]]
    for workload in {k[0] for k in keys}:
        good([build / "embfuse", "gen", SPEC, "--workload", workload, "--initial-tables", "--out", folder / workload])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for key, count in zip(keys, pool.map(lambda k: instructions(build, folder, k), keys)):
            found[key][INSTRUCTIONS] = count


def counted_by(result):
    """What the number of instructions depends on beside the kernels; "" if they cannot be counted here."""
    if platform.machine() != "x86_64" or not shutil.which("valgrind"):
        return ""
    libc = re.match(r"glibc [\d.]+", result.context.get("emb_libraries", ""))
    return ", ".join((result.context.get("emb_compiler", "?"), libc[0] if libc else "?",
                      good(["valgrind", "--version"]).stdout.strip(), "avx2"))


def of_kernels(found, text):
    """The numbers of workloads, and of kernels whose names have this text."""
    return {key: own for key, own in found.items() if text in key[2] or not key[2]}


def numbers(build, text):
    """(the numbers, what counted the instructions, failures)"""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = list(bench(build, folder))
        for result in results:
            add_bytes(found, result)
        found = of_kernels(found, text)
        say("bytes")
        made_by = counted_by(results[0])
        if made_by:
            add_instructions(found, build, folder)
            say("instructions")
    return found, made_by, [f for r in results for f in r.failures()]


# --- the recorded numbers
def text_of(found, made_by):
    lines = [HEAD + f"# instructions: {made_by}"]
    for key, own in sorted(found.items()):
        what = " ".join(f"{k} {v}" for k, v in own.items())
        lines.append(f"  {key[2]} {what}" if key[2] else f"{key[0]} {key[1]} {what}")
    return "\n".join(lines) + "\n"


def recorded(path):
    """(numbers, what counted the instructions) of a golden file."""
    found, made_by, above = {}, "", None
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as e:
        raise ResultError(f"{path}: {e.strerror}; {RENEW} writes it") from None
    for n, line in enumerate(lines, 1):
        if line.startswith("# instructions: "):
            made_by = line.partition(": ")[2]
        if line.startswith("#"):
            continue
        words = line.split()
        key, pairs = ((*above, words[0]), words[1:]) if line.startswith(" ") and above else ((*words[:2], ""), words[2:])
        if not pairs or len(pairs) % 2 or not all(p.isdecimal() for p in pairs[1::2]) or key in found:
            raise ResultError(f"{path}:{n}: not as {RENEW} writes it: '{line}'")
        above = key[:2]
        found[key] = dict(zip(pairs[::2], map(int, pairs[1::2])))
    if not made_by:
        raise ResultError(f"{path}: no line '# instructions: ...' says what counted them; {RENEW} writes it")
    return found, made_by


# --- the judgement
def verdict(what, old, new):
    """What to do about a number, or None."""
    if old is None or new is None:
        return "new: renew" if old is None else "gone: renew"
    if abs(new - old) <= TOLERATED.get(what, 0) * old:
        return None
    return "WORSE: mend it, or renew and say why" if new > old else "better: renew"


def differences(old, new, judged):
    """Rows of a table: case, baseline, now, change, what to do."""
    rows = []
    for key in [*old, *(k for k in new if k not in old)]:
        for what in judged:
            a, b = (side.get(key, {}).get(what) for side in (old, new))
            todo = verdict(what, a, b) if (a, b) != (None, None) else None
            if todo:
                number = lambda n: "-" if n is None else str(n)
                change = f"{100 * (b / a - 1):+.2f} %" if a and b is not None else "-"
                rows.append([" ".join(filter(None, (*key, what))), number(a), number(b), change, todo])
    return rows


def status_of(rows):
    return 0 if not rows else WORSE if any(r[-1].startswith("WORSE") for r in rows) else OTHER


def told(rows, old, judged):
    """The lines that say it."""
    if rows:
        return text_table([["case", "baseline", "now", "change", "what to do"], *rows], left=(0, 4))
    count = lambda what: f"{sum(what in own for own in old.values())} {'numbers ' * (what == judged[0])}of {what}"
    return ["as recorded: " + ", ".join(count(w) + " within 1 %" * (w in TOLERATED) for w in judged)]


def not_judged(args, recorded_by, made_by):
    """Lines about what is not judged, and why; and who judges what device kernels do."""
    if made_by != recorded_by:
        yield f"SKIPPED instructions: recorded with {recorded_by}; here " + (
            made_by or "they are not counted: that needs valgrind, on x86-64")
    yield ("make test-cuda judges device kernels: requests and scratch, counted on PTX, and machine code"
           + ", but SKIPPED: no nvcc" * (not args.nvcc))


def arguments():
    parser = Arguments(__doc__)
    parser.add_argument("build", type=Path, metavar="BUILD", help="folder of a portable build")
    parser.add_argument("--kernel", default="", metavar="TEXT", help="only kernels whose names have this text")
    parser.add_argument("--golden", default=GOLDEN, type=Path, metavar="FILE")
    parser.add_argument("--nvcc", help="the compiler of device kernels, if there is one")
    parser.add_argument("--renew", action="store_true", help="write the file again")
    args = parser.parse_args()
    if args.renew and args.kernel:
        parser.error("--renew is of all kernels")
    if args.renew and not shutil.which("valgrind"):
        raise ResultError(f"{RENEW} needs valgrind: apt-get install valgrind")
    return args


def main():
    args = arguments()
    old, recorded_by = recorded(args.golden) if args.golden.exists() or not args.renew else ({}, "")
    old = of_kernels(old, args.kernel)
    new, made_by, failures = numbers(args.build, args.kernel)
    recorded_by = made_by if args.renew else recorded_by
    if failures:
        print("\n".join("FAILED " + ", ".join(failure) for failure in failures))
        return 2
    judged = [PERSISTENT, SCRATCH, *[INSTRUCTIONS] * (made_by == recorded_by)]
    rows = differences(old, new, judged)
    print("\n".join([*told(rows, old, judged), *not_judged(args, recorded_by, made_by)]))
    if args.renew:
        write_whole(args.golden, text_of(new, made_by))
        print(f"{args.golden}: written")
        return 0
    if rows:
        print(f"renew: {RENEW} writes {GOLDEN.relative_to(ROOT)} again; commit it with the change")
    return status_of(rows)


if __name__ == "__main__":
    program.run(main)
