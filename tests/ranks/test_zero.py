#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of ZeRO: its bytes are those of ranks/zero.h, offloaded or not, and the page shows them."""
import json
import os
import subprocess
import sys

import tap

PROGRAM = os.path.join(tap.BUILD, "studies", "zero", "zero")
ROW, RANKS = 64 * 4, 2


def zero(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)


def test_bytes_and_page(folder):
    done = zero(f"--offload={os.path.join(folder, 'part')}", str(RANKS))
    assert done.returncode == 0, done.stderr
    found = {(x["way"], x["rows"]): x for x in map(json.loads, done.stdout.splitlines())}
    assert len(found) == 4 * 4
    for rows in (1000, 10000, 100000, 400000):
        table = rows * ROW
        first, third, away, sparse = (found[way, rows] for way in ("ZeRO-1", "ZeRO-3", "ZeRO-3, in files", "row-wise sparse"))
        assert first["sent"] == table * 2 // RANKS and third["sent"] == away["sent"] == table * 3 // RANKS, (first, third, away)
        # Weights, gradient, states; in ZeRO-3 the weights and gradient of the one table are beside its parts.
        assert first["peak"] == 2 * table + table // RANKS, first
        assert third["peak"] == 3 * table // RANKS + 2 * table, third
        assert sparse["peak"] == 2 * table // RANKS, sparse
        assert away["peak"] == table // RANKS + 2 * table, away
    assert not os.listdir(folder)  # they have no names
    lines = tap.script(folder, "lines", done.stdout)
    run = subprocess.run([sys.executable, tap.tool("zero.py"), lines, folder], capture_output=True, text=True, check=False)
    if "gnuplot is missing" in run.stderr:
        raise tap.Skip("no gnuplot")
    assert run.returncode == 0, run.stderr
    with open(os.path.join(folder, "zero.md"), encoding="utf-8") as page:
        assert page.read().count("| ZeRO-3, in files | 2 |") == 4


def test_bad_words_are_refused(folder):
    for words, wanted in ((("x",), "x is no number of ranks"), ((f"--offload={folder}/none/part", "2"), "offload file")):
        done = zero(*words)
        assert done.returncode == 1 and wanted in done.stderr, done


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "zero"))
