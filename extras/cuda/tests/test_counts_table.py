#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of extras/cuda/counts/table.py: what is summed, what counts as better, and the golden file."""
import json
import os
import subprocess
import sys

import tap

sys.path.insert(0, os.path.join(tap.ROOT, "extras", "cuda", "counts"))
import table  # noqa: E402


def memory(requests=0, sectors=0, used=0):
    return {"requests": requests, "sectors": sectors, "used": used}


def record(function="f", **more):
    r = {"workload": "w", "rule": "sgd", "kernel": "k", "function": function, "launches": 1, "requests": 10,
         "compulsory_read": 3, "compulsory_written": 2, "atomics": 0, "most_per_address": 0, "chain": 1, "lanes": 320,
         "scratch": 64, "shared": {"requests": 0, "ways": 0, "least": 0}, "lookups": 8, "unique": 4,
         **{kind: memory() for kind in table.MEMORY},
         **{n: 0 for n in ("barriers", "syncs", "shuffles", "votes", "reduces", "matches", "fences")}}
    r.update(more)
    return r


def of(records):
    return table.counted(records)["w", "sgd", "k"]


def test_functions_of_cub_are_one_line(_):
    a = record("cub::x::A<int>", most_per_address=5, load=memory(2, 8, 256), chain=2)
    b = record("cub::x::B<int>", most_per_address=3, load=memory(1, 4, 64))
    c = of([a, b, record("f")])
    assert list(c) == ["CUB", "f"]
    assert (c["CUB"]["loads"], c["CUB"]["sectors"], c["CUB"]["used"], c["CUB"]["launches"]) == (3, 12, 320, 2)
    assert (c["CUB"]["per_address"], c["CUB"]["chain"], c["CUB"]["scratch"]) == (5, 2, 64)


def test_golden_file_keeps_everything(_):
    counts = table.counted([record("sum_runs<1, true, false>", load=memory(2, 8, 256)), record("g")])
    made_by, again = table.counts_in(table.text_of(counts, "nvcc 13.0, compute_90"))
    assert made_by == "nvcc 13.0, compute_90" and again == counts


def test_better_and_worse(_):
    before = table.counted([record(load=memory(100, 400, 3200), fences=2)])
    after = table.counted([record(load=memory(90, 400, 6400), fences=3)])
    lines = table.differences(before, after)
    assert any("loads 100 -> 90 (better, -10.0 %)" in x for x in lines), lines
    assert any("used 3200 -> 6400 (better, +100.0 %)" in x for x in lines), lines
    assert any("fences 2 -> 3 (worse, +50.0 %)" in x for x in lines), lines
    assert len(lines) == 3 and "used" in lines[0]
    assert table.differences(before, before) == []


def test_functions_come_and_go(_):
    before, after = table.counted([record("f")]), table.counted([record("g")])
    assert sorted(table.differences(before, after)) == ["w sgd k f: is gone", "w sgd k g: is new"]


def test_compare_says_so_with_its_status(folder):
    path, golden = os.path.join(folder, "counts.json"), os.path.join(folder, "golden.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(record()) + "\n")
    program = [sys.executable, os.path.join(tap.ROOT, "extras", "cuda", "counts", "table.py")]
    subprocess.run([*program, "write", path, "--golden", golden, "--made-by", "nvcc 1"], check=True)
    assert subprocess.run([*program, "compare", path, "--golden", golden], check=False).returncode == 0
    with open(golden, encoding="utf-8") as file:
        text = file.read()
    with open(golden, "w", encoding="utf-8") as file:
        file.write(text.replace(" 320 64 f", " 321 64 f"))
    done = subprocess.run([*program, "compare", path, "--golden", golden], capture_output=True, text=True, check=False)
    assert done.returncode == table.CHANGED and "lanes 321 -> 320" in done.stdout


sys.exit(tap.run(globals(), "counts_table"))
