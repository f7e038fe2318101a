#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/golden/results.json: a synthetic result in the driver's schema, for the tests of the
reports only. A toy cost model gives each kernel a plausible time; a fixed seed gives the noise, so
that the file is the same on every machine. Usage: make_results.py > results.json"""
import json
import math
import random
import sys

NOTE = "synthetic: for tests of the reports only"
LOOKUPS, BAGS, ROWS, DIM = 1048576, 51200, 4000000, 64
COPY_GBS, RMW_GBS, GATHER_GBS = 12.5, 5.2, 20.0
MIB = 1048576.0

# name -> (family | place | traits | label | idea)
KERNELS = {
    "cpu_dense": "cpu | host | deterministic,dense_gradient | dense gradient | "
                 "Clear a gradient of all rows, add every lookup into it, then sweep all rows.",
    "cpu_atomic": "cpu | host | none | atomic scatter | "
                  "Add every lookup into a shared gradient with atomics, update touched rows.",
    "cpu_owner": "cpu | host | deterministic | row owner | "
                 "Every thread reads all lookups and keeps those of the rows that it owns.",
    "cpu_sort": "cpu | host | deterministic | sort, reduce, update | "
                "Sort the lookups by row, reduce each run into memory, then update.",
    "cpu_hash": "cpu | host | none | hash, reduce, update | "
                "Find the run of a row with a hash table, reduce into memory, then update.",
    "cpu_fused": "cpu | host | deterministic | sort, fused | "
                 "Sort the lookups by row, then reduce and update a row in registers.",
    "cuda_fused": "fused | device | deterministic | GPU fused | Needs a device.",
}

# name -> (alpha or None, share of distinct rows, share of the hottest row)
WORKLOADS = {
    "zipf/alpha:0.6": (0.6, 0.81, 0.0004),
    "zipf/alpha:1.05": (1.05, 0.28, 0.061),
    "trace/hashed_bigrams": (None, 0.17, 0.034),
}


def stages(kernel, distinct, hottest):
    """Milliseconds of (index, zero, reduce, update) in the toy model; work in units of ns."""
    row = DIM * 4
    n, u = LOOKUPS * 1e-6, distinct * 1e-6
    return {
        "cpu_dense": (0, ROWS * row / 8e6, n * 60, ROWS * row * 3 / 10e6),
        "cpu_atomic": (n * 9, u * 18, n * (55 + 900 * hottest), u * 70),
        "cpu_owner": (n * 21, u * 15, n * 34, u * 70),
        "cpu_sort": (n * 38, 0, n * 24 + u * 30, u * 72),
        "cpu_hash": (n * 19 + u * 24, u * 15, n * 29, u * 75),
        "cpu_fused": (n * 38, 0, 0, n * 21 + u * 78),
    }[kernel]


def scratch_mib(kernel, distinct):
    gradient = distinct * DIM * 4 / MIB
    return {"cpu_dense": ROWS * DIM * 4 / MIB, "cpu_atomic": gradient + 16,
            "cpu_owner": gradient + 9, "cpu_sort": gradient + 24,
            "cpu_hash": gradient + 13, "cpu_fused": 24.0}[kernel]


def compulsory_bytes(distinct):
    return LOOKUPS * 8 + BAGS * 8 + BAGS * DIM * 4 + 2 * distinct * (DIM * 4 + 4)


def line_bytes(distinct):
    """Row states are so dense that every cache line of them is touched."""
    return compulsory_bytes(distinct) - 8 * distinct + 128 * (ROWS // 16)


def counters(kernel, workload, ms, split):
    """All counters of the driver for one repetition that took `ms`."""
    alpha, share, hottest = workload
    distinct = int(LOOKUPS * share)
    traffic = compulsory_bytes(distinct) / ms / 1e6
    persistent = ROWS * (DIM * 4 + 4) / MIB
    scratch = scratch_mib(kernel, distinct)
    scale = ms / sum(split)
    out = {"ns_per_lookup": ms * 1e6 / LOOKUPS, "lookups_per_s": LOOKUPS / ms * 1e3,
           "traffic_gbs": traffic, "copy_gbs": COPY_GBS, "rmw_gbs": RMW_GBS, "pingpong_ns": 92.0,
           "share_copy": traffic / COPY_GBS, "share_rmw": traffic / RMW_GBS}
    lines, gathered = line_bytes(distinct), LOOKUPS * DIM * 4
    roof = max(lines / RMW_GBS, gathered / GATHER_GBS) / 1e6
    out.update(gather_gbs=GATHER_GBS, line_mib=lines / MIB, gather_mib=gathered / MIB, roof_ms=roof,
               share_roof=roof / ms)
    out.update({f"{s}_ms": t * scale * 0.99
                for s, t in zip(("index", "zero", "reduce", "update"), split)})
    out.update(persistent_mib=persistent, scratch_mib=scratch, peak_mib=persistent + scratch + 21.0,
               compulsory_mib=compulsory_bytes(distinct) / MIB, rejected_samples=0, threads=2,
               lookups=LOOKUPS, distinct=distinct, hottest_share=hottest, in_bag_duplicates=hottest,
               bags=BAGS, empty_bags=0, longest_bag=20, tables=1, rows=ROWS, dim=DIM)
    weights = [math.exp(-0.5 * i) for i in range(17)]
    out.update({f"run_lookups_{i}": w / sum(weights) for i, w in enumerate(weights)})
    if alpha is not None:
        out["alpha"] = alpha
    return out


def row(kernel, name, workload, rule, mode, repetition, noise, rng):
    split = stages(kernel, int(LOOKUPS * workload[1]), workload[2])
    ms = sum(split) * (1.0 if mode == "cold" else 0.88) * math.exp(rng.gauss(0, noise))
    dense = kernel == "cpu_dense" and rule in ("adam", "momentum")
    label = {"workload": name, "rule": rule, "kernel": kernel, "mode": mode,
             "operation": "dense" if dense else "lazy", "check": "exact",
             "fingerprint": f"{sum(name.encode()) * 2654435761 + repetition % 2:016x}",
             "placement": "same" if repetition % 4 else "split"}
    out = {"name": f"{name}/{rule}/{kernel}/{mode}/manual_time", "run_type": "iteration",
           "repetitions": 5, "repetition_index": repetition, "visit": repetition, "threads": 1, "iterations": 3,
           "real_time": ms, "cpu_time": ms * 1.9, "time_unit": "ms"}
    out.update(counters(kernel, workload, ms, split))
    out["label"] = " ".join(f"{k}={v}" for k, v in label.items())
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in out.items()}


def context(workloads):
    out = {"date": "2024-01-01T00:00:00+00:00", "host_name": "synthetic", "num_cpus": 2,
           "mhz_per_cpu": 2500, "caches": [], "load_avg": [0.1, 0.1, 0.1],
           "library_build_type": "debug", "emb_schema": "1", "emb_note": NOTE,
           "emb_commit": "0000000", "emb_dirty": "0", "emb_compiler": "gcc 12.2.0",
           "emb_flags": "-O3", "emb_cpu": "Synthetic CPU", "emb_ram_gib": "8", "emb_thp": "always",
           "emb_threads": "2", "emb_kernel_os": "Linux 6.1", "emb_virtualised": "no",
           "emb_date": "2024-01-01", "emb_seed": "42", "emb_var_REPS": "5"}
    out.update({f"emb_workload_{name}": f"{ROWS} rows of {DIM}, {BAGS} bags"
                for name in workloads})
    out.update({f"emb_kernel_{k}": text for k, text in KERNELS.items()})
    out["emb_not_run_0"] = "* | cuda_fused | no CUDA device"
    return out


def result(rules=("rowwise_adagrad",), workloads=None, repetitions=5, noise=0.008, seed=42):
    """The whole file as a dictionary."""
    rng = random.Random(seed)
    workloads = workloads or WORKLOADS
    rows = [row(kernel, name, workload, rule, mode, r, noise, rng)
            for name, workload in workloads.items() for rule in rules
            for mode in ("cold", "warm") for kernel in list(KERNELS)[:6]
            for r in range(repetitions)]
    return {"context": context(workloads), "benchmarks": rows}


def dump(data):
    """JSON with one benchmark per line, so that a difference is a line."""
    rows = ",\n".join(json.dumps(r) for r in data["benchmarks"])
    return f'{{"context": {json.dumps(data["context"], indent=1)},\n"benchmarks": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    sys.stdout.write(dump(result()))
