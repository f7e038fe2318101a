#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of many cores: what it counts is what the kernel shares out."""
import os
import subprocess
import sys

import tap

PROGRAM = os.path.join(os.environ.get("BUILD", "build"), "studies", "cores", "cores")
THREADS = 2, 8, 16, 32, 64


def cores(*specs):
    return subprocess.run([PROGRAM, *specs], capture_output=True, text=True, check=False)


def speedups(folder, **keys):
    """(a thread for each slice, several), each {threads: bound of the speedup}"""
    text = "workload cores\n" + "".join(f"    {key} {value}\n" for key, value in keys.items())
    run = cores(tap.script(folder, "cores.spec", text))
    assert run.returncode == 0, run.stderr
    rows = [[float(cell) for cell in line.split("|")[3:8]] for line in run.stdout.splitlines()[2:]]
    assert len(rows) == 2, run.stdout
    return [dict(zip(THREADS, row)) for row in rows]


def test_a_small_table_is_shared(folder):
    slices, several = speedups(folder, rows=1000, dim=64, batch=8000, length="fixed 2", alpha=0)
    assert slices[64] == 1, slices  # it has one slice
    assert 1.8 < several[2] <= 2 and 5 < several[8] <= 8, several


def test_hot_rows_are_shared(folder):
    slices, several = speedups(folder, rows=1000000, dim=64, batch=20000, length="fixed 20", alpha=1.3)
    assert slices[64] < 20 and several[64] > 1.5 * slices[64], (slices, several)
    assert several[2] == slices[2] > 1.8


def test_buckets_need_no_slices(folder):
    slices, several = speedups(folder, rows=1000000, dim=64, batch=20000, length="fixed 20", alpha=0)
    assert slices == several and slices[64] > 32, slices


def test_a_small_batch_is_shared(folder):
    _, several = speedups(folder, rows=1000000, dim=64, batch=50, length="fixed 20", alpha=0)
    assert several[2] > 1.5 and several[8] > 3, several


def test_bad_input_is_one_line(folder):
    run = cores()
    assert run.returncode == 1 and run.stderr == "usage: cores SPEC...\n", run.stderr
    run = cores(os.path.join(folder, "none.spec"))
    assert run.returncode == 1 and run.stderr.count("\n") == 1 and "none.spec" in run.stderr, run.stderr


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "cores"))
