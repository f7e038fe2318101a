#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the quick plots and of their data."""
import os
import re
import shutil
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN
import export
import make_results
import results
from spoiled import (LINE, contents, disturbed, drawn_twice, equal, golden,
                     on_device, one_line_error, rows_of, run, save)


def test_export_holds_every_sample(folder):
    equal(run("export.py", GOLDEN, folder).returncode, 0)
    text = contents(folder, "samples.tsv")["samples.tsv"].decode()
    head, *lines = [line.split("\t") for line in text.splitlines()]
    equal(len(lines), 180)
    equal({len(line) for line in lines}, {len(head)})
    times = sorted(float(line[head.index("ms")]) for line in lines)
    equal(times, sorted(float(f"{r['real_time']:.6g}") for r in golden()["benchmarks"]))
    blocks = contents(folder, ".tsv")["throughput-rowwise_adagrad-cold.tsv"].split(b"\n\n\n")
    equal([len(b.strip().splitlines()) for b in blocks], [4] * 6)


def test_plots_are_made_and_reproducible(folder):
    if not shutil.which("gnuplot"):
        raise tap.Skip("no gnuplot")
    made = drawn_twice("plots.py", folder, ".svg")
    equal(sorted(made), [f"{n}-rowwise_adagrad-cold.svg"
                         for n in ("alpha-zipf", "memory", "roofline", "stages", "throughput", "time")])
    for name, svg in made.items():
        for label in (b"cpu_fused", b"cpu_owner", b"Synthetic CPU", b"cold"):
            assert label in svg, (name, label)
        assert b"do not quote" not in svg
    assert b">ns per lookup (median" in made["time-rowwise_adagrad-cold.svg"].replace(b"\n", b"")
    equal(len(contents(os.path.join(folder, "one"), ".png")), 6)


ROOF_KEYS = ("gather_gbs", "line_mib", "gather_mib", "roof_ms", "share_roof")


def test_roofline_by_hand(folder):
    """A million lookups, 2 MiB and 12 MiB; cpu_sort takes 8 ns, the roof is 4 ns, others are far away."""
    data = golden()
    data["benchmarks"] = rows_of(data, "mode=cold", "workload=zipf/alpha:0.6")
    for r in data["benchmarks"]:
        r.update(lookups=2**20, line_mib=2, gather_mib=12, rmw_gbs=2, gather_gbs=3, index_ms=0,
                 real_time=60 * 2**20 / 1e6, ns_per_lookup=60, share_roof=1 / 15)
    for r in rows_of(data, "kernel=cpu_sort"):
        r.update(real_time=8 * 2**20 / 1e6, ns_per_lookup=8, share_roof=0.5, index_ms=2 * 2**20 / 1e6)
    for r in rows_of(data, "kernel=cpu_dense"):
        r["ns_per_lookup"], r["label"] = 1, r["label"].replace("operation=lazy", "operation=dense")
    path = save(data, folder, "r.json")
    equal(run("export.py", path, folder).returncode, 0)
    made = contents(folder, ".tsv")
    read = lambda name: [x.split("\t") for x in made[f"roofline-{name}.tsv"].decode().splitlines()]
    equal(read("rowwise_adagrad-cold-lines")[1:], [["0", '"roof: random rows"', "1", "1", '"1.00"'],
                                                   ["1", '"roof: gather"', "4", "0", '"4.00"']])
    first, *others = read("rowwise_adagrad-cold")
    equal(first, ["2.3", '"cpu_sort"', "2", "8", "8", "4", '"8.00 · 50 %"', "0"])
    equal([(x[1], *x[2:]) for x in others], [(f'"{name}"', "0", "8", "8", "4", '"60.0 · 7 %"', "1")
                                             for name in ("cpu_atomic", "cpu_owner")])
    row = next(x.split() for x in run("table.py", path).stdout.splitlines() if x.startswith("  cpu_sort"))
    equal(row[7], "50.0")


def test_a_step_without_stages_is_one_bar(folder):
    data = golden()
    for r in rows_of(data, "kernel=cpu_sort"):
        for stage in results.STAGES:
            del r[f"{stage}_ms"]
        r.update(real_time=2, ns_per_lookup=2, share_roof=0.5)  # the fastest one is in the roofline
    divided, whole = (
        {f.script: f.variables for f in export.figures(results.load(path), folder, "cold")}
        for path in (GOLDEN, save(data, folder, "whole.json")))
    for name, end in (("stages", ["0"] * 5 + ["2", "2", '"2.00"', "0"]),
                      ("roofline", ["0", "0", "2", "1", '"2.00 · 50 %"', "0"])):
        assert "whole step" not in divided[name]["names"] and '"whole step"' in whole[name]["names"]
        text = contents(folder, ".tsv")[f"{name}-rowwise_adagrad-cold.tsv"].decode()
        rows = [x.split("\t") for x in text.splitlines() if "cpu_sort" in x]
        equal([row[2:] for row in rows], [end] * len(make_results.WORKLOADS))
    if shutil.which("gnuplot"):
        equal(run("plots.py", os.path.join(folder, "whole.json"), folder).returncode, 0)
        for name, svg in contents(folder, ".svg").items():
            equal(svg.count(b"whole step"), int(name.startswith(("stages", "roofline"))))


def test_kernels_of_a_device_have_no_roof(folder):
    data = on_device(golden(), "cpu_fused")
    for r in rows_of(data, "kernel=cpu_fused"):
        for key in ROOF_KEYS:
            del r[key]
    path = save(data, folder, "device.json")
    rows = [x.split() for x in run("table.py", path).stdout.splitlines() if x.startswith("  cpu_")]
    there = lambda r: r[1].startswith("(device)")
    equal({(there(r), r[8 if there(r) else 7] == "-") for r in rows},
          {(True, True), (False, False)})
    equal(run("export.py", path, folder).returncode, 0)
    assert b"fused" not in contents(folder, ".tsv")["roofline-rowwise_adagrad-cold.tsv"]


def test_plots_of_failures_and_other_operations(folder):
    if not shutil.which("gnuplot"):
        raise tap.Skip("no gnuplot")
    data = make_results.result(rules=("adam",))
    for r in rows_of(data, "kernel=cpu_hash", "workload=trace/hashed_bigrams"):
        r["error_occurred"] = True
    for r in rows_of(data, "kernel=cpu_fused"):
        r["scratch_mib"] = 0
    done = run("plots.py", save(data, folder, "x.json"), folder, env={"LC_ALL": "C"})
    equal((done.returncode, done.stderr), (0, ""))
    svg = contents(folder, ".svg")["throughput-adam-cold.svg"].decode()
    assert "FAILED, not drawn: cpu_hash on trace/hashed_bigrams" in svg
    assert "cpu_dense†" in svg and results.DENSE_NOTE in svg


def test_missing_gnuplot_is_one_line(folder):
    one_line_error(run("plots.py", GOLDEN, folder, env={"PATH": folder}), "gnuplot-nox")


def test_every_plot_has_it(folder):
    path = disturbed(folder, 90, emb_load_worst="5.2")
    if shutil.which("gnuplot"):
        equal(run("plots.py", path, folder).returncode, 0)
    for name, svg in contents(folder, ".svg").items():
        assert LINE in svg.decode().replace("\n", ""), name
        assert re.search(r"(?i)(#c00000|192, *0, *0)", svg.decode()), name


def test_more_than_the_roof_is_marked_and_explained(folder):
    data = golden()
    for r in rows_of(data, "kernel=cpu_fused"):
        r["share_roof"] = 1.25
    path = save(data, folder, "over.json")
    for args in ((), ("--markdown",)):
        out = run("table.py", path, *args).stdout
        equal(out.count("125.0‡"), 3)
        equal(out.count(results.OVER_NOTE), 1)
        assert "‡" not in run("table.py", GOLDEN, *args).stdout
    if shutil.which("gnuplot"):
        for name, marks in ((path, 3 + 1), (GOLDEN, 0)):
            equal(run("plots.py", name, folder).returncode, 0)
            equal(contents(folder, ".svg")["roofline-rowwise_adagrad-cold.svg"].decode().count("‡"), marks)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "plots"))
