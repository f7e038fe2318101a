#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/studies/crossover.py: the threshold on made-up points, and reports on made-up results."""
import math
import sys

sys.dont_write_bytecode = True
import tap
import crossover
from crossover import Point
from spoiled import equal, made_up, need_gnuplot, one_line_error, run, series

ROWS = 10000


def test_the_threshold_is_where_the_faster_kernel_changes(_folder):
    for points, want in ((((0.1, 3.0), (0.4, 1.2), (0.9, 0.5)), math.sqrt(0.4 * 0.9)),
                         (((0.1, 0.9), (0.9, 0.5)), 0.0), (((0.1, 3.0), (0.9, 1.5)), math.inf),
                         # Noise: one point below is a little faster dense, one above a little slower.
                         (((0.1, 4.0), (0.2, 0.95), (0.3, 2.0), (0.6, 0.5), (0.8, 1.05), (0.9, 0.4)),
                          math.sqrt(0.3 * 0.6))):
        equal(crossover.threshold([Point(*p, False) for p in points]), want)


def points_of(folder, times):
    """A result with times {(share of rows, rule): {kernel: ns}}."""
    dense = lambda rule, kernel: "dense" if (rule, kernel) == ("adam", "cpu_dense") else "lazy"
    return made_up(folder, "made", *(
        series(f"w{share:g}", kernel, [ns] * 5, rule, dense(rule, kernel), distinct=share * ROWS, rows=ROWS)
        for (share, rule), own in times.items() for kernel, ns in own.items()))


POINTS = {(share, rule): {"cpu_sort": 10, "cpu_fused": 5, "cpu_dense": ns}
          for rule, all_ns in (("rowwise_adagrad", (40, 15, 8)), ("adam", (90, 50, 20)))
          for share, ns in zip((0.05, 0.2, 0.8), all_ns)}


def test_a_report(folder):
    need_gnuplot()
    done = run("crossover.py", points_of(folder, POINTS), folder, "--kernel=cpu_sort")
    equal((done.returncode, done.stderr), (0, ""))
    assert ("Against cpu_sort, a dense gradient is faster: rowwise_adagrad from U/V = 40 % on; adam† never"
            in done.stdout), done.stdout
    assert "| rowwise_adagrad | 64 | from U/V = 40 % on | 3 of 3 | 1.00 | 4.00 | 0.800 |" in done.stdout, done.stdout
    assert "| adam† | 64 | never | 3 of 3 | 1.00 | 9.00 | 2.00 |" in done.stdout, done.stdout


def test_bad_input_is_one_line(folder):
    one_line_error(run("crossover.py", points_of(folder, POINTS), folder, "--kernel=none"), "no samples of none")
    one_line_error(run("crossover.py", points_of(folder, POINTS), folder, "--kernel=a", "--mib=0"), "MIB")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "crossover"))
