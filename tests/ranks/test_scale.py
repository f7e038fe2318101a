#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of scale: figures of the map by hand, laws that every model of it must obey, and the page."""
import json
import math
import os
import subprocess
import sys

import launched
import tap

PROGRAM = os.path.join(tap.BUILD, "studies", "scale", "scale")
BAGS, TABLES, DIM, NODE = 1024, 26, 128, 8
NVLINK, INFINIBAND, CALL, MEMORY = 370e9, 48e9, 20e-6, 3350e9


def lines():
    return subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout


def the_map():
    return {(x["sharding"], x["ranks"], x["rows"], x["lookups"]): x for x in map(json.loads, lines().splitlines())}


def near(a, b, share):
    assert abs(a - b) <= share * abs(b), (a, b)


def test_one_node_by_hand(_folder):
    """Row-wise, 8 ranks, 1 lookup: each bag's gradient goes to the one rank that has its row."""
    x = the_map()["row", 8, 10**6, 1]["stages"]
    sent = BAGS * TABLES * DIM * 2 * 7 / 8
    kept = sent / 7
    near(x["gradients"], CALL + 7 * 1e-6 + sent / NVLINK + 2 * (3 * kept + 2 * sent) / MEMORY, 1e-5)
    near(x["outputs"], x["gradients"], 1e-5)
    lengths = BAGS * TABLES * 4 * 7
    near(x["lengths"], CALL + 7 * 1e-6 + lengths / NVLINK + 2 * (3 * lengths / 7 + 2 * lengths) / MEMORY, 1e-5)


def test_two_hops_by_hand(_folder):
    """128 ranks on 16 nodes: 7 rows within the node, 15/16 of a row across."""
    x = the_map()["table-row, two hops", 128, 10**7, 8]
    row = BAGS * TABLES * DIM * 2
    near(x["stages"]["gradients"], 2 * CALL + 7e-6 + 7 * row / NVLINK + 15 * 1.5e-6 + row * 15 / 16 / INFINIBAND, 1e-5)
    assert x["seconds"] < 2.3e-3  # the whole iteration of the published record


def test_laws_of_the_map(_folder):
    found = the_map()
    for (way, ranks, rows, lookups), x in found.items():
        where = way, ranks, rows, lookups
        near(sum(x["stages"].values()), x["seconds"], 1e-5)
        assert all(s >= 0 for s in x["stages"].values()) and math.isfinite(x["seconds"]), where
        if way == "row":  # never more than the all-gather
            assert x["seconds"] <= found["row, all-gather", *where[1:]]["seconds"] * (1 + 1e-9), where
        if way != "data, all-reduce" and (way, 2 * ranks, rows, lookups) in found and rows <= 10**8:
            wider = found[way, 2 * ranks, rows, lookups]["stages"]  # weak scaling: more ranks, more messages
            assert wider["lengths"] >= x["stages"]["lengths"] * (1 - 1e-9), where
        if way.startswith("data") and rows >= 10**9:
            assert x["lacks"] > 0, where
    # More ranks hold more rows, but not copies of them.
    assert found["row", 8, 10**9, 1]["lacks"] > 0 and found["row", 16384, 10**9, 1]["lacks"] == 0


def scale(folder, *words):
    return subprocess.run([sys.executable, tap.tool("scale.py"), *words, folder], capture_output=True, text=True, check=False)


def test_the_programs_measure_and_the_page_shows_it(folder):
    here, file = launched.program("studies/scale/here"), os.path.join(folder, "lines")
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
    for text, wanted in (("no json\n", "lines:1: not a line of studies/scale"), ("", "no lines; run make scale")):
        launched.refused(scale(folder, tap.script(folder, "lines", text)), 1, wanted)
    spec = "workload a\n rows 100\n dim 4\n batch 8\n length fixed 2\n ids zipf\n alpha 1\n rule sgd\n"
    for words, wanted in ((("0", "row"), "usage"), (("1", "row=1,1,1,1,1,1"), "no fit yet"), (("1", "rows"), "sharding 'rows'")):
        launched.refused(launched.run(1, launched.program("studies/scale/here"), spec, *words), 1, wanted)


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "scale"))
