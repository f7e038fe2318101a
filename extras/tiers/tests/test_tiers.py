#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of tiers: laws that hits and bytes must obey, rows with the bits of memory, and the page."""
import json
import os
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
    budgets, policies = (0.05, 0.3, 1), ("lru", "lfu", "belady")
    cases = [f"memory,{b:g},{p},0" for b in budgets for p in policies]
    found = {(x["budget"], x["policy"]): x for x in lines(folder, *cases)}
    misses = lambda budget, policy: found[budget, policy]["row_misses"]
    for policy in policies:
        for budget in budgets:
            x = found[budget, policy]
            assert x["batches"] == 20 and 0 < x["row_misses"] <= x["lookup_misses"] <= x["lookups"]
            assert x["row_misses"] <= x["rows"] <= x["lookups"]
        assert misses(1, policy) == misses(1, "lru") <= misses(0.3, policy)  # only new rows are missing there
        assert misses(0.05, policy) >= misses(0.3, policy)  # as with stacks, which these are
    assert misses(0.05, "belady") < misses(0.05, "lru")
    assert all(x["missing"] > 0 for x in lines(folder, "memory,0.001,lru,0", "files,0.001,lfu,2"))


def test_stores_have_the_misses_of_memory(folder):
    """The program itself compares all rows with those of tables in memory."""
    hits = {x["policy"]: x for x in lines(folder, "memory,0.2,lru,0", "memory,0.2,belady,0")}
    for x in lines(folder, *(f"files,0.2,{policy},{ahead}" for policy in hits for ahead in (0, 2))):
        assert x["disk_read"] >= x["row_misses"] * x["record"] and x["written_back"] > 0, x
        for what in ("row_misses", "lookup_misses", "written_back"):
            assert x["ahead"] or x[what] == hits[x["policy"]][what], (what, x)
    for x in lines(folder, "files,1,lru,0", "files,1,lfu,2"):  # slots for all rows
        assert x["rows"] > 0 and x["row_misses"] == x["written_back"] == x["disk_read"] == 0, x


def test_rocksdb_has_the_bits_too(folder):
    done = run(folder, "rocksdb,0.2,lru,2", "rocksdb,0.2,lru,0")
    if "has no RocksDB" in done.stderr:
        raise tap.Skip("no RocksDB (Debian: librocksdb-dev)")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["row_misses"] > 0 for line in done.stdout.splitlines()] == [True, True]


def test_bad_input_is_one_line(folder):
    for word in ("0.2", "files,0,lru,0", "files,1.5,lru,0", "files,0.2,none,0", "files,0.2,lru,5", "files,0.2,lru",
                 "sql,0.2,lru,0"):
        done = run(folder, word)
        assert done.returncode == 1 and f"'{word}'" in done.stderr and done.stderr.count("\n") == 1, (word, done.stderr)
    assert "nothing.gz" in run(folder, "files,0.2,lru,0", trace=os.path.join(folder, "nothing.gz")).stderr


def test_the_page_shows_it(folder):
    def study(*words):
        return subprocess.run([sys.executable, tap.tool("tiers.py"), os.path.join(folder, "tiers.jsonl"), folder,
                               f"--tiers={PROGRAM}", *words], capture_output=True, text=True, check=False)
    done = study("--budget=20 50", "--alpha=1.05", "--batches=10")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "tiers.md"), encoding="utf-8") as page:
        text = page.read()
    for row in ("files | 20 % | belady | 2", "files | 50 % | lru | 0"):
        assert f"| alpha 1.05 | {row} |" in text, text
    assert {"tiers-hits.png", "tiers-speed.png", "tiers-claim.png"} <= set(os.listdir(folder)), os.listdir(folder)
    done = study("--budget=20,50")
    assert done.returncode == 1 and "BUDGET: '20,50' is no number" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "tiers"))
