#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""EMBFUSE_PREFETCH: the choice of prefetches is in the record, changes no bit, and is refused in one line if it
cannot be read; make tune finds one."""
import glob
import json
import os
import re
import subprocess
import sys

import tap

BUILD = tap.BUILD


def cache(name, usual):
    size = subprocess.run(["getconf", f"{name}_SIZE"], capture_output=True, text=True, check=False).stdout.strip()
    return int(size) if size.isdigit() and int(size) else usual


GRADS = f"grads:L1:{cache('LEVEL1_DCACHE', 32768) // 16}"
DEFAULT = f"rows:L2:8192,{GRADS},sort:{min(cache('LEVEL2_CACHE', 1 << 20) // 2, 1 << 20)}"
KERNELS = "cpu_fused", "cpu_fused_planned", "cpu_hash", "cpu_sort"
# As far from the default as it goes, both ways, and no row in the sort.
CHOICES = "rows:L1:64,grads:L2:64,sort:0", "rows:L1:1048576,grads:L2:1048576,sort:1048576", "sort:64"
REFUSED = ("rows", "rows:L3:8192", "rows:L2:63", "rows:L2:1048577", "rows:L2:8k", "grads:L1", "sort:-1", "sort:1,",
           ",sort:1", "hot:L1:64", "rows:L2:8192 ")


def good(choice, program, *args):
    return tap.good({"EMBFUSE_PREFETCH": choice}, program, *args)


def test_the_choice_is_recorded(folder):
    for choice, want in (("", DEFAULT), ("sort:64,rows:L1:128", f"rows:L1:128,{GRADS},sort:64")):
        good(choice, "bench", "--out=" + folder, "--modes=cold", "--reps=1", "--ring=1", "--batch=64", "--rows=1000",
             "--dims=8", "--filter=cpu_sort")
        with open(os.path.join(folder, "bench.json"), encoding="utf-8") as file:
            assert json.load(file)["context"]["emb_prefetch"] == want


def test_other_texts_are_refused_in_one_line(_folder):
    for choice in REFUSED:
        done = tap.call({"EMBFUSE_PREFETCH": choice}, "embfuse", "list")
        want = f"embfuse: EMBFUSE_PREFETCH: '{choice}' is not like {DEFAULT} with L1 or L2"
        assert done.returncode == 1 and done.stderr.startswith(want) and done.stderr.count("\n") == 1, (choice, done)


def results(choice, kernel, batch, folder):
    for old in glob.glob(os.path.join(folder, "new.*")):
        os.unlink(old)
    good(choice, "embfuse", "step", "--kernel", kernel, "--batch", batch, "--steps", "2", "--out",
         os.path.join(folder, "new"))
    found = {}
    for path in glob.glob(os.path.join(folder, "new.*.npy")):
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    assert found
    return found


def test_no_choice_changes_a_bit(folder):
    batch = os.path.join(folder, "batch")
    for shape in ("rows 3000\n dim 64\n batch 500\n length uniform 1 39\n alpha 0",  # rows of their own
                  "rows 300\n dim 33\n batch 400\n length fixed 9\n alpha 1.2\n weighted 1"):  # rows that come often
        good("", "embfuse", "gen", tap.script(folder, "a.spec", f"workload a\n {shape}\n"), "--initial-tables",
             "--out", batch)
        for kernel in KERNELS:
            want = results("", kernel, batch, folder)
            for choice in CHOICES:
                assert results(choice, kernel, batch, folder) == want, (shape, kernel, choice)


def tune(folder, *args):
    return subprocess.run([sys.executable, "extras/studies/tune.py", folder, f"--tune={BUILD}/extras/studies/tune/tune", *args],
                          capture_output=True, text=True, check=False)


def test_tune_finds_a_choice(folder):
    done = tune(folder, "--threads=2", "--seconds=0", "--rows=10000")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "tune.json"), encoding="utf-8") as file:
        data = json.load(file)
    context, rows = data["context"], data["benchmarks"]
    assert context["emb_tune_default"] == DEFAULT and context["emb_threads"] == "2"
    good(context["emb_tune_chosen"], "embfuse", "list")  # can be read
    choices = {row["name"].partition("@")[2].partition("/")[0] for row in rows}
    assert len(choices) >= 8 + 7 + 5 and DEFAULT in choices and all(row["ns_per_lookup"] > 0 for row in rows), choices


def test_memory_has_every_span_and_every_way(folder):
    done = subprocess.run([sys.executable, "extras/studies/memory.py", folder, f"--memory={BUILD}/extras/studies/memory/memory", "--mib=64"],
                          env=os.environ | {"EMBFUSE_CACHE_MIB": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for found in (r"\n64 KiB +[\d.]+ +[\d.]+\n", r"\n64 MiB +[\d.]+ +[\d.]+\n", r"\nprefetches +[\d.]+ +[\d.]+\n",
                  r"the last-level cache is said to have 1.0 MiB", r"at once, \d+ % did nothing"):
        assert re.search(found, done.stdout), done.stdout
    with open(os.path.join(folder, "memory.json"), encoding="utf-8") as file:
        rows = json.load(file)["benchmarks"]
    assert [sum(r["part"] == part for r in rows) for part in ("latency", "prefetches")] == [11 * 5, 4 * 301]


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "prefetch"))
