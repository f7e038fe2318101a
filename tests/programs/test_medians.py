#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of reports/medians.py, and of what other tools read of our files: github-action-benchmark, Bencher, and
Google Benchmark's compare.py, the real one, from Debian's libbenchmark-tools."""
import copy
import json
import os
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
