#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of reports/: the tools are run as a user runs them, on the synthetic golden result and
on spoiled copies of it; expected numbers are worked by hand in the test."""
import copy
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REPORTS = os.path.join(HERE, "..", "reports")
GOLDEN = os.path.join(HERE, "golden", "results.json")
sys.dont_write_bytecode = True
sys.path[:0] = [REPORTS, os.path.join(HERE, "golden")]
import compare
import export
import make_results
import results
import tap

FIRST = "zipf/alpha:0.6 rowwise_adagrad cpu_fused cold"
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def run(tool, *args, env=None):
    return subprocess.run([sys.executable, os.path.join(REPORTS, tool), *args], text=True,
                          capture_output=True, check=False, encoding="utf-8", errors="replace",
                          env=dict(os.environ, PYTHONIOENCODING="utf-8",
                                   PYTHONDONTWRITEBYTECODE="1", **(env or {})))


def golden():
    with open(GOLDEN, encoding="utf-8") as file:
        return json.load(file)


def save(data, folder, name):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(data if isinstance(data, str) else json.dumps(data))
    return path


def rows_of(data, *words):
    return [r for r in data["benchmarks"] if all(w in r["label"].split() for w in words)]


def contents(folder, ends):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(ends):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    return found


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def one_line_error(done, *words):
    equal(done.returncode, 1)
    equal(len(done.stderr.strip().splitlines()), 1)
    for word in words:
        assert word in done.stderr, f"{word!r} not in {done.stderr!r}"


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
    line = next(x.split("\t") for x in text.splitlines() if "sort, fused" in x)
    equal(line[2:], ["0", "0.5", "0.5", "0.5", "3", "3", "3", '"3.00"'])


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


def test_table_fits_and_marks_one_best_per_workload(folder):
    out = run("table.py", GOLDEN).stdout
    assert max(map(len, out.splitlines())) <= 120
    equal(sum(line.split()[1].startswith("*") for line in out.splitlines()
              if line.startswith("  cpu_")), 3)
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
    equal(sum(r[1].startswith("*") for r in rows), 3)
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
    """Runs a drawing tool into two folders; the files of the first, checked against the second."""
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
                         for n in ("alpha-zipf", "memory", "roofline", "stages", "throughput")])
    for name, svg in made.items():
        for label in (b"sort, fused", b"row owner", b"Synthetic CPU", b"cold"):
            assert label in svg, (name, label)
    equal(len(contents(os.path.join(folder, "one"), ".png")), 5)


ROOF_KEYS = ("gather_gbs", "line_mib", "gather_mib", "roof_ms", "share_roof")


def test_roofline_by_hand(folder):
    """A million lookups, 2 MiB and 12 MiB; sort in 8 ns and a roof of 4 ns, all others far away."""
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
    equal(first, ["2.3", '"sort, reduce, update"', "2", "8", "8", "4", '"8.00 · 50 %"'])
    equal([(x[1], *x[2:]) for x in others], [(f'"{label}"', "0", "8", "8", "4", '"60.0 · 7 % (cut)"')
                                             for label in ("atomic scatter", "row owner")])
    row = next(x.split() for x in run("table.py", path).stdout.splitlines() if x.startswith("  cpu_sort"))
    equal(row[7], "50.0")


def test_a_step_without_stages_is_one_bar(folder):
    data = golden()
    for r in rows_of(data, "kernel=cpu_sort"):
        for stage in results.STAGES:
            del r[f"{stage}_ms"]
        r.update(real_time=2, ns_per_lookup=2, share_roof=0.5)  # the fastest, and so in the roofline
    divided, whole = (
        {f.script: f.variables for f in export.figures(results.load(path), folder, "cold")}
        for path in (GOLDEN, save(data, folder, "whole.json")))
    for name, end in (("stages", ["0"] * 5 + ["2", "2", '"2.00"']),
                      ("roofline", ["0", "0", "2", "1", '"2.00 · 50 %"'])):
        assert "whole step" not in divided[name]["names"] and '"whole step"' in whole[name]["names"]
        text = contents(folder, ".tsv")[f"{name}-rowwise_adagrad-cold.tsv"].decode()
        rows = [x.split("\t") for x in text.splitlines() if "sort, reduce" in x]
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
    equal({(r[1] == "(device)", r[8 if r[1] == "(device)" else 7] == "-") for r in rows},
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
    assert "dense gradient†" in svg and results.DENSE_NOTE in svg


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


def test_missing_matplotlib_is_one_line(folder):
    save("raise ImportError('hidden by the test')", folder, "matplotlib.py")
    one_line_error(run("figures.py", GOLDEN, folder, env={"PYTHONPATH": folder}),
                   "python3-matplotlib")


def test_paper_figures_are_made_and_reproducible(folder):
    if not HAS_MATPLOTLIB:
        raise tap.Skip("no matplotlib in this Python")
    made = drawn_twice("figures.py", folder, (".svg", ".pdf"))
    equal(len(made), 6)
    assert all(b"Type3" not in data.replace(b" ", b"") for data in made.values())


def test_mann_whitney_against_known_values(folder):
    low, high = [1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]
    equal(compare.mann_whitney(low, high), 2 / 252)  # 2 of the C(10,5) orders are as extreme
    equal(compare.mann_whitney([1.0, 3.0], [2.0, 4.0]), 4 / 6)  # sum 4: sums 3, 4, 6, 7 of 6
    equal(compare.mann_whitney([1.0, 1.0], [1.0, 1.0]), 1.0)
    equal(compare.midranks([5.0, 2.0, 5.0, 9.0]), [5, 2, 5, 8])  # twice the ranks 2.5 1 2.5 4
    a, b = [float(i) for i in range(30)], [i + 8.5 for i in range(30)]
    # U = sum over i of #(j: j + 8.5 < i) = 21*22/2 = 231; z = (450 - 231 - .5)/sqrt(900*61/12)
    assert abs(compare.mann_whitney(a, b) - 0.001235) < 2e-6


def test_a_close_median_is_the_same_only_without_noise(folder):
    quiet, wild = [9.9, 10.0, 10.0, 10.0, 10.1], [5.0, 7.0, 10.1, 14.0, 20.0]
    equal(compare.verdict(quiet, [x + 0.1 for x in quiet], 0.05, 0.01)[0], "SAME")
    equal(compare.verdict(quiet, wild, 0.05, 0.01)[0], "UNSURE")
    equal(compare.verdict(wild, wild, 0.05, 0.01)[0], "SAME")


def test_compare_same_and_faster(folder):
    done = run("compare.py", GOLDEN, GOLDEN)
    equal(done.returncode, 0)
    assert "36 SAME" in done.stdout and "geometric mean of new/old: 1.000" in done.stdout
    equal(run("compare.py", slowed(folder, 0.8, "kernel=cpu_sort"), GOLDEN).returncode, 3)
    done = run("compare.py", GOLDEN, slowed(folder, 0.8, "kernel=cpu_sort"))
    equal(done.returncode, 0)
    assert "6 FASTER, 30 SAME" in done.stdout


def test_compare_says_what_else_changed(folder):
    data = golden()
    data["context"] |= {"emb_isa": "avx512", "emb_thp": "never"}
    out = run("compare.py", GOLDEN, save(data, folder, "isa.json")).stdout
    equal([x for x in out.splitlines() if x.startswith("note: ")],
          ["note: isa differs: None -> avx512", "note: thp differs: always -> never"])
    assert "same machine and build settings" in run("compare.py", GOLDEN, GOLDEN).stdout


def slowed(folder, factor, *words):
    data = golden()
    for r in rows_of(data, *words):
        r["real_time"] *= factor
    return save(data, folder, f"slow{factor}.json")


def test_compare_slower_by_more_than_the_least_effect(folder):
    path = slowed(folder, 1.2, "kernel=cpu_fused", "mode=cold")
    done = run("compare.py", GOLDEN, path)
    equal(done.returncode, 3)
    assert "33 SAME, 3 SLOWER" in done.stdout
    equal(run("compare.py", GOLDEN, path, "--min-effect", "30").returncode, 0)


def test_compare_noise_is_unsure(folder):
    noisy = [save(make_results.dump(make_results.result(noise=0.5, seed=s)), folder, f"{s}.json")
             for s in (1, 2)]
    done = run("compare.py", *noisy, "--alpha", "1e-9")
    equal(done.returncode, 4)
    assert "36 UNSURE" in done.stdout
    few = copy.deepcopy(golden())
    few["benchmarks"] = [dict(r, real_time=2 * r["real_time"])
                         for r in few["benchmarks"] if r["repetition_index"] < 2]
    equal(run("compare.py", GOLDEN, save(few, folder, "few.json")).returncode, 4)


def test_compare_refuses_other_ids(folder):
    text = json.dumps(golden())
    mark = rows_of(golden(), "workload=zipf/alpha:1.05")[0]["label"].split("fingerprint=")[1][:16]
    done = run("compare.py", GOLDEN, save(text.replace(mark, "f" * 16), folder, "ids.json"))
    one_line_error(done, "fingerprint", "zipf/alpha:1.05", mark, "f" * 16)
    text = json.dumps(make_results.result(rules=("adam",)))
    paths = [save(t, folder, f"{i}.json")
             for i, t in enumerate((text, text.replace("operation=dense", "operation=lazy")))]
    one_line_error(run("compare.py", *paths), "operations dense and lazy")


def test_compare_a_shorter_round_of_the_ring(folder):
    data = golden()
    data["benchmarks"] = [r for r in data["benchmarks"] if r["repetition_index"] % 2 == 0]
    path = save(data, folder, "short.json")
    equal({len(s.fingerprints) for s in results.load(path).series}, {1})
    equal({len(s.fingerprints) for s in results.load(GOLDEN).series}, {2})
    equal(run("compare.py", GOLDEN, path).returncode, 0)


def test_compare_lists_rows_of_one_side(folder):
    data = golden()
    gone = rows_of(data, "kernel=cpu_owner", "mode=warm", "workload=zipf/alpha:0.6")
    data["benchmarks"] = [r for r in data["benchmarks"] if r not in gone]
    path = save(data, folder, "gone.json")
    done = run("compare.py", GOLDEN, path)
    equal(done.returncode, 1)
    assert f"only in {GOLDEN}: zipf/alpha:0.6 rowwise_adagrad cpu_owner warm" in done.stdout
    equal(run("compare.py", GOLDEN, path, "--allow-missing").returncode, 0)
    equal(run("compare.py", GOLDEN).returncode, 1)


def on_device(data, kernel="cpu_hash"):
    """The kernel as one of a device, with the counters of one."""
    key = f"emb_kernel_{kernel}"
    data["context"][key] = data["context"][key].replace("| host |", "| device |")
    data["context"]["emb_gpu"] = "Synthetic GPU"
    for r in rows_of(data, f"kernel={kernel}"):
        r["launches"], r["plan_ms"] = 7, 0.25
        r["label"] += " place=device"
    return data


def test_device_kernels_are_marked_beside_those_of_the_host(folder):
    path = save(on_device(golden()), folder, "device.json")
    out = run("table.py", path).stdout
    assert out.startswith("Synthetic GPU, Synthetic CPU, 2 threads")
    lines = [x for x in out.splitlines() if x.startswith("  cpu_hash (device)")]
    equal(len(lines), len(make_results.WORKLOADS))
    equal({tuple(x.split()[-3:]) for x in lines}, {("-", "7", "0.250")})  # no dense one on a device
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
    """The rows of one kernel under a peer's name, as a result of their own."""
    rows = copy.deepcopy(rows_of(data, "kernel=cpu_sort"))
    for r in rows:
        for key in ("label", "name"):
            r[key] = r[key].replace("cpu_sort", "torch_sparse")
    context = {"emb_schema": "1", "emb_cpu": "Synthetic CPU",
               "emb_kernel_torch_sparse": "torch | host | none | PyTorch sparse | A peer.",
               "emb_not_run_0": "zipf/alpha:1 | torch_dense | out of memory"}
    return {"context": context, "benchmarks": rows}


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
