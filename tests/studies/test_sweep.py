#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of studies/sweep.py, scaling.py and parts.py: they check the designs directly, reports on made-up
results, and whole runs with a stand-in for bench."""
import itertools
import os
import re
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


def test_memory_limits_hold(folder):
    for gib in (0.01, 0.5, 4):
        points = sweep.design((1, 2), int(gib * GIB))
        for p in points:
            assert 1 <= p.rows and 4 * p.dim * p.rows * p.tables <= gib * GIB, p
            lookups = sweep.batch(p) * p.pooling * p.tables
            assert 0.98 * 2**18 <= lookups <= 2**20, (p, lookups)
            assert lookups * p.dim * 4 <= GIB, (p, "gradient of a batch")
        names = [sweep.name(p) for p in points]
        equal(len(set(names)), len(names))
        assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,32}", n) for n in names)
    whole = sweep.design((1, 2), 10**13)
    equal({p.rows for p in whole}, set(sweep.AXES.rows))
    assert any(p.rows not in sweep.AXES.rows for p in points)
    equal(sweep.cut(sweep.Point(1024, 1, 0, 10_000_000, 1, 1), 4 * GIB).rows, 1_000_000)
    equal(sweep.cut(sweep.Point(8, 1, 0, 1000, 100, 1), 3200 * 77).rows, 77)


def arguments(**given):
    return type("Arguments", (), {"kernel": "a", "others": "b c", "dense": "d", "threads": "1 2", "reps": "3",
                                  "seed": "", "most": 1e8} | given)


def test_a_dense_gradient_is_asked_for_where_it_fits(folder):
    points = sweep.design((1, 2), 4 * GIB)
    parts = sweep.parts(points, arguments())
    by_name = {sweep.name(p): p for p in points}
    equal(sorted(n for part in parts for n in part.workloads()), sorted(by_name))
    for part in parts:
        options, own = dict(part.options), [by_name[n] for n in part.workloads()]
        equal({p.threads for p in own}, {int(options["threads"])})
        fits = {4 * p.dim * p.rows * p.tables <= GIB for p in own}
        equal(fits, {"|d)" in options["filter"]})
    equal({dict(p.options)["filter"] for p in parts}, {"/(a|b|c)/", "/(a|b|c|d)/"})


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
    with open(os.path.join(folder, "sweep.svg"), encoding="utf-8") as file:
        svg = file.read()
    for text in ("on 2 of 3 points", "floats per row", "0.800"):
        assert text in svg, text


def test_a_wrong_result_is_no_win(folder):
    need_gnuplot()
    times = POINTS | {"wins": {"cpu_hash": 10, "cpu_sort": 12}}
    path = points_of(folder, times, emb_not_run_1="wins | cpu_fused | WRONG RESULT: row 7")
    done = run("sweep.py", path, folder, *KERNELS)
    assert "on 1 of 3 points; fastest on 0, worst 0," in done.stdout, done.stdout
    assert "| wins | 1048576 | 25.0 % | none | cpu_hash | 10.0 | **0** |" in done.stdout, done.stdout
    assert "- FAILED cpu_fused on wins: WRONG RESULT: row 7" in done.stdout


# --- whole runs
def test_a_whole_sweep(folder):
    need_gnuplot()
    done, calls, path = measure("sweep.py", folder, "--seed=7")
    equal(done.returncode, 0)
    points = sweep.design((1, 2), 4 * GIB)
    assert f"on {len(points)} of {len(points)} points; fastest on {len(points)}, worst 1.50" in done.stdout
    assert {c[1]["seed"] for c in calls} == {"7"} and {c[1]["reps"] for c in calls} == {"3"}
    result = results.load(path)
    equal(result.machine(), "A CPU, 1 or 2 threads")
    equal(result.context["emb_disturbed_samples"], str(2 * len(calls)))
    worst = max(len(names) for names, _ in calls) / 2 + 2
    caution = f"load {worst:.1f} on 2 CPUs: do not quote**\n\ncpu_fused is fastest"
    assert caution in done.stdout, done.stdout[:300]
    with open(os.path.join(folder, "sweep.svg"), encoding="utf-8") as file:
        assert f"load {worst:.1f} on 2 CPUs: do not quote" in file.read()
    equal(len(result.groups("cold")), len(points))
    assert not os.path.exists(path + ".parts"), "the next run measures anew"


def test_what_does_not_fit_is_named_and_left_out(folder):
    need_gnuplot()
    done, calls, path = measure("sweep.py", folder, "--reps=1", bad={"d1024-L20-a1.05-r1M": "memory",
                                                                     "d8-L1-a0": "kill"})
    equal(done.returncode, 0)
    killed, large = ([n for names, _ in calls if any(w in n for n in names) for n in names]
                     for w in ("d8-L1-a0", "d1024-L20-a1.05-r1M"))
    for n in killed:
        assert f"not run: all kernels on {n}: bench was ended by SIGKILL" in done.stdout, n
    for n in large:
        assert f"not run: all kernels on {n}: {n}: needs 99.0 GiB" in done.stdout, n
    count = len(sweep.design((1, 2), 4 * GIB)) - len(killed) - len(large)
    assert killed and large and f"on {count} of {count} points" in done.stdout


def test_a_run_that_was_cut_short_goes_on(folder):
    for what in ("interrupt", "stopped"):
        own = os.path.join(folder, what)
        os.mkdir(own)
        goes_on_after(what, own)


def goes_on_after(what, folder):
    need_gnuplot()
    quiet = os.path.join(folder, "quiet")  # if it exists, the same program is not interrupted any more
    bad = {"-t1": what}
    done, first, path = measure("sweep.py", folder, "--reps=1", bad=bad, quiet=quiet)
    one_line_error(done, "interrupted")
    assert len(first) > 3 and not os.path.exists(path)
    with open(quiet, "w", encoding="utf-8"):
        pass
    done, rest, _ = measure("sweep.py", folder, "--reps=1", bad=bad, quiet=quiet)
    equal(done.returncode, 0)
    equal(first[-1][0], rest[0][0])
    equal(done.stderr.count("is there already"), len(first) - 1)
    points = sweep.design((1, 2), 4 * GIB)
    equal(sorted(n for names, _ in first[:-1] + rest for n in names), sorted(map(sweep.name, points)))


def test_parts_of_another_program_are_measured_again(folder):
    need_gnuplot()
    done, first, _ = measure("sweep.py", folder, "--reps=1", bad={"-t1": "interrupt"})
    assert "interrupted" in done.stderr and len(first) > 3
    done, rest, _ = measure("sweep.py", folder, "--reps=1")
    equal(done.returncode, 0)
    equal(sum(len(names) for names, _ in rest), len(sweep.design((1, 2), 4 * GIB)))


def test_a_wrong_kernel_is_status_2(folder):
    need_gnuplot()
    done, _, _ = measure("scaling.py", folder, "--most=1e4", "--reps=1", bad={"rows-": "wrong"})
    equal(done.returncode, 2)
    assert "- FAILED cpu_hash on rows-10000: WRONG RESULT: row 3" in done.stdout


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
def test_the_steps_of_scaling(folder):
    equal(scaling.steps(10**5), [10**4, 3 * 10**4, 10**5])
    parts = {p.name: p for p in scaling.parts(arguments())}
    for axis in ("lookups", "rows"):
        equal(parts[axis].workloads()[-1], f"{axis}-{10**7}")
        equal(parts[f"{axis}-{10**8}"].workloads(), [f"{axis}-{10**8}"])
    assert "batch 1000000\n" in parts["lookups-100000000"].spec  # bags of 100
    large = ["lookups-30000000", "lookups-100000000"]
    equal([n for n, p in parts.items() if ("ring", "1") in p.options], large)
    equal({n.partition("-")[0] for n, p in parts.items() if "d)" in dict(p.options)["filter"]}, {"rows"})
    equal(dict(parts["threads-1"].options)["threads"], "1")
    with open(os.path.join(ROOT, scaling.STANDARD), encoding="utf-8") as file:
        standard = file.read()
    body = parts["threads-2"].spec.partition("\n")[2]
    assert "alpha" in body and "workload" not in body and "workload zipf\n" + body in standard


def test_a_whole_scaling(folder):
    need_gnuplot()
    done, calls, path = measure("scaling.py", folder, "--most=1e7", "--reps=1")
    equal(done.returncode, 0)
    out = done.stdout
    small, large = (f"| {n} | 25.0 % | 2.00 | 4.00 | 3.00 |" for n in (10000, 10000000))  # with two threads
    assert 0 < out.index(small) < out.index(large)
    assert "on 2 CPUs: do not quote**\n\nns per lookup" in out, out[:300]
    assert "| alpha:1.2 | cpu_sort | 6.00 | 3.00 | 2.00 |" in out
    assert "to the power of: cpu_fused 1.00, cpu_hash 1.00, cpu_sort 1.00" in out
    assert "grow by a factor of 1.00, and the time by: cpu_fused 1.00" in out, out
    with open(os.path.join(folder, "scaling.svg"), encoding="utf-8") as file:
        svg = file.read()
    for text in ("lookups of a batch", "rows of the table", "threads", "cpu_dense", "10M"):
        assert text in svg, text
    with open(path, encoding="utf-8") as file:
        rows = file.read().count('"name"')
    equal(rows, 7 * 3 + 7 * 4 + 2 * 4 * 3)


def test_the_growth_is_fitted(folder):
    class Group:
        def __init__(self, n):
            self.n = n

        def median(self, key):
            return {"lookups": self.n}[key]

    old = scaling.time
    try:
        scaling.time = lambda g, k: g.n**0.5  # ns per lookup: time grows as N^1.5
        groups = [Group(n) for n in (10**4, 10**6, 10**7, 10**8)]
        assert abs(scaling.growth(groups, None) - 1.5) < 1e-9
        scaling.time = lambda g, k: 1e9 if g.n < 10**6 else 3.0  # small batches do not count
        assert abs(scaling.growth(groups, None) - 1.0) < 1e-9
        equal(scaling.growth(groups[:2], None), None)
    finally:
        scaling.time = old


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "sweep"))
