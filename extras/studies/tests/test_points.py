#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/studies/points.py, its studies and reports/parts.py: they check the designs directly, reports on
made-up results, and whole runs with a stand-in for bench."""
import itertools
import math
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import ROOT
import crossover
import fake_studies
import ladder
import paper
import results
import scaling
import sweep
from made_results import made_up, need_matplotlib, series
from spoiled import equal, one_line_error, run

KERNELS = ("--kernel=cpu_fused", "--others=cpu_hash cpu_sort", "--dense=cpu_dense")
GIB = 2**30

TIMES = {"cpu_fused": 4.0, "cpu_hash": 8.0, "cpu_sort": 6.0, "cpu_dense": 20.0}


def study(name, *args):
    return run("points.py", name, *args)


def measure(name, folder, *args, bad=None, quiet=""):
    """A whole run with the stand-in: (the process, the calls of bench, the path of the result)."""
    path, log = os.path.join(folder, "result.json"), os.path.join(folder, "log")
    bench = fake_studies.install(folder, "bench", "bench", log=log, times=TIMES, bad=bad or {}, quiet=quiet)
    if os.path.exists(log):
        os.unlink(log)
    done = study(name, path, folder, f"--bench={bench}", "--threads=1 2", *KERNELS, *args)
    return done, [call[1:] for call in fake_studies.calls(log)], path


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
                                  "seed": "", "most": 1e8, "gib": 4.0} | given)


def test_bench_reads_the_specs(folder):
    bench = os.path.join(ROOT, os.environ.get("BUILD", "build"), "bench")
    if not os.path.exists(bench):
        raise tap.Skip("no bench in the build folder")
    texts = [p.spec for p in sweep.parts(arguments())]
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
    need_matplotlib()
    path = points_of(folder, POINTS)
    done = study("sweep", path, folder, *KERNELS)
    equal((done.returncode, done.stderr), (0, ""))
    assert ("cpu_fused is fastest or within 10 % on 2 of 3 points; fastest on 1, worst 0.800, "
            "median 0.920") in done.stdout, done.stdout
    rows = [x.split(" | ") for x in done.stdout.splitlines() if x.startswith("| ")][2:]
    equal([r[0] for r in rows], ["| loses", "| near", "| wins"])
    equal(rows[0][3:7], ["10.0", "cpu_sort", "8.00", "**0.800**"])
    equal(rows[1][6], "0.920")


# --- whole runs
def test_a_whole_sweep(folder):
    need_matplotlib()
    done, calls, path = measure("sweep", folder, "--seed=7")
    equal(done.returncode, 0)
    points = sweep.design((1, 2), 4 * GIB)
    assert f"on {len(points)} of {len(points)} points; fastest on {len(points)}, worst 1.50" in done.stdout
    assert {c[1]["seed"] for c in calls} == {"7"} and {c[1]["reps"] for c in calls} == {"3"}
    result = results.load(path)
    equal(len(result.groups("cold")), len(points))
    assert not os.path.exists(path + ".parts"), "the next run measures anew"


def test_a_run_that_was_interrupted_goes_on(folder):
    need_matplotlib()
    quiet = os.path.join(folder, "quiet")  # if it exists, the same program is not interrupted any more
    again = lambda: measure("sweep", folder, "--reps=1", bad={"-t1": "interrupt"}, quiet=quiet)
    done, first, path = again()
    one_line_error(done, "interrupted")
    assert len(first) > 3 and not os.path.exists(path)
    tap.script(folder, "quiet", "")
    done, rest, _ = again()
    equal((done.returncode, first[-1][0], done.stderr.count("is there already")), (0, rest[0][0], len(first) - 1))
    points = sweep.design((1, 2), 4 * GIB)
    equal(sorted(n for names, _ in first[:-1] + rest for n in names), sorted(map(sweep.name, points)))


def test_bad_sweeps_and_scalings_are_one_line(folder):
    for name in ("sweep", "scaling"):
        one_line_error(measure(name, folder, "--reps=0")[0], f"{name}.py: ", "REPS: '0'")
        one_line_error(measure(name, folder, "--threads=two")[0], "THREADS: 'two'")
        one_line_error(study(name, os.path.join(folder, "none.json"), folder, *KERNELS), "none.json")
        one_line_error(study(name, "x.json", folder, "--bench=no/such", *KERNELS), "no/such")
    one_line_error(study("swep"), "usage: points.py ladder|sweep|crossover|scaling RESULT.json OUTDIR")
    one_line_error(measure("scaling", folder, "--most=10")[0], "MOST: 10")
    one_line_error(measure("sweep", folder, "--gib=0")[0], "GIB: 0")
    one_line_error(study("scaling", points_of(folder, POINTS), folder, *KERNELS), "no workload lookups-NUMBER")


# --- scaling
def test_a_whole_scaling(folder):
    need_matplotlib()
    done, _, path = measure("scaling", folder, "--most=1e7", "--reps=1")
    equal(done.returncode, 0)
    small, large = (f"| {n} | 25.0 % | 2.00 | 4.00 | 3.00 |" for n in (10000, 10000000))  # with two threads
    assert 0 < done.stdout.index(small) < done.stdout.index(large)
    assert "to the power of: cpu_fused 1.00, cpu_hash 1.00, cpu_sort 1.00" in done.stdout
    equal(len(results.load(path).series), 7 * 3 + 7 * 4 + 2 * 4 * 3)
    done, _, _ = measure("scaling", folder, "--most=1e4", "--reps=1", bad={"rows-": "wrong"})
    equal(done.returncode, 2)
    assert "- FAILED cpu_hash on rows-10000: WRONG RESULT: row 3" in done.stdout
    done, _, _ = measure("scaling", folder, "--most=1e4", "--reps=1", "--threads=1")
    one_line_error(done, "needs two thread counts")


# --- crossover
ROWS = 10000


def test_the_threshold_is_where_the_faster_kernel_changes(_folder):
    for points, want in ((((0.1, 3.0), (0.4, 1.2), (0.9, 0.5)), math.sqrt(0.4 * 0.9)),
                         (((0.1, 0.9), (0.9, 0.5)), 0.0), (((0.1, 3.0), (0.9, 1.5)), math.inf),
                         # Noise: one point below is a little faster dense, one above a little slower.
                         (((0.1, 4.0), (0.2, 0.95), (0.3, 2.0), (0.6, 0.5), (0.8, 1.05), (0.9, 0.4)),
                          math.sqrt(0.3 * 0.6))):
        equal(crossover.threshold([crossover.Point(*p, False) for p in points]), want)


def crossing(folder, times):
    """A result with times {(share of rows, rule): {kernel: ns}}."""
    dense = lambda rule, kernel: "dense" if (rule, kernel) == ("adam", "cpu_dense") else "lazy"
    return made_up(folder, "made", *(
        series(f"w{share:g}", kernel, [ns] * 5, rule, dense(rule, kernel), distinct=share * ROWS, rows=ROWS)
        for (share, rule), own in times.items() for kernel, ns in own.items()))


CROSSING = {(share, rule): {"cpu_sort": 10, "cpu_fused": 5, "cpu_dense": ns}
            for rule, all_ns in (("rowwise_adagrad", (40, 15, 8)), ("adam", (90, 50, 20)))
            for share, ns in zip((0.05, 0.2, 0.8), all_ns)}


def test_a_threshold_is_reported(folder):
    need_matplotlib()
    done = study("crossover", crossing(folder, CROSSING), folder, "--kernel=cpu_sort")
    equal((done.returncode, done.stderr), (0, ""))
    assert ("Against cpu_sort, a dense gradient is faster: rowwise_adagrad from U/V = 40 % on; adam† never"
            in done.stdout), done.stdout
    assert "| rowwise_adagrad | 64 | from U/V = 40 % on | 3 of 3 | 1.00 | 4.00 | 0.800 |" in done.stdout, done.stdout
    assert "| adam† | 64 | never | 3 of 3 | 1.00 | 9.00 | 2.00 |" in done.stdout, done.stdout


def test_bad_crossovers_are_one_line(folder):
    one_line_error(study("crossover", crossing(folder, CROSSING), folder, "--kernel=none"), "no samples of none")
    one_line_error(study("crossover", crossing(folder, CROSSING), folder, "--kernel=a", "--mib=0"), "MIB")


# --- ladder
RUNGS_BESIDE = ("cpu_fused", "cpu_sort")
RUNGS = ("--kernel=cpu_fused", "--below=cpu_sort")
FAMILIES = {"cpu_fused": "cpu", "cpu_sort": "cpu", "without_a": "ladder", "without_b": "ladder"}
# Samples: the medians are 10, 20, 12.5 and 9.8; a helps clearly, b may help or cost time.
WITHOUT = {"zipf/alpha:1": {"cpu_fused": (9, 10, 10, 10, 11), "cpu_sort": (19, 20, 20, 21, 90),
                            "without_a": (12, 12.2, 12.5, 13, 40), "without_b": (8, 9.5, 9.8, 10.2, 12)},
           "cached": {"cpu_fused": (4,) * 5, "cpu_sort": (6,) * 5, "without_a": (3,) * 5, "without_b": (5,) * 5}}


def ladder_of(folder, times, **context):
    """A result with these samples, in ns per lookup."""
    kernels = {f"emb_kernel_{k}": f"{f} | host | none | label of {k} | idea" for k, f in FAMILIES.items()}
    rows = (series(w, k, ns) for w, own in times.items() for k, ns in own.items())
    return made_up(folder, "made", *rows, **kernels | context)


def lacking(kernel, *workloads):
    return {w: {k: v for k, v in own.items() if k != kernel or w not in workloads}
            for w, own in WITHOUT.items()}


def test_the_ratios_of_a_ladder(folder):
    need_matplotlib()
    done = study("ladder", ladder_of(folder, WITHOUT), folder, *RUNGS)
    equal((done.returncode, done.stderr), (0, ""))
    equal([x for x in done.stdout.splitlines() if x.startswith("| ")], [
        "|  | zipf/alpha:1 | cached |", "| --- | ---: | ---: |",
        "| cpu_fused, ns per lookup | 10.0 | 4.00 |",
        "| label of without_a | 1.25x | 0.75x |",
        "| label of without_b | 0.98x ? | 1.25x |",
        "| cpu_sort: neither fused nor in two levels | 2.00x | 1.50x |"])
    assert "‡" not in done.stdout, done.stdout
    assert "no time" not in done.stdout and "not run" not in done.stdout, done.stdout


def test_each_technique_has_a_colour_and_a_marker(folder):
    names = [f"without_{c}" for c in "abcdefg"]
    need_matplotlib()
    paper.set_up()
    kernels = {f"emb_kernel_{k}": f"ladder | host | none | label of {k} | idea" for k in names}
    path = ladder_of(folder, {"cached": {k: (4, 5, 6) for k in (*RUNGS_BESIDE, *names)}}, **kernels)
    result = results.load(path)
    ax, = ladder.drawn(paper.PAGE, result, ladder.read(result, *RUNGS_BESIDE), "cpu_fused").axes
    for looks in zip(*((line.get_color(), line.get_marker()) for c in ax.containers if hasattr(c, "has_yerr") for line in c[:1])):
        equal((len(looks), len(set(looks))), (8, 8))


def test_missing_and_wrong_rungs_are_named(folder):
    need_matplotlib()
    times = {"zipf/alpha:1": lacking("without_a", "zipf/alpha:1")["zipf/alpha:1"],
             "cached": lacking("without_b", "cached")["cached"]}
    path = ladder_of(folder, times, emb_not_run_0="zipf/alpha:1 | without_a | WRONG RESULT: row 7")
    done = study("ladder", path, folder, *RUNGS)
    equal(done.returncode, 0)
    doubt = results.load(path).caution()
    assert "3 of 6 rows" in doubt, doubt
    for text in (f"ladder.md\n\n**{doubt}**\n\n|  | zipf",
                 "| label of without_b | 0.98x ? | - |", "- FAILED without_a on zipf/alpha:1: WRONG RESULT: row 7"):
        assert text in done.stdout, done.stdout
    equal([x for x in done.stdout.splitlines() if "no time" in x], ["- no time: without_b on cached"])


def test_bad_ladders_are_one_line(folder):
    one_line_error(study("ladder", os.path.join(folder, "none.json"), folder, *RUNGS), "none.json")
    for kernel in ("cpu_fused", "cpu_sort"):
        path = ladder_of(folder, lacking(kernel, *WITHOUT))
        one_line_error(study("ladder", path, folder, *RUNGS), f"no samples of {kernel}")
    plain = {f"emb_kernel_{k}": "cpu | host | none | label | idea" for k in FAMILIES}
    one_line_error(study("ladder", ladder_of(folder, WITHOUT, **plain), folder, *RUNGS), "folder ladder")
    apart = {"zipf/alpha:1": {"cpu_fused": (1,)}, "cached": {"cpu_sort": (1,)}}
    one_line_error(study("ladder", ladder_of(folder, apart), folder, *RUNGS), "no workload together")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "points"))
