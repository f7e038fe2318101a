#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the quick plots and of their data."""
import json
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN
import results
from spoiled import (LINE, contents, drawn_twice, equal, golden, need_gnuplot, need_scipy, on_device, one_line_error,
                     rows_of, run, save, timed)


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
    need_gnuplot()
    made = drawn_twice("plots.py", folder, ".svg")
    equal(sorted(made), [f"{n}-rowwise_adagrad-cold.svg"
                         for n in ("alpha-zipf", "memory", "roofline", "stages", "throughput", "time")])
    for name, svg in made.items():
        for label in (b"cpu_fused", b"cpu_owner", b"Synthetic CPU", b"cold"):
            assert label in svg, (name, label)
        assert b"not to be quoted" not in svg


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


def test_kernels_of_a_device_have_no_roof(folder):
    data = on_device(golden(), "cpu_fused")
    for r in rows_of(data, "kernel=cpu_fused"):
        for key in ("gather_gbs", "line_mib", "gather_mib", "roof_ms", "share_roof"):
            del r[key]
    equal(run("export.py", save(data, folder, "device.json"), folder).returncode, 0)
    assert b"fused" not in contents(folder, ".tsv")["roofline-rowwise_adagrad-cold.tsv"]


def test_what_was_not_measured_is_named(folder):
    need_gnuplot()
    data = golden()
    data["benchmarks"] = [r for r in data["benchmarks"] if "workload=zipf/alpha:0.6 rule=rowwise_adagrad kernel=cpu_hash"
                          not in r["label"]]
    equal(run("plots.py", save(data, folder, "gap.json"), folder).returncode, 0)
    for name, svg in contents(folder, ".svg").items():
        assert b"Not measured: cpu_hash on zipf/alpha:0.6" in svg, name


def test_what_is_not_to_be_quoted_says_so_in_every_plot(folder):
    need_gnuplot()
    need_scipy()
    cut = "cut short: the run did not end: 180 of 360 samples"
    with open(timed(folder, cpu_hash=(138, 139, 141, 143, 146)), encoding="utf-8") as file:
        data = json.load(file)
    data["context"]["emb_cut_short"] = cut.removeprefix("cut short: ")
    path = save(data, folder, "unsure.json")
    equal(run("plots.py", path, folder).returncode, 0)
    of_zipf = LINE.format(1, 3).replace("18", "12")
    for name, svg in contents(folder, ".svg").items():
        text, line = svg.decode().replace("\n", ""), of_zipf if "alpha" in name else LINE.format(1, 3)
        assert cut in text and ("memory" in name or line in text), name
        grey = text.count("rgb(170, 170, 170)") > 0
        equal((name, "cpu_hash~" in text), (name, "stages" in name))
        equal((name, grey), (name, name.startswith(("time", "throughput", "alpha"))))
    equal(run("export.py", path, folder).returncode, 0)
    head, *lines = [x.split("\t") for x in contents(folder, "samples.tsv")["samples.tsv"].decode().splitlines()]
    column = lambda x, name: x[head.index(name)]
    equal({(column(x, "workload"), column(x, "kernel")) for x in lines
           if column(x, "mode") == "cold" and column(x, "quotable") == "0"}, {("zipf/alpha:0.6", "cpu_hash")})


def test_a_title_can_be_left_out(folder):
    need_gnuplot()
    equal(run("plots.py", GOLDEN, folder, env={"TITLE": "0", "FONT": "Some Font"}).returncode, 0)
    titles = {name.removesuffix(".txt"): text.decode() for name, text in contents(folder, ".txt").items()}
    pictures = {name.removesuffix(".svg"): svg.decode() for name, svg in contents(folder, ".svg").items()}
    equal((len(titles), titles.keys()), (6, pictures.keys()))
    for name, svg in pictures.items():
        first, *_, machine = titles[name].splitlines()
        assert first.startswith("Embedding backward + rowwise_adagrad: ") and machine.startswith("Synthetic CPU"), name
        assert first not in svg and machine not in svg and 'font-family="Some Font"' in svg and "DejaVu" not in svg, name


def test_missing_gnuplot_is_one_line(folder):
    one_line_error(run("plots.py", GOLDEN, folder, env={"PATH": folder}), "gnuplot-nox")


def test_more_than_the_roof_is_marked_and_explained(folder):
    data = golden()
    for r in rows_of(data, "kernel=cpu_fused"):
        r["share_roof"] = 1.25
    path = save(data, folder, "over.json")
    out = run("table.py", path).stdout
    equal((out.count("125.0‡"), out.count(results.OVER_NOTE), run("table.py", GOLDEN).stdout.count("‡")), (3, 1, 0))
    equal(run("export.py", path, folder).returncode, 0)
    equal(contents(folder, ".tsv")["roofline-rowwise_adagrad-cold.tsv"].decode().count("‡"), 3)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "plots"))
