#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of reports/medians.py, which github-action-benchmark and Bencher read, and of Google Benchmark's compare.py on
our results: the real one, from Debian's libbenchmark-tools."""
import copy
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
import make_results
from spoiled import equal, run, save

COMPARE = "/usr/share/benchmark/compare.py"
FIRST = "zipf/alpha:0.6/rowwise_adagrad/cpu_fused/cold"


def exported(folder, data):
    """(the text of the medians of a result, what the program wrote to stderr)"""
    path, out = save(data, folder, "result.json"), os.path.join(folder, "medians.json")
    done = run("medians.py", path, out)
    equal((done.returncode, done.stdout), (0, out + "\n"))
    with open(out, encoding="utf-8") as file:
        return file.read(), done.stderr


def test_one_row_for_each_series_with_its_median(folder):
    data = make_results.result(noise=0.001)
    for row, ms in zip((r for r in data["benchmarks"] if r["name"].startswith(FIRST)), (5, 1, 4, 2, 9)):
        row["real_time"], row["cpu_time"] = ms, 3 * ms
    text, stderr = exported(folder, data)
    rows = json.loads(text)["benchmarks"]
    equal((len(rows), stderr.count("\n")), (36, 1))  # which names the kernel that was not run
    equal(next(r for r in rows if r["name"] == FIRST),
          {"name": FIRST, "run_name": FIRST, "run_type": "iteration", "repetitions": 1, "repetition_index": 0,
           "threads": 2, "iterations": 5, "real_time": 4000.0, "cpu_time": 12000.0, "time_unit": "us"})
    with open(os.path.join(folder, "medians.bencher.json"), encoding="utf-8") as file:
        known = json.load(file)
    row = next(r for r in data["benchmarks"] if r["name"].startswith(FIRST))
    equal((len(known), known[FIRST]), (36, {"latency": {"lower_value": 2e6, "value": 4e6, "upper_value": 5e6},
                                            "persistent-bytes": {"value": round(row["persistent_mib"] * 2**20)},
                                            "scratch-bytes": {"value": round(row["scratch_mib"] * 2**20)}}))


def test_failed_kernels_and_doubts_are_named(folder):
    data = make_results.result(noise=0.001)
    data["context"]["emb_cut_short"] = "by SIGINT"
    bad = next(r for r in data["benchmarks"] if r["name"].startswith(FIRST))
    for row, ms in zip((r for r in data["benchmarks"] if "0.6/rowwise_adagrad/cpu_sort/cold" in r["name"]), (5, 1, 4)):
        row["ns_per_lookup"] *= ms
    bad |= {"error_occurred": True, "error_message": "WRONG RESULT: row 3"}
    text, stderr = exported(folder, data)
    equal(len(json.loads(text)["benchmarks"]), 35)
    assert "1 of 35 rows are not to be quoted" in stderr, stderr
    assert "cut short: by SIGINT" in stderr and "FAILED cpu_fused on zipf/alpha:0.6: WRONG RESULT: row 3" in stderr, stderr


def test_compare_py_reads_a_result(folder):
    """One kernel is 1.5 times as slow."""
    if not os.path.exists(COMPARE):
        raise tap.Skip("no compare.py; it is in Debian's libbenchmark-tools")
    old = make_results.result(repetitions=9)
    new = copy.deepcopy(old)
    for row in new["benchmarks"]:
        if "/cpu_fused/" in row["name"]:
            row["real_time"] *= 1.5
    done = subprocess.run([sys.executable, COMPARE, "--no-color", "benchmarks", save(old, folder, "old.json"),
                           save(new, folder, "new.json")], capture_output=True, text=True, check=False)
    equal((done.returncode, done.stderr), (0, ""))
    lines = done.stdout.splitlines()
    own = [line.split() for line in lines if line.startswith(FIRST)]
    equal([w[1] for w in own[:9]], ["+0.5000"] * 9)
    assert own[9][0].endswith("_pvalue") and float(own[9][1]) < 0.001 and "Repetitions: 9 vs 9" in " ".join(own[9]), own[9]
    equal({line.split()[1] for line in lines if "/cpu_sort/" in line and "_pvalue" not in line}, {"+0.0000"})


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "medians"))
