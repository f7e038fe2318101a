#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the medians of a result for tools that keep a history, one row for each WORKLOAD/RULE/KERNEL/MODE: as Google
Benchmark's JSON, and in Bencher's metric format (NAME.bencher.json), which has the memory, too.

github-action-benchmark and Bencher make a series of every row, so a result with all its samples is not for them.
The names have no number of repetitions, which would begin a new series. real_time is the median of the samples in us,
iterations their number; cpu_time is the library's, with what surrounds a sample. A kernel that failed has no row and
is named on stderr. The file is no embfuse result: reports refuse it, since medians are no samples.

Exit status: 0 fine, 1 usage, unreadable, or nothing was measured.
"""
import json
import os
import statistics
import sys

import program
from program import Arguments, ResultError, write_whole
from results import MS_PER_UNIT, load, quartiles
from verdict import add_precision


def median_row(series):
    """One row of Google Benchmark's JSON."""
    cpu = [s.get("cpu_time") * MS_PER_UNIT[s.counters["time_unit"]] for s in series.samples if s.get("cpu_time")]
    name = "/".join(series.key)
    return {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1, "repetition_index": 0,
            "threads": int(series.median("threads") or 1), "iterations": len(series.samples),
            "real_time": 1e3 * statistics.median(series.times), "cpu_time": 1e3 * statistics.median(cpu or series.times),
            "time_unit": "us"}


def medians(result):
    """The whole file as a dictionary."""
    rows = [median_row(s) for s in result.series if not s.failed]
    if not rows:
        raise ResultError(f"{result.path}: no kernel has a time, so there are no medians")
    context = {k: v for k, v in result.context.items() if k != "emb_schema"}
    context.setdefault("caches", [])  # Bencher wants it
    return {"context": context | {"emb_medians_of": os.path.basename(result.path)}, "benchmarks": rows}


def metrics(result):
    """Bencher's metric format: latency in ns with its quartiles, and bytes of weights and states, and of scratch."""
    count = lambda series, key: {"value": round(series.median(key) * 2**20)}
    latency = lambda q: dict(zip(("lower_value", "value", "upper_value"), (1e6 * ms for ms in q)))
    return {"/".join(s.key): {"latency": latency(quartiles(s.times)), "persistent-bytes": count(s, "persistent_mib"),
                              "scratch-bytes": count(s, "scratch_mib")} for s in result.series if not s.failed}


def main():
    parser = Arguments(__doc__)
    parser.add_result(mode=False)
    parser.add_argument("out", metavar="MEDIANS.json")
    add_precision(parser)
    args = parser.parse_args()
    result = load(args.result, args.precision)
    write_whole(args.out, json.dumps(medians(result), indent=1, allow_nan=False) + "\n")
    write_whole(os.path.splitext(args.out)[0] + ".bencher.json", json.dumps(metrics(result), indent=1, allow_nan=False) + "\n")
    for line in [*result.doubts(), *result.left_out()]:
        print(f"{args.result}: {line}", file=sys.stderr)
    print(args.out)
    return 0


if __name__ == "__main__":
    program.run(main)
