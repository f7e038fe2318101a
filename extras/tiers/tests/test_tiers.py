#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of tiers: laws that hits and bytes must obey, rows with the bits of memory, and the page."""
import json
import os
import re
import subprocess
import sys

import tap

PROGRAM = os.path.join(tap.BUILD, "extras", "tiers", "study", "tiers")
SPEC = "workload t\nrows 4000\ndim 16\nbatch 64\nlength uniform 0 6\nids zipf\nalpha 1.05\nrule adagrad\n"


def run(folder, *cases, trace="-"):
    return subprocess.run([PROGRAM, SPEC, trace, "40", os.path.join(folder, "rows"), *cases], capture_output=True,
                          text=True, check=False)


def lines(*args):
    done = run(*args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_hits_obey_laws(folder):
    found = {(x["budget"], x["hits"]): x for x in lines(folder, "0.05", "0.3", "1")}
    misses = lambda budget, policy: found[budget, policy]["row_misses"]
    for policy in ("lru", "lfu", "belady"):
        for budget in (0.05, 0.3, 1):
            x = found[budget, policy]
            assert x["lacks"] == 0 and x["batches"] == 20
            assert 0 < x["row_misses"] <= x["lookup_misses"] <= x["lookups"]
            assert x["row_misses"] <= x["rows"] <= x["lookups"]
        assert misses(1, policy) == misses(1, "lru") <= misses(0.3, policy)  # only new rows are missing there
    for policy in ("lru", "lfu", "belady"):  # more slots, fewer misses: so it is for stacks, which these are
        assert misses(0.05, policy) >= misses(0.3, policy)
    assert misses(0.05, "belady") < misses(0.05, "lru")
    assert all(x["lacks"] > 0 for x in lines(folder, "0.001"))


def test_steps_have_the_bits_and_the_counts(folder):
    """The same misses with and without batches ahead, and as the study of hits has them."""
    cases = [f"0.2,{policy},{ahead}" for policy in ("lru", "belady") for ahead in (0, 2)]
    found = lines(folder, "0.2", *cases)
    hits = {x["hits"]: (x["row_misses"], x["lookup_misses"]) for x in found if "hits" in x}
    steps = [x for x in found if "hits" not in x]
    assert len(steps) == len(cases)
    for x in steps:
        assert x["right"] and x["engine"] in ("io_uring", "threads") and x["read"] >= x["row_misses"] * x["record"] and x["stored"] == x["written_back"] > 0
        assert (x["row_misses"], x["lookup_misses"]) == hits[x["policy"]] or x["ahead"], x
    for x in lines(folder, "1,lru,0", "1,lfu,2"):  # slots for all rows
        assert x["right"] and x["rows"] > 0 and x["row_misses"] == x["stored"] == x["disk_read"] == 0, x


def test_rocksdb_has_the_bits_too(folder):
    done = run(folder, "0.2,lru,2,rocksdb", "0.2,lru,0,rocksdb")
    if "has no RocksDB" in done.stderr:
        raise tap.Skip("no RocksDB (Debian: librocksdb-dev)")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["right"] for line in done.stdout.splitlines()] == [True, True]


def test_bad_input_is_one_line(folder):
    for word in ("0", "1.5", "0.2,none,0", "0.2,lru,5", "0.2,lru", "0.2,lru,0,sql"):
        done = run(folder, word)
        assert done.returncode == 1 and f"'{word}'" in done.stderr and done.stderr.count("\n") == 1, (word, done.stderr)
    assert "nothing.gz" in run(folder, "0.2", trace=os.path.join(folder, "nothing.gz")).stderr


def test_the_page_shows_it(folder):
    def study(*words):
        return subprocess.run([sys.executable, tap.tool("tiers.py"), os.path.join(folder, "tiers.jsonl"), folder,
                               f"--tiers={PROGRAM}", *words], capture_output=True, text=True, check=False)
    done = study("--budget=20 50", "--alpha=1.05", "--batches=10")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "tiers.md"), encoding="utf-8") as page:
        text = page.read()
    for row in ("files | 20 % | belady | 2", "files | 20 % | lru | 4"):
        assert f"| alpha 1.05 | {row} |" in text, text
    path = os.path.join(folder, "tiers.jsonl")
    with open(path, encoding="utf-8") as file:
        ran = file.read()
    for engine, said in (("io_uring", "io_uring"), ("threads", "threads (the kernel allows no io_uring)"),
                         ("", "an engine that is not recorded")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(r'"engine": "(io_uring|threads)"', f'"engine": "{engine}"' if engine else '"x": 0', ran))
        assert subprocess.run([sys.executable, tap.tool("tiers.py"), path, folder], check=False).returncode == 0
        with open(os.path.join(folder, "tiers.md"), encoding="utf-8") as page:
            assert f"written by {said}, 64 at a time" in " ".join(page.read().split()), engine
    done = study("--budget=20,50")
    assert done.returncode == 1 and "BUDGET: '20,50' is no number" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "tiers"))
