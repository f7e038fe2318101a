#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of many cores: what it counts is what the kernel shares out."""
import os
import subprocess
import sys

import tap

PROGRAM = os.path.join(os.environ.get("BUILD", "build"), "extras", "studies", "cores", "cores")


def cores(*specs):
    return subprocess.run([PROGRAM, *specs], capture_output=True, text=True, check=False)


def test_hot_rows_are_shared(folder):
    """With a thread for each slice the slice of the hot rows is the bound."""
    run = cores(tap.script(folder, "hot.spec", "workload hot\n rows 1000000\n dim 64\n batch 20000\n length fixed 20\n"
                                               " alpha 1.3\n"))
    assert run.returncode == 0, run.stderr
    slices, several = ([float(cell) for cell in line.split("|")[3:8]] for line in run.stdout.splitlines()[2:])
    assert slices[-1] < 20 and several[-1] > 1.5 * slices[-1], run.stdout  # 64 threads
    assert several[0] == slices[0] > 1.8, run.stdout  # 2 threads


def test_bad_input_is_one_line(folder):
    run = cores()
    assert run.returncode == 1 and run.stderr == "usage: cores SPEC...\n", run.stderr
    run = cores(os.path.join(folder, "none.spec"))
    assert run.returncode == 1 and run.stderr.count("\n") == 1 and "none.spec" in run.stderr, run.stderr


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "cores"))
