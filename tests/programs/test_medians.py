#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of reports/medians.py, and of what other tools read of our files: github-action-benchmark, Bencher, and
Google Benchmark's compare.py, the real one, from Debian's libbenchmark-tools."""
import copy
import json
import os
import re
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
import make_results
import medians
import results
from spoiled import equal, one_line_error, run

COMPARE = "/usr/share/benchmark/compare.py"
FIRST = "zipf/alpha:0.6/rowwise_adagrad/cpu_fused/cold"


# --- what two tools do with a file, restated; both raise KeyError, TypeError or ValueError where the tool would fail
def strict_json(text):
    """As JavaScript and serde read it: NaN and Infinity are errors."""
    def no_constant(word):
        raise ValueError(f"{word} is not JSON")
    return json.loads(text, parse_constant=no_constant)


def taken_by_github_action_benchmark(text):
    """[(name, value, unit, extra)] as extractGoogleCppResult() in benchmark-action/github-action-benchmark,
    src/extract.ts (commit 04dcc2c) makes them of a row's name, real_time, time_unit, iterations, cpu_time and threads.
    It takes every row for a point of the series of that name, and a file without rows for an error."""
    rows = [(b["name"], b["real_time"] + 0, b["time_unit"] + "/iter",
             f"iterations: {b['iterations']:d}\ncpu: {b['cpu_time'] + 0} {b['time_unit']}\nthreads: {b['threads']:d}")
            for b in strict_json(text)["benchmarks"]]
    if not rows or len({name for name, *_ in rows}) < len(rows):
        raise ValueError("no row, or two points of one series")
    return rows


def taken_by_bencher(text):
    """{name: ns} as AdapterCppGoogle in bencherdev/bencher, lib/bencher_adapter/src/adapters/cpp/google.rs (commit
    592539c) makes them of a row's name, real_time and time_unit. context.caches must be a list of objects."""
    data = strict_json(text)
    if not isinstance(data["context"]["caches"], list) or not all(isinstance(c, dict) for c in data["context"]["caches"]):
        raise TypeError("context.caches is no list of objects")
    ns = {"ps": 1e-3, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    return {b["name"]: b["real_time"] * ns[b["time_unit"]] for b in data["benchmarks"]}


def refused(take, data):
    try:
        take(json.dumps(data))
    except (KeyError, TypeError, ValueError):
        return True
    return False


# --- the export
def save(data, folder, name):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file)
    return path


def exported(folder, data, name="result.json"):
    """(the text of the medians of a result, what the program wrote to stderr)"""
    path, out = save(data, folder, name), os.path.join(folder, f"medians-{name}")
    done = run("medians.py", path, out)
    equal((done.returncode, done.stdout), (0, out + "\n"))
    with open(out, encoding="utf-8") as file:
        return file.read(), done.stderr


def test_one_row_for_each_series_with_its_median(folder):
    data = make_results.result()
    for row, ms in zip((r for r in data["benchmarks"] if r["name"].startswith(FIRST)), (5, 1, 4, 2, 9)):
        row["real_time"], row["cpu_time"] = ms, 3 * ms
    text, stderr = exported(folder, data)
    rows = json.loads(text)["benchmarks"]
    equal((len(rows), stderr.count("\n")), (36, 1))  # which names the kernel that was not run
    equal(next(r for r in rows if r["name"] == FIRST),
          {"name": FIRST, "run_name": FIRST, "run_type": "iteration", "repetitions": 1, "repetition_index": 0,
           "threads": 2, "iterations": 5, "real_time": 4000.0, "cpu_time": 12000.0, "time_unit": "us"})


def test_names_do_not_change_with_the_number_of_repetitions(folder):
    names = [{r["name"] for r in json.loads(exported(folder, make_results.result(repetitions=n))[0])["benchmarks"]}
             for n in (3, 7)]
    equal(names[0], names[1])


def test_failed_kernels_and_doubts_are_named(folder):
    data = make_results.result()
    data["context"]["emb_cut_short"] = "by SIGINT"
    bad = next(r for r in data["benchmarks"] if r["name"].startswith(FIRST))
    bad |= {"error_occurred": True, "error_message": "WRONG RESULT: row 3"}
    text, stderr = exported(folder, data)
    equal(len(json.loads(text)["benchmarks"]), 35)
    for words in ("cut short: by SIGINT", "FAILED cpu_fused on zipf/alpha:0.6: WRONG RESULT: row 3",
                  "not run: cuda_fused on all workloads: no CUDA device"):
        assert words in stderr, stderr
    for row in data["benchmarks"]:
        row["real_time"] = 0
    one_line_error(run("medians.py", save(data, folder, "none.json"), os.path.join(folder, "out.json")),
                   "none.json", "no kernel has a time")
    assert not os.path.exists(os.path.join(folder, "out.json"))


def test_unreadable_results(folder):
    good, out = tap.GOLDEN, os.path.join(folder, "out.json")
    with open(good, encoding="utf-8") as file:
        whole = file.read()
    cut = os.path.join(folder, "cut.json")
    with open(cut, "w", encoding="utf-8") as file:
        file.write(whole[:5000])
    one_line_error(run("medians.py", cut, out), "cut.json", "not JSON")
    one_line_error(run("medians.py", os.path.join(folder, "no.json"), out), "no.json", "make bench")
    one_line_error(run("medians.py", good, os.path.join(folder, "no", "out.json")), "out.json", "No such file")
    equal(run("medians.py", good, out).returncode, 0)
    one_line_error(run("table.py", out), "not an embfuse result")


# --- other tools
def test_github_action_benchmark_takes_the_medians(folder):
    data = make_results.result()
    text, _ = exported(folder, data)
    taken = taken_by_github_action_benchmark(text)
    equal(len(taken), 36)
    name, value, unit, extra = taken[0]
    equal((unit, value), ("us/iter", json.loads(text)["benchmarks"][0]["real_time"]))
    assert re.fullmatch(r"iterations: 5\ncpu: [\d.]+ us\nthreads: 2", extra), extra
    assert name.count("/") == 4, name
    # It would make five series of one name of the result itself, and nothing of an empty file.
    assert refused(taken_by_github_action_benchmark, data)
    for key in ("name", "real_time", "time_unit", "iterations", "cpu_time", "threads"):
        spoiled = json.loads(text)
        del spoiled["benchmarks"][7][key]
        assert refused(taken_by_github_action_benchmark, spoiled), key


def test_bencher_takes_the_medians(folder):
    data = make_results.result()
    data["context"]["caches"] = [{"type": "Data", "level": 1, "size": 32768, "num_sharing": 1}]
    text, _ = exported(folder, data)
    ms = {"/".join(s.key): statistics.median(s.times) for s in results.load(save(data, folder, "r.json")).series}
    taken = taken_by_bencher(text)
    equal(set(taken), set(ms))
    assert all(abs(ns / (1e6 * ms[name]) - 1) < 1e-12 for name, ns in taken.items())
    del data["context"]["caches"]
    assert refused(taken_by_bencher, data)
    taken_by_bencher(exported(folder, data)[0])  # the export adds them
    spoiled = json.loads(text)
    spoiled["benchmarks"][0]["time_unit"] = "us/iter"
    assert refused(taken_by_bencher, spoiled)


def compared(old, new):
    """The lines that compare.py prints."""
    if not os.path.exists(COMPARE):
        raise tap.Skip("no compare.py; it is in Debian's libbenchmark-tools")
    done = subprocess.run([sys.executable, COMPARE, "--no-color", "benchmarks", old, new], capture_output=True,
                          text=True, check=False)
    equal((done.returncode, done.stderr), (0, ""))
    return done.stdout.splitlines()


def slower(data):
    """The same result with one kernel 1.5 times as slow."""
    data = copy.deepcopy(data)
    for row in data["benchmarks"]:
        if "/cpu_fused/" in row["name"]:
            row["real_time"] *= 1.5
    return data


def test_compare_py_reads_a_result(folder):
    data = make_results.result(repetitions=9)
    lines = compared(save(data, folder, "old.json"), save(slower(data), folder, "new.json"))
    own = [line.split() for line in lines if line.startswith(FIRST)]
    equal([w[1] for w in own[:9]], ["+0.5000"] * 9)
    assert own[9][0].endswith("_pvalue") and float(own[9][1]) < 0.001 and "Repetitions: 9 vs 9" in " ".join(own[9]), own[9]
    equal({line.split()[1] for line in lines if "/cpu_sort/" in line and "_pvalue" not in line}, {"+0.0000"})


def test_compare_py_reads_recorded_results_and_their_medians(folder):
    """Those of build/bench on real machines, with all that the library writes."""
    path = os.path.join(tap.ROOT, "reports", "results", "zen5-2core", "roof.json")
    count = len(results.load(path).series)
    lines = compared(path, path)
    equal(sum("_pvalue" in line for line in lines), count)
    out = os.path.join(folder, "medians.json")
    equal(run("medians.py", path, out).returncode, 0)
    with open(out, encoding="utf-8") as file:
        text = file.read()
    equal(len(taken_by_github_action_benchmark(text)), count)
    equal(len(taken_by_bencher(text)), count)
    lines = [line for line in compared(out, out) if "/cold " in line]
    equal(len(lines), count)
    equal({line.split()[1] for line in lines}, {"+0.0000"})


def test_compare_py_reads_medians(folder):
    data = make_results.result()
    paths = [os.path.join(folder, name) for name in ("old.json", "new.json")]
    for path, changed in zip(paths, (data, slower(data))):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(medians.medians(results.load(save(changed, folder, "r.json"))), file)
    lines = compared(*paths)
    equal({line.split()[1] for line in lines if "/cpu_fused/" in line}, {"+0.5000"})
    equal({line.split()[1] for line in lines if "/cpu_sort/" in line}, {"+0.0000"})


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "medians"))
