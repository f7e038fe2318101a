#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the report programs as they are run: bad files, locales, full disks, make, and merged results."""
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN
import make_results
from spoiled import contents, equal, full_disk, golden, make, one_line_error, peer, rows_of, run, save, slowed


def test_corrupt_missing_and_foreign_files_are_one_line(folder):
    with open(GOLDEN, encoding="utf-8") as file:
        cut = save(file.read()[:5000], folder, "cut.json")
    foreign = save({"context": {"date": "x"}, "benchmarks": []}, folder, "foreign.json")
    for tool in ("table.py", "export.py", "plots.py"):
        extra = [] if tool == "table.py" else [folder]
        one_line_error(run(tool, cut, *extra), tool, "not JSON")
        one_line_error(run(tool, foreign, *extra), tool, "not an embfuse result")
        one_line_error(run(tool, os.path.join(folder, "none"), *extra), tool, "No such file")
    one_line_error(run("compare.py", GOLDEN, cut), "not JSON")
    one_line_error(run("compare.py", GOLDEN, save(golden() | {"benchmarks": []}, folder, "empty.json")), "no row in common")
    one_line_error(run("table.py", save("[]", folder, "list.json")), "not an embfuse result")
    future = golden()
    future["context"]["emb_schema"] = "99"
    one_line_error(run("table.py", save(future, folder, "99.json")), "schema 99")


def test_any_locale_will_do(folder):
    ascii = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    adam = save(make_results.result(rules=("adam",)), folder, "†.json")
    for path in (GOLDEN, adam):
        done = run("table.py", path, "--markdown", env=ascii)
        equal((done.returncode, done.stdout), (0, run("table.py", path, "--markdown").stdout))
    one_line_error(run("table.py", os.path.join(folder, "±.json"), env=ascii), "±.json")


def test_a_full_disk_names_the_file_and_leaves_no_half(folder):
    for tool, name, limit, there in (
            ("export.py", "time-rowwise_adagrad-cold.tsv", 500, True),
            ("plots.py", "time-rowwise_adagrad-cold.svg", 8000, shutil.which("gnuplot"))):
        if there:
            out = os.path.join(folder, tool)
            one_line_error(full_disk(tool, GOLDEN, out, limit=limit),
                           f"{tool}: {out}/{name}: File too large")
            equal(list(contents(out, (".svg", ".png", ".pdf", ".new", name))), [])


def test_the_status_of_a_comparison_is_told(folder):
    blank = os.path.join(folder, "a b")
    os.mkdir(blank)
    status = os.path.join(blank, "compare.status")
    old, slow = save(golden(), blank, "old.json"), slowed(blank, 1.2, "kernel=cpu_fused")
    for new, code, words in ((old, 0, "same or better"), (slow, 3, "slower"),
                             (os.path.join(blank, "none"), 1, "No such file")):
        done = run("compare.py", old, new, "--status-file", status)
        with open(status, encoding="utf-8") as file:
            line = file.read()
        equal(done.returncode, code)
        assert line.startswith(f"status {code}: ") and words in line and line.count("\n") == 1, line
    made = make("compare", f"A={old}", f"B={slow}", f"OUT={blank}", "COMPARE=--min-effect 4")
    assert made.returncode == 2 and "Error 3" in made.stderr, made.stderr
    made = make("compare", f"A={old}")
    assert made.returncode == 2 and "usage: make compare A=OLD.json B=NEW.json" in made.stderr, made.stderr


def test_without_a_mode_a_report_shows_what_there_is(folder):
    """A result of warm samples alone has a table and figures; a mode that is asked for must be there."""
    data = golden()
    data["benchmarks"] = rows_of(data, "mode=warm")
    path = save(data, folder, "warm.json")
    for words in ((), ("MODES=warm",), ("MODES=iteration warm", "MODE=warm")):
        assert " · warm\n" in make("table", f"RESULT={path}", *words).stdout
    assert " · warm\n" in make("table", f"RESULT={GOLDEN}", "MODES=warm cold").stdout
    assert " · cold\n" in make("table", f"RESULT={GOLDEN}").stdout
    equal(run("export.py", path, folder).returncode, 0)
    assert "time-rowwise_adagrad-warm.tsv" in contents(folder, ".tsv")
    for mode in ("cold", "tepid"):
        one_line_error(run("table.py", path, "--mode", mode), f"no rows in mode {mode} (modes in the file: warm)")


def test_merge_puts_a_peer_beside_the_kernels(folder):
    data, cut, out = peer(golden()), golden(), os.path.join(folder, "both.json")
    data["context"]["emb_cut_short"], cut["context"]["emb_cut_short"] = "after 1 of 9", "after 2 of 8"
    other = save(data, folder, "peer.json")
    equal(run("merge.py", save(cut, folder, "cut.json"), other, "--out", out).returncode, 0)
    table = run("table.py", out).stdout
    assert table.startswith("cut short: after 2 of 8; after 1 of 9\n"), table
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
                   "other work", "fingerprint")
    assert not os.path.exists(out)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "reports"))
