# SPDX-License-Identifier: MIT
"""Stand-ins for the programs that studies run: bench, embfuse, and make of compilers, revisions and records."""
import functools
import json
import os
import random
import re
import signal
import sys

import fake_bench
from fake_bench import calls, note, options, row, save

install = functools.partial(fake_bench.install, of=__file__)


def workloads(given):
    """[(name, counters)] of the spec that bench is given."""
    with open(given["spec"], encoding="utf-8") as file:
        blocks = [dict(line.split(None, 1) for line in b.splitlines() if line.strip())
                  for b in re.split(r"(?m)^(?=workload )", file.read()) if b.strip()]
    found = []
    for b in blocks:
        tables, longest = int(b.get("tables", 1)), int(b["length"].split()[-1])
        for alpha in b["alpha"].split():
            lookups = int(b["batch"]) * longest * tables
            found.append((b["workload"] + (f"/alpha:{alpha}" if " " in b["alpha"].strip() else ""),
                          {"lookups": lookups, "distinct": lookups / 4, "tables": tables, "dim": int(b["dim"]),
                           "rows": int(b["rows"]) * tables, "alpha": float(alpha), "longest_bag": longest,
                           "threads": int(given["threads"]), "rule": "rowwise_adagrad"}))
    return found


def bench(log, times, who="", speed=1.0, noise=0.0, bad=(), quiet="", context=()):
    """Rows of times {kernel: ns per lookup}, times speed, over the threads: of a sweep's spec and filter, or of one
    workload. bad: {part of a workload's name: what goes wrong there}, unless the file `quiet` exists."""
    given = options()
    chosen = re.fullmatch(r"/\(([\w|]+)\)/", given.get("filter", ""))
    found = workloads(given) if chosen else [("w", {})]
    names = list(dict.fromkeys(name.partition("/")[0] for name, _ in found))
    note(log, os.environ.get("EMBFUSE_ISA") or who, names, given)
    if given.get("reps") == "0":
        sys.exit("bench: REPS: '0' is not a number from 1 to 1000")
    if given.get("rule") == "none":
        sys.exit("[0/1] measuring\nbench: unknown rule 'none'")
    bad = {what for word, what in dict(bad).items() if any(word in n for n in names) and not os.path.exists(quiet)}
    if "interrupt" in bad:
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
    if "memory" in bad:
        why = [f"not run: {n}, all kernels: {n}: needs 99.0 GiB, 1.0 GiB are available" for n in names]
        print("[0/1] measuring", *why, sep="\n", file=sys.stderr)
        sys.exit(1)
    draw = random.Random(len(calls(log)))  # other noise in each call, the same in each run of a test
    kernels = [k for k in (chosen[1].split("|") if chosen else times) if not ("wrong" in bad and k == list(times)[1])]
    threads, reps = int(given.get("threads") or 1), int(given["reps"])
    ns = lambda k: times[k] * speed / threads * draw.uniform(1 - noise, 1 + noise)
    rows = [row(name, k, ns(k), repetition_index=r, **counters)
            for name, counters in (found[:1] if "kill" in bad else found) for k in kernels for r in range(reps)]
    known = {f"emb_kernel_{k}": f"cpu | host | {'deterministic' if i == 0 else 'none'} | {k} by name | idea"
             for i, k in enumerate(times)}
    known |= {"emb_kernel_os": "Linux", "emb_cpu": "A CPU", "emb_threads": str(threads),
              "emb_var_THREADS": given.get("threads", ""),
              "emb_var_SPEC": given.get("spec", "")} | dict(context)
    if "wrong" in bad:
        known["emb_not_run_0"] = f"{names[0]} | {list(times)[1]} | WRONG RESULT: row 3"
    save(os.path.join(given["out"], "bench.json"), known, rows)
    if "kill" in bad:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(128 + signal.SIGTERM if "stopped" in bad else 2 if "wrong" in bad else 0)


def embfuse(cc="", differs=(), check="exact"):
    """Lists two kernels, writes batches that hold their rule, and steps whose second weights differ where told."""
    at = lambda flag: sys.argv[sys.argv.index(flag) + 1]
    cc = os.environ.get("EMBFUSE_ISA") or cc
    if sys.argv[1] == "list":
        kernel = lambda name, place: {"name": name, "place": place, "operation": "step", "traits":
                                      ["deterministic"] * (name == "cpu_a"), "rules": ["rowwise_adagrad", "adam"]}
        print(json.dumps({"kernels": [kernel("cpu_a", "host"), kernel("cpu_b", "host"), kernel("cuda_a", "device")],
                          "rules": [{"name": "rowwise_adagrad"}, {"name": "adam"}]}))
    elif sys.argv[1] == "gen":
        with open(sys.argv[2], encoding="utf-8") as spec, open(at("--out") + ".batch", "w", encoding="utf-8") as batch:
            rule, = set(re.findall(r"rule (\w+)", spec.read()))
            batch.write(rule)
    else:
        with open(at("--batch") + ".batch", encoding="utf-8") as batch:
            case = [cc, at("--kernel"), batch.read()]
        for what in ("weight.0", "weight.1"):
            with open(f"{at('--out')}.{what}.npy", "w", encoding="utf-8") as file:
                file.write("other" if what == "weight.1" and case == list(differs) else "bytes")
        print("checked:", check)


def make_compilers(log, differs=(), check="exact", wrong=False, broken=None):
    """make of one compiler: it writes both programs; clang's take twice as long as gcc's."""
    given = options()
    cc, folder = given.get("CC", ""), given["B"]
    if cc == broken or given["NVCC"] or ("CC" in given) == ("NATIVE" in given):
        sys.exit(2)
    os.makedirs(folder, exist_ok=True)
    install(folder, "bench", "bench", log=log, who=cc, times={"cpu_a": 1000.0, "cpu_b": 1000.0},
            speed=1.0 if cc == "gcc" else 2.0, bad={"w": "wrong"} if wrong and cc == "clang" else {},
            context={"emb_compiler": f"{cc} 1.0", "emb_flags": "-O3 -Ibuild/" + cc})
    install(folder, "embfuse", "embfuse", cc=cc, differs=differs, check=check)


def make_revision(log):
    """make of one revision: its bench has the speed that the file SPEED says."""
    clone = sys.argv[sys.argv.index("-C") + 1]
    assert "NVCC=" in sys.argv and "B=build" in sys.argv and sys.argv[-1] == "build/bench", sys.argv
    with open(os.path.join(clone, "SPEED"), encoding="utf-8") as file:
        speed, commit = file.read().split()
    if speed == "broken":
        sys.exit(2)
    os.makedirs(os.path.join(clone, "build"), exist_ok=True)
    install(os.path.join(clone, "build"), "bench", "bench", log=log, who=float(speed), speed=float(speed), noise=0.01,
            times={"cpu_a": 1000.0, "cpu_b": 1000.0}, context={"emb_commit": commit})


def make_record(log, cpu, bad=(), noise=()):
    """make of the targets of a record. bad: {target: what goes wrong}; noise: the shares of disturbed samples of the
    first call, the second, ..."""
    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    target, given = words[0], options()
    note(log, target, given)
    count, bad = len(calls(log)), dict(bad).get(target)
    where = {"bench": ["bench"], "peers": ["peers/bench", "peers-1-thread/bench"], "ladder": ["ladder/bench"],
             "bench-compilers": ["compilers/bench"], "bench-isa": ["isa/bench"]}.get(target, [f"{target}/{target}"])
    if bad == "fails":
        print("pip could not install it (no network?)\n    [1/2] part 1\n\nmake[1]: x", file=sys.stderr)
        sys.exit("make: *** [extra.mk:29: peers] Error 1")
    if bad == "no file":
        sys.exit(0)
    share = ([*noise, 0.0])[min(count - 1, len(noise))]
    rows = [row("w", "k", 1e3 + 1e3 * count, threads=2, disturbed=float(i < 100 * share)) for i in range(100)]
    context = {"emb_cpu": cpu, "emb_commit": "c0ffee", "emb_threads": "2", "executable": "/x",
               "emb_kernel_k": "cpu | host", "emb_var_OUT": given["OUT"], "emb_var_TRACE": given.get("TRACE", "")}
    context |= {"emb_not_run_0": "w | other | WRONG RESULT: row 3"} if bad == "wrong" else {}
    context |= {"emb_cut_short": "by SIGTERM"} if bad == "cut" else {}
    for path in where:
        save(os.path.join(given["OUT"], path + ".json"), context, rows)
    if bad == "hangs":
        note(log + ".hangs")
        signal.pause()
    if bad == "wrong":
        sys.exit("make: *** [Makefile:225: bench] Error 2")
