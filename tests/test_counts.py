#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What device kernels do is what tests/golden/cuda_counts.txt says, exactly. Needs the PTX lane: make test-counts
builds it and runs this; elsewhere these tests are skipped."""
import os
import subprocess
import sys

import tap

sys.path.insert(0, os.path.join(tap.ROOT, "emulation", "counts"))
import table  # noqa: E402

COUNTS = os.environ.get("COUNTS", os.path.join(tap.BUILD, "ptx", "90", "counts"))
SMALL = "workload small\n rows 500\n dim 16 128\n batch 50\n length fixed 8\n alpha 1.05\n rule rowwise_adagrad\n"


def count(*options):
    if not os.path.exists(COUNTS):
        raise tap.Skip(f"no {COUNTS}; make test-counts builds it")
    return subprocess.run([COUNTS, *options], capture_output=True, text=True, cwd=tap.ROOT)


def counted(folder, spec, *options):
    out = os.path.join(folder, f"{len(os.listdir(folder))}.json")
    done = count(f"--spec={spec}", f"--out={out}", *options)
    assert done.returncode == 0, done.stderr
    return table.counted(table.read_json(out))


def small(folder):
    path = os.path.join(folder, "small.spec")
    with open(path, "w", encoding="utf-8") as file:
        file.write(SMALL)
    return path


def test_as_recorded(folder):
    made_by, before = table.counts_in(open(table.GOLDEN, encoding="utf-8").read())
    now = os.environ.get("COUNTS_MADE_BY", made_by)
    if made_by != now:
        raise tap.Skip(f"recorded with {made_by}, this is {now}")
    found = table.differences(before, counted(folder, "datasets/counts.spec"))
    assert not found, "make counts-renew accepts these:\n# " + "\n# ".join(found[:40])


def test_twice_the_same_in_any_company(folder):
    spec = small(folder)
    first, again = counted(folder, spec, "--jobs=1"), counted(folder, spec, "--jobs=2")
    assert not table.differences(first, again)
    alone = counted(folder, spec, "--kernel=cuda_hash")
    assert alone and all(first[key] == functions for key, functions in alone.items())


def test_models(folder):
    out = os.path.join(folder, "models.json")
    done = count(f"--spec={small(folder)}", "--model=h100", "--model=b200", "--part=8", "--kernel=cuda_fused",
                 f"--out={out}")
    assert done.returncode == 0, done.stderr
    records = table.read_json(out)
    for r in records:
        assert [m["device"] for m in r["models"]] == ["h100", "b200"]
    # All of it fits: what each step reads is what it must read, but for what an earlier function has left there.
    for key in {(r["workload"], r["kernel"]) for r in records}:
        own = [r for r in records if (r["workload"], r["kernel"]) == key]
        read, least = sum(r["models"][0]["read"] for r in own), sum(r["compulsory_read"] for r in own)
        assert 0.5 * least < read <= least, f"{key}: {read} sectors, {least} in all launches"
        assert sum(r["models"][0]["early"] for r in own) == 0
    assert table.modelled(records)


def test_usage(folder):
    for options, text in (((), "--spec is missing"), (("--spec=none.spec",), "none.spec"),
                          (("--spec=a", "--model=h1"), "h1"), (("--spec=a", "--jobs=0"), "--jobs")):
        done = count(*options)
        assert done.returncode == 1 and text in done.stderr and done.stderr.count("\n") == 1, done.stderr


sys.exit(tap.run(globals(), "counts"))
