#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of scale: laws of its map and a figure by hand, and the page of what it measures."""
import json
import os
import subprocess
import sys

import launched
import tap

try:
    import cluster
except ModuleNotFoundError as e:
    tap.skip_all("scale", f"{e.name} is missing: Debian's python3-{e.name}")
BAGS, TABLES, DIM = 1024, 26, 128


def near(a, b, share=1e-5):
    assert abs(a - b) <= share * abs(b), (a, b)


def test_the_map(_folder):
    found = {(x["sharding"], x["ranks"], x["rows"], x["lookups"]): x for x in cluster.points()}
    for (way, *where), x in found.items():
        near(sum(x["stages"].values()), x["seconds"])
        if way == "row":  # never more than the all-gather
            assert x["seconds"] <= found["row, all-gather", *where]["seconds"] * (1 + 1e-9), where
    # More ranks hold more rows, but not copies of them.
    assert found["row", 8, 10**9, 1]["missing"] > 0 and found["row", 16384, 10**9, 1]["missing"] == 0
    # 128 ranks on 16 nodes by hand, in two hops: 7 rows within the node, 15/16 of a row across.
    x, row = found["table-row, two hops", 128, 10**7, 8], BAGS * TABLES * DIM * 2
    near(x["stages"]["gradients"], 2 * 20e-6 + 7e-6 + 7 * row / 370e9 + 15 * 1.5e-6 + row * 15 / 16 / 48e9)


def study(folder, *words):
    command = [sys.executable, tap.tool("scale.py"), *words, folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_programs_measure_and_the_page_shows_it(folder):
    launched.program("extras/ranks/study/machine")
    file = os.path.join(folder, "lines")
    run = study(folder, f"--build={tap.BUILD}", "--ranks=2", "--reps=1", "--sharding=row", file)
    if "gnuplot is missing" in run.stderr:
        raise tap.Skip("no gnuplot")
    assert run.returncode == 0, run.stderr
    with open(file, encoding="utf-8") as found:
        here = [x for x in map(json.loads, found) if "scaling" in x]
    assert [(x["scaling"], x["ranks"]) for x in here] == [("strong", 1), ("strong", 2), ("weak", 2)]
    near(here[0]["measured"], here[0]["predicted"], 0.01)  # one rank is a fit
    for x in here:
        assert x["predicted"] > 0 and (x["sent"] > 0) == (x["ranks"] > 1), x
        assert x["bags"] == 4096 * (x["ranks"] if x["scaling"] == "weak" else 1), x
    with open(os.path.join(folder, "scale.md"), encoding="utf-8") as page:
        shown = page.read()
    assert "MODELLED" in shown and "| 2 " in shown and "Weak scaling" in shown and "nan" not in shown and "{" not in shown


def test_bad_input_is_one_line(folder):
    for text, wanted in (("no json\n", "lines:1: not a line of scale"), ("", "no lines; run make scale")):
        launched.refused(study(folder, tap.script(folder, "lines", text)), 1, wanted)
    file = os.path.join(folder, "lines")
    for words, wanted in ((("--reps=0",), "REPS: '0'"), (("--sharding=rows",), "SHARDING: 'rows' is none of"),
                          (("--ranks=x",), "RANKS: 'x'")):
        launched.refused(study(folder, f"--build={tap.BUILD}", *words, file), 1, wanted)


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "scale"))
