#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of scale: laws of its map and a figure by hand, and the page of what it measures."""
import json
import os
import subprocess
import sys

import launched
import tap

PROGRAM = os.path.join(tap.BUILD, "extras", "ranks", "study", "scale")
BAGS, TABLES, DIM = 1024, 26, 128


def near(a, b):
    assert abs(a - b) <= 1e-5 * abs(b), (a, b)


def test_the_map(_folder):
    done = subprocess.run([PROGRAM], capture_output=True, text=True, check=True)
    found = {(x["sharding"], x["ranks"], x["rows"], x["lookups"]): x for x in map(json.loads, done.stdout.splitlines())}
    for (way, *where), x in found.items():
        near(sum(x["stages"].values()), x["seconds"])
        if way == "row":  # never more than the all-gather
            assert x["seconds"] <= found["row, all-gather", *where]["seconds"] * (1 + 1e-9), where
    # More ranks hold more rows, but not copies of them.
    assert found["row", 8, 10**9, 1]["lacks"] > 0 and found["row", 16384, 10**9, 1]["lacks"] == 0
    # 128 ranks on 16 nodes by hand, in two hops: 7 rows within the node, 15/16 of a row across.
    x, row = found["table-row, two hops", 128, 10**7, 8], BAGS * TABLES * DIM * 2
    near(x["stages"]["gradients"], 2 * 20e-6 + 7e-6 + 7 * row / 370e9 + 15 * 1.5e-6 + row * 15 / 16 / 48e9)


def scale(folder, *words):
    return subprocess.run([sys.executable, tap.tool("scale.py"), *words, folder], capture_output=True, text=True, check=False)


def test_the_programs_measure_and_the_page_shows_it(folder):
    here, file = launched.program("extras/ranks/study/here"), os.path.join(folder, "lines")
    run = scale(folder, f"--here={here}", f"--map={PROGRAM}", "--ranks=2", "--reps=1", "--sharding=row", file)
    if "gnuplot is missing" in run.stderr:
        raise tap.Skip("no gnuplot")
    assert run.returncode == 0, run.stderr
    with open(file, encoding="utf-8") as found:
        here = [x for x in map(json.loads, found) if "scaling" in x]
    assert [(x["scaling"], x["ranks"]) for x in here] == [("strong", 1), ("strong", 2), ("weak", 2)]
    for x in here:
        assert x["bags"] == 4096 * (x["ranks"] if x["scaling"] == "weak" else 1) and (x["sent"] > 0) == (x["ranks"] > 1), x
    with open(os.path.join(folder, "scale.md"), encoding="utf-8") as page:
        shown = page.read()
    assert "MODELLED" in shown and "| 2 " in shown and "Weak scaling" in shown and "nan" not in shown and "{" not in shown


def test_bad_input_is_one_line(folder):
    for text, wanted in (("no json\n", "lines:1: not a line of scale"), ("", "no lines; run make scale")):
        launched.refused(scale(folder, tap.script(folder, "lines", text)), 1, wanted)
    spec = "workload a\n rows 100\n dim 4\n batch 8\n length fixed 2\n ids zipf\n alpha 1\n rule sgd\n"
    for words, wanted in ((("0", "row"), "usage"), (("1", "row=1,1,1,1,1,1"), "no fit yet"), (("1", "rows"), "sharding 'rows'")):
        launched.refused(launched.run(1, launched.program("extras/ranks/study/here"), spec, *words), 1, wanted)


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "scale"))
