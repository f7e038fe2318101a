#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of reports/: they run the tools as a user does, on the synthetic golden result and on
spoiled copies of it; the expected numbers are worked out by hand."""
import copy
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, ROOMS, ROOT
import export
import make_results
import results
import style
from spoiled import equal, golden, one_line_error, rows_of, run, save, slowed

FIRST = "zipf/alpha:0.6 rowwise_adagrad cpu_fused cold"
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def contents(folder, ends):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(ends):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    return found


def test_golden_file_is_what_its_generator_writes(folder):
    with open(GOLDEN, encoding="utf-8") as file:
        assert file.read() == make_results.dump(make_results.result())


def test_load_groups_all_raw_samples(folder):
    data = golden()
    data["benchmarks"].append(dict(data["benchmarks"][0], run_type="aggregate", real_time=1e9))
    result = results.load(save(data, folder, "a.json"))
    equal(len(result.series), 36)
    equal({len(s.samples) for s in result.series}, {5})
    equal(len(result.kernels), 7)
    equal(result.kernels["cuda_fused"].place, "device")
    equal(result.kernels["cpu_dense"].traits, {"deterministic", "dense_gradient"})
    equal(result.not_run, [("*", "cuda_fused", "no CUDA device")])
    equal([g.workload for g in result.groups("warm")], list(make_results.WORKLOADS))


def test_median_and_quartiles_by_hand(folder):
    equal(results.quartiles([4.0, 1.0, 3.0, 2.0]), (1.75, 2.5, 3.25))
    equal(results.quartiles([7.0]), (7.0, 7.0, 7.0))
    equal(results.spread((8.0, 10.0, 11.0)), 0.15)
    data = golden()
    for r, ns in zip(rows_of(data, "kernel=cpu_fused", "mode=cold", "workload=zipf/alpha:0.6"),
                     (50, 10, 40, 20, 30)):
        r["ns_per_lookup"] = ns
    series = {" ".join(s.key): s for s in results.load(save(data, folder, "q.json")).series}
    equal(series[FIRST].quartiles("ns_per_lookup"), (20.0, 30.0, 40.0))


def test_stages_are_those_of_the_median_repetition(folder):
    data = golden()
    rows = rows_of(data, "kernel=cpu_fused", "mode=cold", "workload=zipf/alpha:0.6")
    for r, ms, index in zip(rows, (5, 1, 4, 2, 3), (9, 9, 9, 9, 0.5)):
        r["real_time"], r["ns_per_lookup"], r["lookups"] = ms, ms, 1e6
        r["index_ms"], r["update_ms"] = index, 2.5
    run("export.py", save(data, folder, "s.json"), folder)
    text = contents(folder, ".tsv")["stages-rowwise_adagrad-cold.tsv"].decode()
    line = next(x.split("\t") for x in text.splitlines() if "cpu_fused" in x)
    equal(line[2:], ["0", "0.5", "0.5", "0.5", "3", "3", "3", '"3.00"', "0"])


def iterations(workload="zipf/alpha:0.6"):
    """The golden result with forwards, and with iterations of a kernel that is planned, one that is not, and a
    peer, of 30, 40 and 100 ns per lookup. The planned kernel's step takes 10, its plan 5, a forward 20."""
    data = golden()
    data["context"] |= {"emb_kernel_cpu_lookup": "forward | host | none | lookup | An idea.",
                        "emb_kernel_fbgemm": "fbgemm | host | none | FBGEMM | A peer."}
    first = rows_of(data, "kernel=cpu_fused", "mode=cold", f"workload={workload}")
    for r in rows_of(data, "kernel=cpu_hash", "mode=cold", f"workload={workload}"):
        r["ns_per_lookup"], r["plan_ms"] = 10.0, 5e-6 * r["lookups"]
    def add(old, new, kernel, ns, **parts):
        for r in copy.deepcopy(first):
            ms = 1e-6 * ns * r["lookups"]
            r["label"] = r["label"].replace(*old).replace("kernel=cpu_fused", f"kernel={kernel}").replace(*new)
            r |= {"ns_per_lookup": ns, "real_time": ms} | {f"{k}_ms": 0.0 for k in results.STAGES}
            data["benchmarks"].append(r | {f"{k}_ms": 1e-6 * v * r["lookups"] for k, v in parts.items()})
    nothing, whole = ("", ""), ("mode=cold", "mode=iteration")
    add(("rule=rowwise_adagrad", "rule=forward"), nothing, "cpu_lookup", 20.0)
    add(whole, nothing, "cpu_hash", 30.0, forward=18.0, plan=4.0, update=8.0)
    add(whole, nothing, "cpu_fused", 40.0, forward=20.0, index=12.0, update=8.0)
    add(whole, nothing, "fbgemm", 100.0, forward=30.0)
    return data


def test_an_iteration_shows_its_parts(folder):
    path = save(iterations(), folder, "i.json")
    out = run("table.py", path, "--mode", "iteration").stdout
    lines = {x.split()[0]: x.split() for x in out.splitlines() if x.startswith("  ")}
    equal(lines["kernel"][5:8], ["fwd", "ms", "plan"])
    lookups = results.load(path).groups("iteration")[0].median("lookups")
    ms = lambda ns: style.number(1e-6 * ns * lookups)
    equal(lines["cpu_hash"][1], "*30.0")
    equal(lines["cpu_hash"][5:8], [ms(18), ms(4), "0.857"])  # 30 of 20 + 5 + 10
    equal(lines["fbgemm"][5:8], [ms(30), "-", "-"])
    assert "An iteration: forward, plan" in out and results.PLANNED_NOTE not in out
    equal(run("export.py", path, folder, "--mode", "iteration").stderr, "")
    text = contents(folder, ".tsv")["stages-rowwise_adagrad-iteration.tsv"].decode()
    bars = {x.split("\t")[1].strip('"'): [float(v) for v in x.split("\t")[2:11]] for x in text.splitlines()[1:]}
    equal(bars["cpu_hash"], [0, 18, 22, 22, 22, 22, 30, 30, 30])
    equal(bars["cpu_fused"], [0, 20, 20, 32, 32, 32, 40, 40, 40])
    equal(bars["fbgemm"], [0, 30, 30, 30, 30, 30, 30, 100, 100])
    if shutil.which("gnuplot"):
        equal(run("plots.py", path, folder, "--mode", "iteration").returncode, 0)
        svg = contents(folder, ".svg")["stages-rowwise_adagrad-iteration.svg"].decode()
        for label in ("Embedding forward + backward + rowwise_adagrad: time by stage, cold caches", ">forward<",
                      "backward + optimizer"):
            assert label in svg, label


def test_a_step_that_was_planned_ahead_is_marked_and_never_fastest(folder):
    path = save(iterations(), folder, "p.json")
    group = results.load(path).groups("cold")[0]
    assert group.of("cpu_hash").planned and min(s.ns for s in group.measured()) == 10.0
    assert group.best().kernel.name != "cpu_hash"
    out = run("table.py", path).stdout
    line = next(x.split() for x in out.splitlines() if x.startswith("  cpu_hash"))
    equal(line[:2], ["cpu_hash§", "10.0"])
    assert results.PLANNED_NOTE in out and results.DENSE_NOTE not in out
    equal(run("export.py", path, folder).returncode, 0)
    assert "cpu_hash§" in contents(folder, ".tsv")["time-rowwise_adagrad-cold.tsv"].decode()
    assert "cpu_hash" not in contents(folder, ".tsv")["roofline-rowwise_adagrad-cold.tsv"].decode().split("\n\n\n")[0]


def test_one_thread_is_singular(folder):
    data = golden()
    data["context"]["emb_threads"] = "1"
    out = run("table.py", save(data, folder, "one.json")).stdout
    assert out.startswith("Synthetic CPU, 1 thread, synthetic"), out[:80]


def test_baseline_is_the_trait_and_not_a_name(folder):
    text = json.dumps(golden()).replace("cpu_dense", "zebra").replace("cpu_fused", "dense_zz")
    data = json.loads(text)
    for name, ns in (("zebra", 300), ("dense_zz", 100)):
        for r in rows_of(data, f"kernel={name}", "mode=cold"):
            r["ns_per_lookup"] = ns
    out = run("table.py", save(data, folder, "b.json")).stdout
    lines = [line.split() for line in out.splitlines()]
    equal({line[-1] for line in lines if line[:1] == ["dense_zz"]}, {"3.00x"})
    equal({line[-1] for line in lines if line[:1] == ["zebra"]}, {"1.00x"})


def test_unavailable_and_broken_counters_show_as_dashes(folder):
    data = golden()
    for r in rows_of(data, "kernel=cpu_hash"):
        r["peak_mib"], r["traffic_gbs"] = -1, "?"
        del r["share_copy"]
    for r in rows_of(data, "kernel=cpu_owner"):
        r["scratch_mib"] = float("nan")  # json.dumps writes NaN, as the library would
    done = run("table.py", save(data, folder, "n.json"))
    equal(done.returncode, 0)
    row = next(line.split() for line in done.stdout.splitlines() if "cpu_hash" in line)
    equal((row[4], row[5], row[10]), ("-", "-", "-"))
    row = next(line.split() for line in done.stdout.splitlines() if "cpu_owner" in line)
    equal(row[8], "-")


def timed(folder, **times):
    """The golden result with these ns per lookup of kernels on the first workload, cold."""
    data = golden()
    for kernel, own in times.items():
        rows = rows_of(data, f"kernel={kernel}", "mode=cold", "workload=zipf/alpha:0.6")
        for r, ns in zip(rows, own):
            r.update(ns_per_lookup=ns, real_time=ns * r["lookups"] / 1e6, lookups_per_s=1e9 / ns,
                     traffic_gbs=50 / ns)
        data["benchmarks"] = [r for r in data["benchmarks"] if r not in rows[len(own):]]
    return save(data, folder, "timed.json")


def test_the_star_goes_to_all_that_cannot_be_told_from_the_fastest(folder):
    stars = lambda path: [x.split()[0] for x in run("table.py", path).stdout.partition("1.05")[0].splitlines()
                          if " *" in x and x.startswith("  cpu_")]
    five = timed(folder, cpu_fused=(10, 11, 12, 13, 14), cpu_sort=(11, 12, 13, 14, 15),
                 cpu_hash=(13.5, 16, 17, 18, 19))  # p of 11 to 15 is 0.42, of 13.5 to 19 it is 4/252
    equal(stars(five), ["cpu_fused", "cpu_sort"])
    overview = next(x for x in run("table.py", five, "--overview").stdout.splitlines() if "alpha:0.6" in x)
    equal(overview.count("**"), 4)
    # Three samples never reach the level: then kernels with overlapping ranges share the star.
    equal(stars(timed(folder, cpu_fused=(10, 11, 12), cpu_sort=(11, 12, 13), cpu_hash=(13, 14, 15))),
          ["cpu_fused", "cpu_sort"])
    equal(stars(timed(folder, cpu_fused=(10,), cpu_sort=(10.1,))), ["cpu_fused"])


def test_columns_agree_for_an_even_number_of_samples(folder):
    path = timed(folder, cpu_fused=(10, 20, 40, 50))
    row = next(x.split() for x in run("table.py", path).stdout.splitlines() if x.startswith("  cpu_fused"))
    equal(row[1:5], ["*30.0", "41.7", "33.3", "1.67"])  # 1e3 / 30, 50 / 30: not the medians of the rates
    run("export.py", path, folder)
    made = contents(folder, ".tsv")
    first = lambda name: next(b for b in made[f"{name}-rowwise_adagrad-cold.tsv"].decode().split("\n\n\n")
                              if b.startswith('"cpu_fused"')).splitlines()[1].split("\t")
    equal(first("time")[2], "30")
    equal(first("throughput")[2], "1.66667")
    assert '\t30\t"30.0"\t0\n' in made["stages-rowwise_adagrad-cold.tsv"].decode()


def test_the_overview_has_the_spreads(folder):
    path = timed(folder, cpu_fused=(10, 20, 30, 40, 50), cpu_hash=(100,), cpu_sort=(99, 99.5, 100, 100.5, 101))
    out = run("table.py", path, "--overview").stdout
    row = next(x.strip("| ").split(" | ") for x in out.splitlines() if "alpha:0.6" in x)
    assert "**30.0 ±33 %**" in row and "100" in row and "100 ±0.5 %" in row, row
    assert "median ± half the quartile range" in out


def test_table_fits(folder):
    out = run("table.py", GOLDEN).stdout
    assert max(map(len, out.splitlines())) <= 120
    for text in ("hottest row 6.1 %", "12.5 GB/s copy", "same 18, split 12",
                 "not run: cuda_fused on all workloads: no CUDA device"):
        assert text in out, text
    assert "†" not in out


def test_dense_operation_gets_daggers_and_is_never_best(folder):
    data = make_results.result(rules=("adam",))
    for r in rows_of(data, "kernel=cpu_dense"):
        r["ns_per_lookup"] = 1.0
    out = run("table.py", save(data, folder, "d.json")).stdout
    rows = [line.split() for line in out.splitlines() if line.startswith("  cpu_")]
    equal(len(rows), 18)
    assert all(r[-1].endswith("x†") for r in rows)
    assert all(not r[1].startswith("*") for r in rows if r[0] == "cpu_dense†")
    assert results.DENSE_NOTE in out


def test_markdown_goes_between_the_comments(folder):
    page = save("above\n<!-- table cpu -->\nstale\n<!-- end cpu -->\nbelow\n", folder, "p.md")
    for _ in range(2):
        equal(run("table.py", GOLDEN, "--update", page, "--section", "cpu").returncode, 0)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert text.startswith("above\n<!-- table cpu -->\n") and "stale" not in text
    assert text.endswith("\n<!-- end cpu -->\nbelow\n")
    equal(text.count("| cpu_fused |"), 3)
    one_line_error(run("table.py", GOLDEN, "--update", page, "--section", "gpu"), "table gpu")


def test_failed_row_is_shown_with_its_reason(folder):
    data = golden()
    bad = rows_of(data, "kernel=cpu_sort", "mode=cold", "workload=zipf/alpha:1.05")[2]
    keep = {k: bad[k] for k in ("name", "run_type", "label")}
    bad.clear()
    bad.update(keep, error_occurred=True, error_message="row 7 of table 0 differs")
    path = save(data, folder, "f.json")
    out = run("table.py", path).stdout
    line = next(r.split() for r in out[out.index("zipf/alpha:1.05"):].splitlines()
                if "cpu_sort" in r)
    equal(line[:3], ["cpu_sort", "FAILED", "-"])
    assert "FAILED cpu_sort on zipf/alpha:1.05: row 7 of table 0 differs" in out
    assert "FAILED cpu_sort" in run("table.py", path, "--markdown").stdout
    equal(run("compare.py", GOLDEN, path).returncode, 2)
    equal(run("compare.py", path, GOLDEN).returncode, 0)


def test_a_kernel_left_out_as_wrong_is_a_failure(folder):
    data = golden()
    data["context"]["emb_not_run_1"] = "zipf/alpha:0.6 | cpu_sort | WRONG RESULT: row 3 differs"
    gone = rows_of(data, "kernel=cpu_sort", "workload=zipf/alpha:0.6")
    data["benchmarks"] = [r for r in data["benchmarks"] if r not in gone]
    path = save(data, folder, "w.json")
    out = run("table.py", path).stdout
    assert "FAILED cpu_sort on zipf/alpha:0.6: WRONG RESULT: row 3 differs" in out
    equal(out.count("not run:"), 1)
    equal(run("compare.py", GOLDEN, path, "--allow-missing").returncode, 2)


def test_a_kernel_that_crashed_is_a_failure(folder):
    data = golden()
    data["context"]["emb_not_run_1"] = "zipf/alpha:0.6 | cpu_sort | CRASHED: Segmentation fault"
    path = save(data, folder, "c.json")
    assert "FAILED cpu_sort on zipf/alpha:0.6: CRASHED: Segmentation fault" in run("table.py", path).stdout
    equal(run("compare.py", GOLDEN, path, "--allow-missing").returncode, 2)


def test_a_run_that_was_cut_short_says_so(folder):
    line = "cut short: the run did not end: 36 of 72 samples"
    data = golden()
    data["context"]["emb_cut_short"] = line.removeprefix("cut short: ")
    path = save(data, folder, "cut.json")
    out = run("table.py", path).stdout
    assert out.startswith(line + "\n\n") and "cpu_sort" in out, out[:200]
    assert run("table.py", path, "--overview").stdout.startswith(f"**{line}**\n\n")
    assert f"{path}: {line}\n" in run("compare.py", GOLDEN, path).stdout
    data["context"] |= {"emb_load_worst": "5", "emb_disturbed_samples": "0", "num_cpus": 2}
    first, second, blank, *_ = run("table.py", save(data, folder, "both.json")).stdout.split("\n")
    equal((first, second[-14:], blank), (line, ": do not quote", ""))


def test_corrupt_missing_and_foreign_files_are_one_line(folder):
    with open(GOLDEN, encoding="utf-8") as file:
        cut = save(file.read()[:5000], folder, "cut.json")
    foreign = save({"context": {"date": "x"}, "benchmarks": []}, folder, "foreign.json")
    for tool in ("table.py", "export.py", "plots.py", "figures.py"):
        extra = [] if tool == "table.py" else [folder]
        one_line_error(run(tool, cut, *extra), tool, "not JSON")
        one_line_error(run(tool, foreign, *extra), tool, "not an embfuse result")
        one_line_error(run(tool, os.path.join(folder, "none"), *extra), tool, "No such file")
    one_line_error(run("compare.py", GOLDEN, cut), "not JSON")
    future = golden()
    future["context"]["emb_schema"] = "99"
    one_line_error(run("table.py", save(future, folder, "99.json")), "schema 99")
    one_line_error(run("table.py", GOLDEN, "--mode", "tepid"), "cold, warm")


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


def drawn_twice(tool, folder, ends):
    """Runs a drawing tool into two folders; returns the files of the first after comparing both."""
    made = []
    for name in ("one", "two"):
        out = os.path.join(folder, name)
        done = run(tool, GOLDEN, out)
        equal((done.returncode, done.stderr), (0, ""))
        for path in done.stdout.split():
            assert os.path.getsize(path) > 2000, path
        made.append(contents(out, ends))
    assert made[0] == made[1], "a second run draws other bytes"
    return made[0]


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


RULES = ("sgd", "adam", "rowwise_adagrad", "momentum")


def many_rules(folder, rules=RULES, **changes):
    """A result of rules with their bytes of state, and other values for some of them, {rule: counters}."""
    data = make_results.result(rules=rules, workloads={"pooled": (0, 0.9, 0.001)})
    for rule, state in zip(RULES, (0, 512, 4, 256)):
        for r in rows_of(data, f"rule={rule}"):
            r["state_bytes"] = state
            r.update(changes.get(rule, {}) if "kernel=cpu_fused" in r["label"] else {})
    return save(data, folder, "rules.json")


def test_many_rules_are_one_table(folder):
    path = many_rules(folder, adam={"ns_per_lookup": 7, "share_roof": 0.5}, sgd={"share_roof": 1.25})
    out = run("table.py", path).stdout
    head, *rows = [x.split() for x in out.splitlines() if x.startswith("  ")]
    equal([row[:2] for row in rows], [["sgd", "0"], ["rowwise_adagrad", "4"], ["momentum", "256"], ["adam", "512"]])
    equal((head[:2], head[-3:], len(head)), (["rule", "state"], ["±%", "%", "roof"], 2 + 5 + 3))
    adam = dict(zip(head, rows[-1]))
    equal((adam["cpu_fused"], rows[-1][-2:]), ("*7.00", ["0.0", "50.0"]))
    assert "pooled · 4 rules · cold" in out and "EACH=1" in out, out
    assert "125.0‡" in out and results.OVER_NOTE in out and max(map(len, out.splitlines())) <= 120
    assert "| adam | 512 |" in run("table.py", path, "--markdown").stdout
    each = run("table.py", path, "--each").stdout
    equal((each.count(" · cold"), each.count("  kernel  "), "EACH=1" in each), (4, 4, False))
    equal(make("table", f"RESULT={path}", "EACH=1").stdout, each)
    few = run("table.py", many_rules(folder, RULES[:3])).stdout
    equal((few.count(" · cold"), few.count("  kernel  ")), (3, 3))


def test_a_rule_without_its_best_kernel_and_without_the_size_of_its_states(folder):
    with open(many_rules(folder), encoding="utf-8") as file:
        data = json.load(file)
    for r in rows_of(data, "rule=adam"):
        del r["state_bytes"]
    gone = rows_of(data, "rule=momentum", "kernel=cpu_fused")
    data["benchmarks"] = [r for r in data["benchmarks"] if r not in gone]
    rows_of(data, "rule=sgd", "kernel=cpu_fused")[1].update(error_occurred=True, error_message="row 7")
    out = run("table.py", save(data, folder, "gone.json")).stdout
    head, *rows = [x.split() for x in out.splitlines() if x.startswith("  ")]
    rows = {row[0]: dict(zip(head, row)) for row in rows}
    equal([rows[r]["cpu_fused"] for r in ("momentum", "sgd")], ["-", "FAILED"])
    equal(rows["adam"]["state"], "-")
    assert "FAILED cpu_fused on pooled: row 7" in out


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


def test_older_results_have_no_roof(folder):
    data = golden()
    for r in data["benchmarks"]:
        for key in ROOF_KEYS:
            del r[key]
    path = save(data, folder, "old.json")
    table = run("table.py", path).stdout
    equal({x.split()[7] for x in table.splitlines() if x.startswith("  cpu_")}, {"-"})
    equal(table.count("% roof  "), 3)
    done = run("export.py", path, folder)
    equal(done.returncode, 0)
    equal(done.stderr, f"no roofline-rowwise_adagrad-cold: no sample in {path} has a roof\n")
    assert not any("roofline" in name for name in contents(folder, ".tsv"))


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


def tick_zero(svg):
    return re.findall(rb"<text>0</text>", svg)


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
    memory = contents(folder, ".svg")["memory-adam-cold.svg"]
    equal(len(tick_zero(memory)), 1)
    assert b"no scratch" not in memory


def test_figures_of_bars_that_are_cut_and_of_no_scratch(folder):
    if not shutil.which("gnuplot"):
        raise tap.Skip("no gnuplot")
    slow = timed(folder, cpu_atomic=(9e4,) * 5)
    for path, breaks in ((GOLDEN, 2), (slow, 3)):  # the dense one on two workloads
        equal(run("plots.py", path, folder).returncode, 0)
        svg = contents(folder, ".svg")
        marks = re.findall(rb"<path stroke='rgb\(255, 255, 255\)'", svg["stages-rowwise_adagrad-cold.svg"])
        equal(len(marks), breaks)
        assert not tick_zero(svg["memory-rowwise_adagrad-cold.svg"])


def test_peers_and_rungs_have_colours_that_no_kernel_has(folder):
    kernels = [results.Kernel("k", family, index=i) for family in ("cpu", "mine", "naive") for i in range(60)]
    guests = [results.Kernel("g", family, index=i) for family in (*results.PEERS, results.LADDER)
              for i in range(60)]
    assert not {style.colour(k) for k in kernels} & {style.colour(g) for g in guests}
    for i in range(20):
        equal(len({style.colour(g) for g in guests[i:i + 6]}), 6)


def test_the_legend_of_one_workload_is_one_column(folder):
    if not shutil.which("gnuplot"):
        raise tap.Skip("no gnuplot")
    for count in (3, 5, 12):
        name, data = "zipf/alpha:0.6", make_results.result(rules=("adam",))
        rows = rows_of(data, f"workload={name}", "mode=cold")
        again = [dict(r, label=r["label"].replace(" mode=", "_again mode=")) for r in rows]
        kernels = list(dict.fromkeys(results.words(r)["kernel"] for r in rows + again))[:count]
        data["benchmarks"] = [r for r in rows + again if results.words(r)["kernel"] in kernels]
        done = run("plots.py", save(data, folder, "one.json"), folder)
        equal((done.returncode, done.stderr), (0, ""))
        for figure, lines in (("throughput", 2), ("memory", 1)):
            svg = contents(folder, ".svg")[f"{figure}-adam-cold.svg"].decode()
            assert results.DENSE_NOTE in svg
            left = re.findall(r'translate\(([\d.]+),[^>]* font-size="13.00"  text-anchor="start"', svg)
            equal((len(left), len(set(left))), (lines + count, 1))


def test_missing_gnuplot_is_one_line(folder):
    one_line_error(run("plots.py", GOLDEN, folder, env={"PATH": folder}), "gnuplot-nox")




def on_device(data, kernel="cpu_hash"):
    """Turns the kernel into a device kernel, with the counters of one."""
    key = f"emb_kernel_{kernel}"
    data["context"][key] = data["context"][key].replace("| host |", "| device |")
    data["context"]["emb_gpu"] = "Synthetic GPU"
    for r in rows_of(data, f"kernel={kernel}"):
        r["launches"], r["plan_ms"], r["replay_ns_per_lookup"] = 7, 0.25, 11.5
        r["label"] += " place=device"
    return data


def test_device_kernels_are_marked_beside_those_of_the_host(folder):
    path = save(on_device(golden()), folder, "device.json")
    out = run("table.py", path).stdout
    assert out.startswith("Synthetic GPU, Synthetic CPU, 2 threads")
    lines = [x for x in out.splitlines() if x.startswith("  cpu_hash (device)")]
    equal(len(lines), len(make_results.WORKLOADS))
    equal({tuple(x.split()[-4:]) for x in lines}, {("-", "7", "0.250", "11.5")})  # no dense kernel on a device
    assert "device ceilings" in out and "host ceilings" in out
    assert "| cpu_hash (device) |" in run("table.py", path, "--overview").stdout
    assert "launches" not in run("table.py", GOLDEN).stdout
    result = results.load(path)
    equal(result.kernels["cpu_hash"].label[-9:], " (device)")
    equal(result.kernels["cpu_sort"].where, "")
    equal(run("export.py", path, folder).returncode, 0)


def test_a_broken_device_is_a_failure(folder):
    data = golden()
    data["context"]["emb_not_run_1"] = "zipf/alpha:0.6 | cuda_fused | DEVICE ERROR: illegal address"
    path = save(data, folder, "broken.json")
    assert "FAILED cuda_fused on zipf/alpha:0.6: DEVICE ERROR" in run("table.py", path).stdout
    equal(run("compare.py", GOLDEN, path, "--allow-missing").returncode, 2)


def peer(data):
    """A result with the rows of one kernel under a peer's name."""
    rows = copy.deepcopy(rows_of(data, "kernel=cpu_sort"))
    for r in rows:
        for key in ("label", "name"):
            r[key] = r[key].replace("cpu_sort", "torch_sparse")
    context = {"emb_schema": "1", "emb_cpu": "Synthetic CPU",
               "emb_kernel_torch_sparse": "torch | host | none | PyTorch sparse | A peer.",
               "emb_not_run_0": "zipf/alpha:1 | torch_dense | out of memory"}
    return {"context": context, "benchmarks": rows}


def disturbed(folder, count=None, name="disturbed.json", **context):
    """The golden result with `count` of its 180 samples disturbed, and these values in its context."""
    data = golden()
    for i, r in enumerate(data["benchmarks"]):
        if count is not None:
            r["disturbed"] = float(i < count)
    data["context"] |= context
    return save(data, folder, name)


def test_what_is_not_to_be_quoted(folder):
    caution = lambda *a, **k: results.load(disturbed(folder, *a, **k)).caution()
    equal(caution(), "")  # nothing is known
    equal(caution(18), "")  # 10 %
    equal(caution(19), "19 of 180 samples disturbed: do not quote")
    # The load is two threads and that of others; half a thread more than the CPUs is tolerated.
    equal(caution(0, emb_load_worst="5.2"), "0 of 180 samples disturbed, load 7.2 on 2 CPUs: do not quote")
    equal(caution(0, emb_load_worst="0.5"), "")
    equal(caution(0, emb_load_worst="0.51", num_cpus=4), "")
    equal(caution(100, emb_load_worst="0.31", emb_load_before="9 9 9 1/80 1"),
          "100 of 180 samples disturbed, load 2.3 on 2 CPUs: do not quote")
    equal(caution(emb_disturbed_samples="90", emb_load_before="2.00 1.63 1.48 1/84 4363"),
          "90 of 180 samples disturbed, load 2.0 on 2 CPUs before the run: do not quote")
    equal(caution(emb_load_before="2.64 1.6 1.4 1/8 4"), "load 2.6 on 2 CPUs before the run: do not quote")
    equal(caution(0, emb_load_worst="unavailable", num_cpus=None), "")
    equal(caution(3, emb_disturbed_samples="90"), "")  # 90 may be of one run of several: the rows count
    equal(caution(0, emb_threads="1 or 2", emb_load_worst="1.5", num_cpus=1),
          "0 of 180 samples disturbed, load 3.5 on 1 CPU: do not quote")


def test_the_load_is_that_of_the_workload_where_it_was_highest(folder):
    data = golden()
    data["context"]["emb_load_worst"] = "9"  # the rows count
    for r in data["benchmarks"]:
        r["load_others"], r["threads"] = 0.2, 2
    for r in rows_of(data, "workload=zipf/alpha:1.05"):
        r["threads"], r["load_others"] = 1, 1.2
    equal(results.load(save(data, folder, "a.json")).caution(), "")
    for i, r in enumerate(rows_of(data, "workload=zipf/alpha:0.6")):
        r["load_others"] = 3.0 if i % 3 == 0 else 0  # 1 on average
    equal(results.load(save(data, folder, "a.json")).caution(), "load 3.0 on 2 CPUs: do not quote")


LINE = "90 of 180 samples disturbed, load 7.2 on 2 CPUs: do not quote"


def test_tables_and_comparisons_begin_with_it(folder):
    path = disturbed(folder, 90, emb_load_worst="5.2")
    equal(run("table.py", path).stdout.splitlines()[0], LINE)
    for form in ("--markdown", "--overview"):
        equal(run("table.py", path, form).stdout.splitlines()[:2], [f"**{LINE}**", ""])
        assert "do not quote" not in run("table.py", GOLDEN, form).stdout
    equal(run("compare.py", GOLDEN, path).stdout.splitlines()[0], f"{path}: {LINE}")


def test_every_plot_has_it(folder):
    path = disturbed(folder, 90, emb_load_worst="5.2")
    if shutil.which("gnuplot"):
        equal(run("plots.py", path, folder).returncode, 0)
    for name, svg in contents(folder, ".svg").items():
        assert LINE in svg.decode().replace("\n", ""), name
        assert re.search(r"(?i)(#c00000|192, *0, *0)", svg.decode()), name


def test_the_whole_of_several_results_is_what_was_disturbed(folder):
    other = peer(golden())
    other["context"] |= {"emb_disturbed_samples": "5", "emb_load_worst": "3.5"}
    out = os.path.join(folder, "both.json")
    paths = [disturbed(folder, emb_disturbed_samples="30", emb_load_worst="0.4"), save(other, folder, "p.json")]
    equal(run("merge.py", *paths, "--out", out).returncode, 0)
    equal(results.load(out).caution(), "35 of 210 samples disturbed, load 5.5 on 2 CPUs: do not quote")


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


ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def test_any_locale_will_do(folder):
    adam = save(make_results.result(rules=("adam",)), folder, "†.json")
    for path in (GOLDEN, adam):
        for args in ((), ("--markdown",), ("--overview",)):
            done = run("table.py", path, *args, env=ASCII)
            equal((done.returncode, done.stdout), (0, run("table.py", path, *args).stdout))
    one_line_error(run("table.py", os.path.join(folder, "±.json"), env=ASCII), "±.json")
    page = save("<!-- table x -->\n<!-- end x -->\n", folder, "p.md")
    done = subprocess.run([sys.executable, tap.tool("section.py"), page, "x"],
                          input="4 ±1 %".encode(), env=os.environ | ASCII, check=False)
    equal(done.returncode, 0)
    with open(page, encoding="utf-8") as file:
        assert "4 ±1 %" in file.read()


def full_disk(tool, *args, limit):
    """Runs a report that may not write files of more than `limit` bytes."""
    code = ("import resource, runpy, sys; sys.argv = sys.argv[1:]; "
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
            f"sys.path.insert(0, {ROOMS[0]!r}); runpy.run_path(sys.argv[0], run_name='__main__')")
    return subprocess.run([sys.executable, "-c", code, tap.tool(tool), *args], text=True,
                          capture_output=True, check=False, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})


def test_a_full_disk_names_the_file_and_leaves_no_half(folder):
    for tool, name, limit, there in (
            ("export.py", "time-rowwise_adagrad-cold.tsv", 500, True),
            ("plots.py", "time-rowwise_adagrad-cold.svg", 8000, shutil.which("gnuplot")),
            ("figures.py", "paper-skew-rowwise_adagrad-cold.pdf", 8000, HAS_MATPLOTLIB)):
        if there:
            out = os.path.join(folder, tool)
            one_line_error(full_disk(tool, GOLDEN, out, limit=limit),
                           f"{tool}: {out}/{name}: File too large")
            equal(list(contents(out, (".svg", ".png", ".pdf", ".new", name))), [])


def make(*words):
    return subprocess.run(["make", "-s", "--no-print-directory", "NVCC=", *words], text=True, check=False,
                          cwd=ROOT, capture_output=True, encoding="utf-8",
                          env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")})


def test_the_status_of_a_comparison_is_told(folder):
    blank = os.path.join(folder, "a b")
    os.mkdir(blank)
    status = os.path.join(blank, "compare.status")
    old, slow = save(golden(), blank, "old.json"), slowed(blank, 1.2, "kernel=cpu_fused")
    data = golden()
    data["benchmarks"] = data["benchmarks"][5:]
    less = save(data, blank, "less.json")
    for new, code, words in ((old, 0, "same or better"), (slow, 3, "slower"), (less, 1, "--allow-missing"),
                             (os.path.join(blank, "none"), 1, "No such file")):
        done = run("compare.py", old, new, "--status-file", status)
        with open(status, encoding="utf-8") as file:
            line = file.read()
        equal(done.returncode, code)
        assert line.startswith(f"status {code}: ") and words in line and line.count("\n") == 1, line
        assert done.stdout.endswith(line) or words in done.stderr, done.stdout
        os.unlink(status)
        made = make("compare", f"A={old}", f"B={new}", f"OUT={blank}", "COMPARE=--min-effect 4")
        equal(made.returncode, 2 if code else 0)
        with open(status, encoding="utf-8") as file:
            assert file.read() == line
        direct = f"reports/compare.py '{old}' '{new}' --min-effect 4"
        assert (direct in made.stderr and f"Error {code}" in made.stderr) == bool(code), made.stderr
    made = make("compare", f"A={old}")
    assert made.returncode == 2 and "usage: make compare A=OLD.json B=NEW.json" in made.stderr, made.stderr


def test_blanks_in_the_names_that_make_hands_on(folder):
    out = os.path.join(folder, "o u t")
    os.mkdir(out)
    path = save(golden(), out, "bench.json")
    done = make("table", f"OUT={out}")
    equal((done.returncode, done.stdout), (0, run("table.py", path).stdout))
    other = save(golden(), out, "other result.json")
    equal(make("table", f"RESULT={other}").returncode, 0)
    for target, there in (("plots", shutil.which("gnuplot")), ("figures", HAS_MATPLOTLIB)):
        if there:
            done = make(target, f"OUT={out}", f"RESULT={other}")
            equal((done.returncode, done.stderr), (0, ""))
            assert contents(os.path.join(out, "plots"), ".svg")


def test_merge_puts_a_peer_beside_the_kernels(folder):
    other, out = save(peer(golden()), folder, "peer.json"), os.path.join(folder, "both.json")
    equal(run("merge.py", GOLDEN, other, "--out", out).returncode, 0)
    table = run("table.py", out).stdout
    equal(table.count("  torch_sparse "), len(make_results.WORKLOADS))
    assert "not run: torch_dense on zipf/alpha:1: out of memory" in table
    assert "not run: cuda_fused on all workloads" in table
    one_line_error(run("merge.py", out, other, "--out", out), "torch_sparse", "is in")


def test_merge_refuses_other_machines_and_other_ids(folder):
    data, out = peer(golden()), os.path.join(folder, "no.json")
    data["context"]["emb_cpu"] = "Another CPU"
    one_line_error(run("merge.py", GOLDEN, save(data, folder, "cpu.json"), "--out", out), "Another")
    data = peer(golden())
    for r in data["benchmarks"]:
        r["label"] = r["label"].replace("fingerprint=", "fingerprint=f")
    one_line_error(run("merge.py", GOLDEN, save(data, folder, "ids.json"), "--out", out),
                   "other ids")
    assert not os.path.exists(out)


def test_the_peer_without_pytorch_is_one_line(folder):
    with open(os.path.join(folder, "torch.py"), "w", encoding="utf-8") as file:
        file.write("raise ImportError('none here')\n")
    one_line_error(run("torch_peer.py", "x", "--out", "y", env={"PYTHONPATH": folder}),
                   "no PyTorch")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "reports"))
