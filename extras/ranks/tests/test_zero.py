#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of ZeRO: extras/ranks/tests/test_zero.c has its bytes; here it runs, and its page shows them."""
import json
import os
import subprocess
import sys

import tap
from spoiled import need_gnuplot, run

PROGRAM = os.path.join(tap.BUILD, "extras", "ranks", "study", "zero")


def zero(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)


def test_lines_and_page(folder):
    done = zero("2")
    assert done.returncode == 0, done.stderr
    found = {(x["way"], x["rows"]): x for x in map(json.loads, done.stdout.splitlines())}
    table = 1000 * 64 * 4  # bytes; parts of weights, gradient and states, and once a whole table and its gradient
    assert len(found) == 3 * 4 and found["ZeRO-3", 1000]["peak"] == 3 * table // 2 + 2 * table, found
    assert found["row-wise sparse", 1000]["peak"] == 2 * table // 2, found
    need_gnuplot()
    page = run("zero.py", tap.script(folder, "lines", done.stdout), folder)
    assert page.returncode == 0, page.stderr
    with open(os.path.join(folder, "zero.md"), encoding="utf-8") as text:
        assert text.read().count("| ZeRO-3 | 2 |") == 4


def test_bad_words_are_refused(_folder):
    done = zero("x")
    assert done.returncode == 1 and "x is no number of ranks" in done.stderr, done


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "zero"))
