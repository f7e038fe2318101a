#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of emulation/counts/table.py: what is summed, what counts as better, and the golden file."""
import json
import os
import subprocess
import sys

import tap

sys.path.insert(0, os.path.join(tap.ROOT, "emulation", "counts"))
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


def test_prefetches_move_no_sectors_of_requests(_):
    c = of([record(load=memory(1, 4, 128), prefetch=memory(7, 28, 896))])["f"]
    assert (c["prefetches"], c["sectors"], c["used"]) == (7, 4, 128)


def test_conflicts_are_ways_beyond_the_least(_):
    assert of([record(shared={"requests": 4, "ways": 9, "least": 5})])["f"]["conflicts"] == 4


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
    assert table.differences(before, {}) == ["w sgd k: is gone"]


def test_compare_says_so_with_its_status(folder):
    path, golden = os.path.join(folder, "counts.json"), os.path.join(folder, "golden.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(record()) + "\n")
    program = [sys.executable, os.path.join(tap.ROOT, "emulation", "counts", "table.py")]
    subprocess.run([*program, "write", path, "--golden", golden, "--made-by", "nvcc 1"], check=True)
    assert subprocess.run([*program, "compare", path, "--golden", golden], check=False).returncode == 0
    with open(golden, encoding="utf-8") as file:
        text = file.read()
    with open(golden, "w", encoding="utf-8") as file:
        file.write(text.replace(" 320 64 f", " 321 64 f"))
    done = subprocess.run([*program, "compare", path, "--golden", golden], capture_output=True, text=True, check=False)
    assert done.returncode == table.CHANGED and "lanes 321 -> 320" in done.stdout
    with open(golden, "w", encoding="utf-8") as file:
        file.write(text.replace(" scratch function", " function"))
    done = subprocess.run([*program, "compare", path, "--golden", golden], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "has other columns; make counts-renew" in done.stderr and done.stderr.count("\n") == 1


def test_show_says_that_nothing_was_timed(_):
    text = "\n".join(table.shown([record(load=memory(10, 40, 640))]))
    assert "counted, not timed" in text and "32.0" in text and " 50 " in text


def test_show_has_every_count(_):
    """Each column of the golden file stands in the table of make counts: those of memory, and these by their names."""
    counts = {"shared": {"requests": 101, "ways": 207, "least": 104}, "barriers": 105, "syncs": 106, "shuffles": 107,
              "votes": 108, "reduces": 1, "matches": 110, "fences": 111}
    head, row = table.shown([record(reduction=memory(99, 99, 3168), **counts)])[1:3]
    cells = row.split()
    assert cells[-9:-1] == ["101", "103", "105", "106", "107", "109", "110", "111"], row
    assert "99" in cells and all(f" {name}" in head for name in (*table.COLLECTIVES, "reduction")), head


def line(number, sectors):
    return {"source": f"/x/kernels/device/{number}.cuh", "line": number, "requests": 2, "lanes": 64,
            **{kind: memory() for kind in table.MEMORY}, "load": memory(2, sectors, 32 * sectors)}


def test_lines_that_move_most_are_first(_):
    shown = table.by_line([record(lines=[line(7, 8), line(8, 32), line(9, 0)])])
    assert len(shown) == 3 and "kernels/device/8.cuh:8" in shown[1] and "kernels/device/7.cuh:7" in shown[2], shown
    assert len(table.by_line([record(lines=[line(n, n) for n in range(1, 30)])], most=5)) == 6
    assert table.by_line([record()]) == []


def model(read, written):
    return {"device": "h100", "part": 8, "resident": 4, "read": read, "written": written,
            **{n: 0 for n in ("prefetched", "present", "timely", "late", "early")}}


def test_models_of_a_step_are_summed(_):
    functions = [record(f, models=[model(read, 500000)]) for f, read in (("f", 1000000), ("g", 2000000))]
    shown = table.modelled(functions)
    assert len(shown) == 4 and "h100/8" in shown[1], shown
    assert shown[3].split()[-5:] == ["h100/8", "96.000", "32.000", "0.000", "0.000"] and " all " in shown[3], shown
    assert len(table.modelled(functions[:1])) == 2 and table.modelled([record()]) == []


CUB = "cub::CUB_300001_SM_800_900_1000::detail::radix_sort::DeviceRadixSort{}Kernel<cub::detail::policy_hub<int>, int>"


def test_names_of_cub_differ(_):
    names = [table.brief(CUB.format(what), 40) for what in ("Histogram", "ExclusiveSum", "Onesweep")]
    assert len(set(names)) == 3 and names[2] == "cub::DeviceRadixSortOnesweepKernel<polic", names
    assert table.brief("sum_runs<1, true>") == "sum_runs<1, true>"


sys.exit(tap.run(globals(), "counts_table"))
