# SPDX-License-Identifier: MIT
"""The golden result, spoiled copies of it, and the tools of reports/ run on them."""
import contextlib
import copy
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import traceback

import tap
from tap import GOLDEN, ROOT
import make_results
import program
import verdict

RULES = ("sgd", "adam", "rowwise_adagrad", "momentum")
LINE = "{} of 18 rows are not to be quoted: uncertain by more than {} %"


def told(text):
    """A text without what a caution says of rows that may be quoted."""
    return re.sub(r"half of the rows are known within [0-9.]+ %(, 95 % within [0-9.]+ %)?; ", "", text)



# These run within the test: a process of their own takes longer to import SciPy than for all else.
WITHIN = ("compare.py", "export.py", "medians.py", "merge.py", "table.py")


def within(path, *args):
    """Runs a tool in this process; returns what subprocess.run() would."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv, sys.argv, status = sys.argv, [path, *args], 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as e:
            status = e.code if isinstance(e.code, int) else int(e.code is not None)
            if status and not isinstance(e.code, int):
                print(e.code, file=sys.stderr)
        except Exception:  # as the interpreter would
            traceback.print_exc()
            status = 1
        finally:
            sys.argv = argv
            out.flush()
            err.flush()
    text = [f.buffer.getvalue().decode() for f in (out, err)]
    return subprocess.CompletedProcess([path, *args], status, *text)


def run(tool, *args, env=None):
    if tool in WITHIN and not env:
        return within(tap.tool(tool), *map(str, args))
    return subprocess.run([sys.executable, tap.tool(tool), *args], text=True,
                          capture_output=True, check=False, encoding="utf-8", errors="replace",
                          env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | (env or {}))


def make(*words):
    return subprocess.run(["make", "-s", "--no-print-directory", "NVCC=", *words], text=True, check=False,
                          cwd=ROOT, capture_output=True, encoding="utf-8",
                          env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")})


def contents(folder, ends):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(ends):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    return found


def drawn_twice(tool, folder, ends):
    """Runs a drawing tool into two folders; returns the files of the first after comparing both."""
    made = []
    for name in ("one", "two"):
        out = os.path.join(folder, name)
        done = run(tool, GOLDEN, out)
        equal((done.returncode, done.stderr), (0, ""))
        for path in done.stdout.split():
            assert os.path.getsize(path) > 2000, path
        made.append(contents(out, ends))
    assert made[0] == made[1], "a second run draws other bytes"
    return made[0]


def full_disk(tool, *args, limit):
    """Runs a report that may not write files of more than `limit` bytes."""
    code = ("import resource, runpy, sys; sys.argv = sys.argv[1:]; "
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
            f"sys.path[:0] = {[os.path.dirname(tap.tool(tool)), tap.ROOMS[0]]!r}; runpy.run_path(sys.argv[0], run_name='__main__')")
    return subprocess.run([sys.executable, "-c", code, tap.tool(tool), *args], text=True,
                          capture_output=True, check=False, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})


def golden():
    with open(GOLDEN, encoding="utf-8") as file:
        return json.load(file)


def save(data, folder, name):
    path = os.path.join(folder, name)
    program.write_whole(path, data if isinstance(data, str) else json.dumps(data))
    return path


def rows_of(data, *words):
    return [r for r in data["benchmarks"] if all(w in r["label"].split() for w in words)]


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def one_line_error(done, *words):
    """Status 1, and one line with these words beside the lines of progress."""
    equal(done.returncode, 1)
    lines = [x for x in done.stderr.splitlines() if not x.startswith("[")]
    equal(len(lines), 1)
    for word in words:
        assert word in lines[0], f"{word!r} not in {lines[0]!r}"


def need_gnuplot():
    if not shutil.which("gnuplot"):
        raise tap.Skip("no gnuplot")


def need_scipy():
    if verdict.without_scipy():
        raise tap.Skip("no SciPy")


def noise_file(folder, ratios, samples=5, name="noise.json", **context):
    """A result of make noise: {(workload, rule, kernel, mode): median of B / median of A}."""
    row = lambda key, side, ms: {
        "name": "/".join(key), "run_type": "iteration", "real_time": ms, "time_unit": "ms", "lookups": 1000,
        "label": "workload={} rule={} kernel={}@{} mode={} fingerprint=aa".format(*key[:3], side, key[3])}
    rows = [row(key, side, ms) for key, ratio in ratios.items() for side, ms in (("A", 1.0), ("B", ratio))
            for _ in range(samples)]
    return save({"context": golden()["context"] | {"emb_noise_samples": str(samples)} | context, "benchmarks": rows},
                folder, name)


def slowed(folder, factor, *words):
    """The golden result with other times in the rows that have these words."""
    data = golden()
    for r in rows_of(data, *words):
        r["real_time"] *= factor
    return save(data, folder, f"slow{factor}.json")


def timed(folder, **times):
    """The golden result with these ns per lookup of kernels on the first workload, cold."""
    data = golden()
    for kernel, own in times.items():
        rows = rows_of(data, f"kernel={kernel}", "mode=cold", "workload=zipf/alpha:0.6")
        for r, ns in zip(rows, own):
            r.update(ns_per_lookup=ns, real_time=ns * r["lookups"] / 1e6, lookups_per_s=1e9 / ns,
                     traffic_gbs=50 / ns)
        data["benchmarks"] = [r for r in data["benchmarks"] if r not in rows[len(own):]]
    return save(data, folder, "timed.json")


def many_rules(folder, rules=RULES, **changes):
    """A result of rules with their bytes of state, and other values for some of them, {rule: counters}."""
    data = make_results.result(rules=rules, workloads={"pooled": (0, 0.9, 0.001)})
    for rule, state in zip(RULES, (0, 512, 4, 256)):
        for r in rows_of(data, f"rule={rule}"):
            r["state_bytes"] = state
            r.update(changes.get(rule, {}) if "kernel=cpu_fused" in r["label"] else {})
    return save(data, folder, "rules.json")


def on_device(data, kernel="cpu_hash"):
    """Turns the kernel into a device kernel, with the counters of one."""
    key = f"emb_kernel_{kernel}"
    data["context"][key] = data["context"][key].replace("| host |", "| device |")
    data["context"]["emb_gpu"] = "Synthetic GPU"
    for r in rows_of(data, f"kernel={kernel}"):
        r["launches"], r["plan_ms"], r["replay_ns_per_lookup"] = 7, 0.25, 11.5
        r["label"] += " place=device"
    return data


def peer(data):
    """A result with the rows of one kernel under a peer's name."""
    rows = copy.deepcopy(rows_of(data, "kernel=cpu_sort"))
    for r in rows:
        for key in ("label", "name"):
            r[key] = r[key].replace("cpu_sort", "torch_sparse")
    context = {"emb_schema": "1", "emb_cpu": "Synthetic CPU",
               "emb_kernel_torch_sparse": "torch | host | none | PyTorch sparse | A peer.",
               "emb_not_run_0": "zipf/alpha:1 | torch_dense | out of memory"}
    return {"context": context, "benchmarks": rows}


def disturbed(folder, count, *words, factor=1.0):
    """The golden result with `count` samples of each row that has these words disturbed, and its times multiplied."""
    data = golden()
    for r in rows_of(data, *words):
        r["disturbed"] = float(r["repetition_index"] < count)
        r["real_time"] *= factor
    return save(data, folder, "disturbed.json")
