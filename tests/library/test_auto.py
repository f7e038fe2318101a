#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of lib/auto.c: on every point of every recorded sweep, the kernel that `auto` takes is compared to
the fastest one of the recorded times."""
import glob
import json
import os
import re
import statistics
import sys
from collections import defaultdict

import numpy

sys.dont_write_bytecode = True
import tap
from tap import ROOT
import embfuse

SWEEPS = sorted(glob.glob(os.path.join(ROOT, "reports", "results", "*", "sweep.json")))
LEAST, NEAR, MOST_BELOW = 0.85, 0.9, 2 / 110  # share of the fastest kernel's speed; points below NEAR


def chosen(rows, dim, tables, bags, pooling, threads, rule="rowwise_adagrad", **hypers):
    """The kernel of a step of a batch with bags of `pooling` lookups in each table."""
    model = embfuse.Model([{"rows": rows, "dim": dim, "rule": rule}] * tables,
                          [{"table": t} for t in range(tables)], threads=threads)
    for hyper, value in hypers.items():
        model.set(hyper, value)
    offsets = numpy.arange(tables * bags + 1, dtype=numpy.int64) * pooling
    return model.step_kernel(embfuse.new("batch", bags=bags, lookups=int(offsets[-1]), ids=offsets.ctypes.data,
                                         offsets=offsets.ctypes.data, id_type=embfuse.constant.INT64, trusted=1))


def whole(text):
    return int(float(text.rstrip("kM")) * {"k": 1000, "M": 10**6}.get(text[-1], 1))


def times_of(path):
    """{workload: {kernel: median}} and {workload: lookups} of a sweep."""
    times, lookups = defaultdict(lambda: defaultdict(list)), {}
    with open(path, encoding="utf-8") as file:
        for row in json.load(file)["benchmarks"]:
            if row["run_type"] == "iteration" and not row.get("error_occurred"):
                workload, _, kernel = row["name"].split("/")[:3]
                times[workload][kernel].append(row["real_time"])
                lookups[workload] = int(row["lookups"])
    return {w: {k: statistics.median(t) for k, t in of.items()} for w, of in times.items()}, lookups


def test_auto_is_near_the_fastest_on_every_recorded_sweep(_):
    assert SWEEPS, "no recorded sweep"
    for path in SWEEPS:
        times, lookups = times_of(path)
        shares, other = {}, 0
        for workload, of in times.items():
            dim, pooling, rows, tables, threads = map(whole, re.match(
                r"d(\d+)-L(\d+)-a[\d.]+-r([\d.]+[kM]?)-T(\d+)-t(\d+)$", workload).groups())
            kernel = chosen(rows, dim, tables, lookups[workload] // (pooling * tables), pooling, threads)
            other += kernel != "cpu_fused"
            shares[workload] = min(of.values()) / of[kernel]
        worst = min(shares, key=shares.get)
        below = sum(s < NEAR for s in shares.values())
        print(f"# {os.path.dirname(path)}: {len(shares)} points, {other} not cpu_fused; worst {worst}; {below} below {NEAR}")
        assert shares[worst] >= LEAST and below <= MOST_BELOW * len(shares), (path, worst, shares[worst], below)


def test_the_cell_of_cpu_dense_has_its_borders(_):
    inside = dict(rows=100_000, dim=32, tables=1, bags=1 << 18, pooling=4, threads=1)
    assert chosen(**inside) == "cpu_dense"
    for change in (dict(threads=2), dict(pooling=5), dict(dim=8), dict(dim=128), dict(rows=1000), dict(rows=10**6),
                   dict(bags=1000), dict(rule="adam"), dict(weight_decay=0.1)):
        assert chosen(**{**inside, **change}) == "cpu_fused", change


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "auto"))
