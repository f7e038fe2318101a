#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/studies/sweep.py, scaling.py and parts.py: they check the designs directly, reports on made-up
results, and whole runs with a stand-in for bench."""
import itertools
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import ROOT
import fake_bench
import results
import scaling
import sweep
from spoiled import equal, made_up, need_gnuplot, one_line_error, run, series

KERNELS = ("--kernel=cpu_fused", "--others=cpu_hash cpu_sort", "--dense=cpu_dense")
GIB = 2**30

TIMES = {"cpu_fused": 4.0, "cpu_hash": 8.0, "cpu_sort": 6.0, "cpu_dense": 20.0}


def measure(tool, folder, *args, bad=None, quiet=""):
    """A whole run with the stand-in: (the process, the calls of bench, the path of the result)."""
    path, log = os.path.join(folder, "result.json"), os.path.join(folder, "log")
    bench = fake_bench.install(folder, "bench", "bench", log=log, times=TIMES, bad=bad or {}, quiet=quiet)
    if os.path.exists(log):
        os.unlink(log)
    done = run(tool, path, folder, f"--bench={bench}", "--threads=1 2", *KERNELS, *args)
    return done, [call[1:] for call in fake_bench.calls(log)], path


def all_pairs(points):
    return {((i, p[i]), (j, p[j])) for p in points for i, j in itertools.combinations(range(len(p)), 2)}


# --- the design
def test_the_design_has_every_pair_of_values(folder):
    for threads in ((1,), (1, 2), (1, 4, 64)):
        axes = sweep.AXES._replace(threads=threads)
        want = {((i, a), (j, b)) for i, j in itertools.combinations(range(len(axes)), 2)
                for a in axes[i] for b in axes[j]}
        stars = sweep.stars(axes)
        assert want - all_pairs(stars), "one axis at a time has not all pairs: the cover does something"
        equal(want - all_pairs(stars + sweep.cover(axes, stars)), set())
        equal(want - all_pairs(sweep.cover(axes, [])), set())


def test_memory_limits_hold(_folder):
    for gib in (0.01, 0.5, 4):
        points = sweep.design((1, 2), int(gib * GIB))
        for p in points:
            lookups = sweep.batch(p) * p.pooling * p.tables
            assert 1 <= p.rows and 4 * p.dim * p.rows * p.tables <= gib * GIB and 0.98 * 2**18 <= lookups <= 2**20, p
            assert lookups * p.dim * 4 <= GIB, (p, "gradient of a batch")
        equal(len({sweep.name(p) for p in points}), len(points))


def arguments(**given):
    return type("Arguments", (), {"kernel": "a", "others": "b c", "dense": "d", "threads": "1 2", "reps": "3",
                                  "seed": "", "most": 1e8} | given)


def test_bench_reads_the_specs(folder):
    bench = os.path.join(ROOT, os.environ.get("BUILD", "build"), "bench")
    if not os.path.exists(bench):
        raise tap.Skip("no bench in the build folder")
    texts = [p.spec for p in sweep.parts(sweep.design((1, 2), 4 * GIB), arguments())]
    for i, text in enumerate(texts + [p.spec for p in scaling.parts(arguments())]):
        path = os.path.join(folder, f"{i}.spec")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([bench, f"--spec={path}", f"--out={folder}", "--filter=no_such_kernel"],
                              capture_output=True, text=True, check=False)
        assert "matches none" in done.stderr, (text, done.stderr)


# --- the verdict
def points_of(folder, times, **context):
    """A result with times {workload: {kernel: ns}}."""
    counters = {"lookups": 2**20, "distinct": 2**18, "tables": 1, "longest_bag": 1}
    return made_up(folder, "made", *(series(w, k, [ns] * 5, **counters) for w, own in times.items()
                                     for k, ns in own.items()), **context)


POINTS = {"wins": {"cpu_fused": 5, "cpu_hash": 10, "cpu_sort": 12},       # 2.00
          "near": {"cpu_fused": 10, "cpu_hash": 9.2, "cpu_dense": 50},    # 0.92
          "loses": {"cpu_fused": 10, "cpu_hash": 11, "cpu_sort": 8}}      # 0.80


def test_a_loss_is_reported_as_one(folder):
    need_gnuplot()
    path = points_of(folder, POINTS)
    done = run("sweep.py", path, folder, *KERNELS)
    equal((done.returncode, done.stderr), (0, ""))
    assert ("cpu_fused is fastest or within 10 % on 2 of 3 points; fastest on 1, worst 0.800, "
            "median 0.920") in done.stdout, done.stdout
    rows = [x.split(" | ") for x in done.stdout.splitlines() if x.startswith("| ")][2:]
    equal([r[0] for r in rows], ["| loses", "| near", "| wins"])
    equal(rows[0][3:7], ["10.0", "cpu_sort", "8.00", "**0.800**"])
    equal(rows[1][6], "0.920")


# --- whole runs
def test_a_whole_sweep(folder):
    need_gnuplot()
    done, calls, path = measure("sweep.py", folder, "--seed=7")
    equal(done.returncode, 0)
    points = sweep.design((1, 2), 4 * GIB)
    assert f"on {len(points)} of {len(points)} points; fastest on {len(points)}, worst 1.50" in done.stdout
    assert {c[1]["seed"] for c in calls} == {"7"} and {c[1]["reps"] for c in calls} == {"3"}
    result = results.load(path)
    equal(len(result.groups("cold")), len(points))
    assert not os.path.exists(path + ".parts"), "the next run measures anew"


def test_a_run_that_was_interrupted_goes_on(folder):
    need_gnuplot()
    quiet = os.path.join(folder, "quiet")  # if it exists, the same program is not interrupted any more
    again = lambda: measure("sweep.py", folder, "--reps=1", bad={"-t1": "interrupt"}, quiet=quiet)
    done, first, path = again()
    one_line_error(done, "interrupted")
    assert len(first) > 3 and not os.path.exists(path)
    tap.script(folder, "quiet", "")
    done, rest, _ = again()
    equal((done.returncode, first[-1][0], done.stderr.count("is there already")), (0, rest[0][0], len(first) - 1))
    points = sweep.design((1, 2), 4 * GIB)
    equal(sorted(n for names, _ in first[:-1] + rest for n in names), sorted(map(sweep.name, points)))


def test_bad_input_is_one_line(folder):
    for tool in ("sweep.py", "scaling.py"):
        one_line_error(measure(tool, folder, "--reps=0")[0], "REPS: '0'")
        one_line_error(measure(tool, folder, "--threads=two")[0], "THREADS: 'two'")
        one_line_error(run(tool, os.path.join(folder, "none.json"), folder, *KERNELS), "none.json")
        one_line_error(run(tool, "x.json", folder, "--bench=no/such", *KERNELS), "no/such")
    one_line_error(measure("scaling.py", folder, "--most=10")[0], "MOST: 10")
    one_line_error(measure("sweep.py", folder, "--gib=0")[0], "GIB: 0")
    one_line_error(run("scaling.py", points_of(folder, POINTS), folder, *KERNELS), "no workload lookups-NUMBER")


# --- scaling
def test_a_whole_scaling(folder):
    need_gnuplot()
    done, _, path = measure("scaling.py", folder, "--most=1e7", "--reps=1")
    equal(done.returncode, 0)
    small, large = (f"| {n} | 25.0 % | 2.00 | 4.00 | 3.00 |" for n in (10000, 10000000))  # with two threads
    assert 0 < done.stdout.index(small) < done.stdout.index(large)
    assert "to the power of: cpu_fused 1.00, cpu_hash 1.00, cpu_sort 1.00" in done.stdout
    equal(len(results.load(path).series), 7 * 3 + 7 * 4 + 2 * 4 * 3)
    done, _, _ = measure("scaling.py", folder, "--most=1e4", "--reps=1", bad={"rows-": "wrong"})
    equal(done.returncode, 2)
    assert "- FAILED cpu_hash on rows-10000: WRONG RESULT: row 3" in done.stdout


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "sweep"))
