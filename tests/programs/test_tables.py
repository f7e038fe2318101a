#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of how results are loaded, and of the tables made of them."""
import copy
import json
import re
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN
import make_results
import results
import style
from spoiled import (LINE, RULES, contents, equal, golden, make, many_rules, need_scipy, on_device,
                     one_line_error, rows_of, run, save, timed, told)

FIRST = "zipf/alpha:0.6 rowwise_adagrad cpu_fused cold"


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
    equal(result.kernels["cpu_dense"].traits, {"deterministic", "dense_gradient"})


def test_one_name_is_one_workload(folder):
    """Of two traces with one base name, say: a table would show the median of both."""
    name = "zipf/alpha:1.05"
    for field, value in (("dim", 256), ("tables", 26), ("rows", 9), ("threads", 1), ("lookups", 200),
                         ("fingerprint", "f00")):
        data = golden()
        row = rows_of(data, f"workload={name}", "kernel=cpu_sort")[-1]
        if field == "fingerprint":
            row["label"] = re.sub(r"(fingerprint=)\w+", rf"\g<1>{value}", row["label"])
        row[field] = value
        path = save(data, folder, "two.json")
        one_line_error(run("table.py", path), f"{path}: {name}: {field} is ", f"and {value}, ", "different names")


def test_median_and_quartiles_by_hand(folder):
    equal(results.quartiles([4.0, 1.0, 3.0, 2.0]), (1.75, 2.5, 3.25))
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
    for r in rows_of(data, "workload=zipf/alpha:0.6"):
        r["lookups"] = 1e6
    for r, ms, index in zip(rows, (5, 1, 4, 2, 3), (9, 9, 9, 9, 0.5)):
        r["real_time"], r["ns_per_lookup"] = ms, ms
        r["index_ms"], r["update_ms"] = index, 2.5
    run("export.py", save(data, folder, "s.json"), folder)
    text = contents(folder, ".tsv")["stages-rowwise_adagrad-cold.tsv"].decode()
    line = next(x.split("\t") for x in text.splitlines() if "cpu_fused" in x)
    equal(line[2:], ["0", "0.5", "0.5", "0.5", "3", "3", "3", '"3.00"', "0"])


def iterations():
    """The golden result with forwards, and with iterations of a kernel that is planned, and of a peer, of 30 and 100 ns
    per lookup. The planned kernel's step takes 10, its plan 5, a forward 20."""
    data = golden()
    data["context"] |= {"emb_kernel_cpu_lookup": "forward | host | none | lookup | An idea.",
                        "emb_kernel_fbgemm": "fbgemm | host | none | FBGEMM | A peer."}
    first = rows_of(data, "kernel=cpu_fused", "mode=cold", "workload=zipf/alpha:0.6")
    for r in rows_of(data, "kernel=cpu_hash", "mode=cold", "workload=zipf/alpha:0.6"):
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
    equal(run("export.py", path, folder, "--mode", "iteration").stderr, "")
    text = contents(folder, ".tsv")["stages-rowwise_adagrad-iteration.tsv"].decode()
    bars = {x.split("\t")[1].strip('"'): [float(v) for v in x.split("\t")[2:11]] for x in text.splitlines()[1:]}
    equal(bars["cpu_hash"], [0, 18, 22, 22, 22, 22, 30, 30, 30])
    equal(bars["fbgemm"], [0, 30, 30, 30, 30, 30, 30, 100, 100])


def test_a_step_that_was_planned_ahead_is_marked_and_never_fastest(folder):
    path = save(iterations(), folder, "p.json")
    group = results.load(path).groups("cold")[0]
    assert min(s.ns for s in group.measured()) == 10.0 and group.best().kernel.name != "cpu_hash"
    out = run("table.py", path).stdout
    line = next(x.split() for x in out.splitlines() if x.startswith("  cpu_hash"))
    equal(line[:2], ["cpu_hash§", "10.0"])
    assert results.PLANNED_NOTE in out
    equal(run("export.py", path, folder).returncode, 0)
    assert "cpu_hash" not in contents(folder, ".tsv")["roofline-rowwise_adagrad-cold.tsv"].decode().split("\n\n\n")[0]


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


def test_the_star_goes_to_all_that_cannot_be_told_from_the_fastest(folder):
    lines = lambda path: run("table.py", path).stdout.partition("1.05")[0].splitlines()
    stars = lambda path: [x.split()[0].rstrip("~") for x in lines(path) if " *" in x and x.startswith("  cpu_")]
    five = timed(folder, cpu_fused=(10, 11, 12, 13, 14), cpu_sort=(11, 12, 13, 14, 15),
                 cpu_hash=(13.5, 16, 17, 18, 19))  # p of 11 to 15 is 0.42, of 13.5 to 19 it is 4/252
    equal(stars(five), ["cpu_fused", "cpu_sort"])
    # Three samples never reach the level: then kernels with overlapping ranges share the star.
    equal(stars(timed(folder, cpu_fused=(10, 11, 12), cpu_sort=(11, 12, 13), cpu_hash=(13, 14, 15))),
          ["cpu_fused", "cpu_sort"])


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
    equal(run("table.py", GOLDEN, "--update", page, "--section", "cpu").returncode, 0)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert text.startswith("above\n<!-- table cpu -->\n") and "stale" not in text
    assert text.endswith("\n<!-- end cpu -->\nbelow\n")
    equal(text.count("| cpu_fused |"), 3)
    one_line_error(run("table.py", GOLDEN, "--update", page, "--section", "gpu"), "table gpu")


def test_a_failed_row_is_shown_with_its_reason(folder):
    data = golden()
    bad = rows_of(data, "kernel=cpu_sort", "mode=cold", "workload=zipf/alpha:1.05")[2]
    keep = {k: bad[k] for k in ("name", "run_type", "label")}
    bad.clear()
    bad.update(keep, error_occurred=True, error_message="row 7 of table 0 differs")
    path = save(data, folder, "f.json")
    out = run("table.py", path).stdout
    line = next(r.split() for r in out[out.index("zipf/alpha:1.05"):].splitlines() if "cpu_sort" in r)
    equal(line[:3], ["cpu_sort", "FAILED", "-"])
    assert "FAILED cpu_sort on zipf/alpha:1.05: row 7 of table 0 differs" in out
    equal((run("compare.py", GOLDEN, path).returncode, run("compare.py", path, GOLDEN).returncode), (2, 0))


def test_a_kernel_left_out_as_broken_is_a_failure(folder):
    for kernel, why in (("cpu_sort", "WRONG RESULT: row 3 differs"), ("cpu_sort", "CRASHED: Segmentation fault"),
                        ("cuda_fused", "DEVICE ERROR: illegal address")):
        data = golden()
        data["context"]["emb_not_run_1"] = f"zipf/alpha:0.6 | {kernel} | {why}"
        gone = rows_of(data, f"kernel={kernel}", "workload=zipf/alpha:0.6")
        data["benchmarks"] = [r for r in data["benchmarks"] if r not in gone]
        path = save(data, folder, "broken.json")
        out = run("table.py", path).stdout
        assert f"FAILED {kernel} on zipf/alpha:0.6: {why}" in out and out.count("not run:") == 1, out
        equal(run("compare.py", GOLDEN, path, "--allow-missing").returncode, 2)


def test_a_run_that_was_cut_short_says_so(folder):
    line = "cut short: the run did not end: 36 of 72 samples"
    data = golden()
    data["context"]["emb_cut_short"] = line.removeprefix("cut short: ")
    path = save(data, folder, "cut.json")
    assert run("table.py", path).stdout.startswith(line + "\n\n")
    assert run("table.py", path, "--overview").stdout.startswith(f"**{line}**\n\n")
    assert f"{path}: {line}\n" in run("compare.py", GOLDEN, path).stdout


def test_many_rules_are_one_table(folder):
    path = many_rules(folder, adam={"ns_per_lookup": 7, "share_roof": 0.5}, sgd={"share_roof": 1.25})
    out = run("table.py", path).stdout
    head, *rows = [x.split() for x in out.splitlines() if x.startswith("  ")]
    equal([row[:2] for row in rows], [["sgd", "0"], ["rowwise_adagrad", "4"], ["momentum", "256"], ["adam", "512"]])
    equal((dict(zip(head, rows[-1]))["cpu_fused"], rows[-1][-2:]), ("*7.00", ["0.0", "50.0"]))
    assert "125.0‡" in out and results.OVER_NOTE in out
    each = run("table.py", path, "--each").stdout
    equal((each.count(" · cold"), each.count("  kernel  ")), (4, 4))
    few = run("table.py", many_rules(folder, RULES[:3])).stdout
    equal((few.count(" · cold"), few.count("  kernel  ")), (3, 3))


def test_device_kernels_are_marked_beside_those_of_the_host(folder):
    path = save(on_device(golden()), folder, "device.json")
    out = run("table.py", path).stdout
    assert out.startswith("Synthetic GPU, Synthetic CPU, 2 threads")
    lines = [x for x in out.splitlines() if x.startswith("  cpu_hash (device)")]
    equal(len(lines), len(make_results.WORKLOADS))
    equal({tuple(x.split()[-4:]) for x in lines}, {("-", "7", "0.250", "11.5")})  # no dense kernel on a device
    assert "device ceilings" in out and "host ceilings" in out


def marked(out):
    """The kernels of a table that are marked as not to be quoted."""
    return [x.split()[0].rstrip("~") for x in out.splitlines() if re.match(r"  cpu_\w+~ ", x)]


def test_rows_that_are_not_to_be_quoted_are_named_and_marked(folder):
    """One row, by its own times or for want of samples; all of a workload if its fastest is uncertain."""
    need_scipy()
    out = run("table.py", GOLDEN).stdout
    equal(("not to be quoted" in out, marked(out)), (False, []))
    path = timed(folder, cpu_hash=(138, 139, 141, 143, 146))
    out = run("table.py", path).stdout
    assert out.startswith("half of the rows are known within 1.2 %, 95 % within 3.2 %; 1 of 18 rows"), out
    equal((told(out).splitlines()[:2], marked(out)), ([LINE.format(1, 3), ""], ["cpu_hash"]))
    assert results.NOTES["~"] in out and results.NOTES["~"] not in run("table.py", GOLDEN).stdout
    out = run("table.py", path, "--markdown").stdout
    equal((told(out).splitlines()[:2], out.count("~ |")), ([f"**{LINE.format(1, 3)}**", ""], 1))
    out = run("table.py", path, "--overview").stdout
    assert f". ~: **{LINE.format(1, 3)}.**\n" in told(out) and out.count("141~ ±") == 1, out
    equal(marked(run("table.py", path, "--precision", "5").stdout), [])
    made = make("table", f"RESULT={path}", "PRECISION=1").stdout
    assert told(made).startswith(LINE.format(len(marked(made)), 1)) and "cpu_hash" in marked(made), made
    out = run("table.py", timed(folder, cpu_sort=(145, 145, 145, 145))).stdout
    equal((told(out).splitlines()[0], marked(out)),
          (LINE.format(1, 3) + ", or of fewer than 5 samples or 3 visits", ["cpu_sort"]))
    out = run("table.py", timed(folder, cpu_fused=(100, 110, 120, 125, 130))).stdout
    equal(len(marked(out)), 6)
    for word in ("0", "-3", "nan", "x"):
        done = run("table.py", path, "--precision", word)
        assert done.returncode == 1 and "--precision" in done.stderr.splitlines()[-1], done.stderr


def test_visits_that_differ_are_uncertain(folder):
    """Twenty samples of a kernel in five visits, beside a still one. In one visit the same samples would be certain."""
    need_scipy()
    data, one = golden(), {k: rows_of(golden(), f"kernel={k}", "mode=cold", "workload=zipf/alpha:0.6")[0]
                           for k in ("cpu_fused", "cpu_sort")}
    def quotable(drift, visits=5, precision=0.03):
        data["benchmarks"] = [row | {"repetition_index": i, "visit": i % visits, "ns_per_lookup": 50 + i / 100 +
                                     drift * (i % 5 == 4 and kernel == "cpu_sort")}
                              for kernel, row in one.items() for i in range(20)]
        result = results.load(save(data, folder, "visits.json"), precision)
        return [g.quotable(s) for g in result.groups("cold") for s in g.series], told(result.caution())
    equal(quotable(0), ([True, True], ""))
    equal(quotable(5), ([True, False], LINE.format(1, 3).replace("18", "2")))
    equal(quotable(5, visits=1), ([True, True], ""))
    equal(quotable(5, visits=1, precision=1e-4), ([False, False], LINE.format(2, 0.01).replace("18", "2") +
          "; all were measured at one time, and another run may differ by more"))


def test_disturbed_samples_and_load_alone_are_no_caution(folder):
    data = golden()
    for r in data["benchmarks"]:
        r["disturbed"] = 1.0
    data["context"]["emb_load_before"] = "9.64 1.6 1.4 1/8 4"
    result = results.load(save(data, folder, "load.json"))
    equal(result.doubts(result.groups("cold")), [])


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "tables"))
