#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What device kernels do is what extras/cuda/tests/golden/cuda_counts.txt says, exactly. Needs the PTX lane: make test-counts
builds it and runs this; elsewhere these tests are skipped."""
import os
import re
import subprocess
import sys

import tap

sys.path.insert(0, os.path.join(tap.ROOT, "extras", "cuda", "counts"))
import table  # noqa: E402

COUNTS = os.environ.get("COUNTS", os.path.join(tap.BUILD, "ptx", "90", "counts"))
SMALL = "workload small\n rows 500\n dim 16 128\n batch 50\n length fixed 8\n alpha 1.05\n rule rowwise_adagrad\n"


def count(*options):
    if not os.path.exists(COUNTS):
        raise tap.Skip(f"no {COUNTS}; make test-counts builds it, if CUDA_ARCHS has its architecture")
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
    found = table.differences(before, counted(folder, "extras/cuda/counts/counts.spec"))
    assert not found, "make counts-renew accepts these:\n# " + "\n# ".join(found[:40])


def test_twice_the_same_in_any_company(folder):
    spec = small(folder)
    first, again = counted(folder, spec, "--jobs=1"), counted(folder, spec, "--jobs=2")
    assert not table.differences(first, again)
    alone = counted(folder, spec, "--kernel=cuda_hash")
    assert alone and all(first[key] == functions for key, functions in alone.items())


def constant(name):
    with open(os.path.join(tap.ROOT, "kernels", "device", "runs.cuh"), encoding="utf-8") as file:
        return int(re.search(rf"\b{name} = (\d+)", file.read()).group(1))


def nodes_of(folder, rows):
    """sum_nodes of 20000 lookups of a table with `rows` rows: (atomics, atomics of the address with the most, levels
    that wait for one another)."""
    path = os.path.join(folder, "tree.spec")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"workload tree\n rows {rows}\n dim 4\n batch 20000\n length fixed 1\n ids uniform\n rule sgd\n")
    counts = counted(folder, path, "--kernel=cuda_fused")
    found = [c for functions in counts.values() for f, c in functions.items() if f.startswith("sum_nodes")]
    assert found
    return {(c["atomic_ops"], c["per_address"], c["chain"]) for c in found}


def test_tree_by_hand(folder):
    """A run of all entries: every node below the root and above the chunks has one arrival at its parent's counter, a
    warp climbs to the root, and the run is listed once."""
    chunk, fan = constant("CHUNK_LEAST"), 1 << constant("FAN_BITS")
    nodes = [-(-20000 // chunk)]
    while nodes[-1] > 1:
        nodes.append(-(-nodes[-1] // fan))
    assert nodes_of(folder, 1) == {(sum(nodes[1:-1]) + 1, min(fan, nodes[1]), len(nodes) - 1)}
    assert nodes_of(folder, 100000) == {(0, 0, 1)}  # no run is longer than the reach of a chunk


def test_gradient_is_read_once(folder):
    """One lookup per bag and no row twice: what sum_rows must read and write is known to a few sectors of metadata."""
    path = os.path.join(folder, "once.spec")
    with open(path, "w", encoding="utf-8") as file:
        file.write("workload once\n rows 100000\n dim 128\n batch 400\n length fixed 1\n ids uniform\n rule adagrad\n")
    for functions in counted(folder, path, "--kernel=cuda_fused").values():
        c = next(c for f, c in functions.items() if f.startswith("sum_rows"))
        row = 128 * 4 // 32
        assert 3 * 390 * row < c["read"] < 3 * 400 * row + 1500, c
        assert 2 * 390 * row < c["written"] < 2 * 400 * row + 500, c


sys.exit(tap.run(globals(), "counts"))
