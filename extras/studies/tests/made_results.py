# SPDX-License-Identifier: MIT
"""Made-up results, for tests of the studies."""
import importlib.util

import tap
from spoiled import save


def need_matplotlib():
    if not importlib.util.find_spec("matplotlib"):
        raise tap.Skip("no matplotlib in this Python")


def series(workload, kernel, ns=10.0, rule="rowwise_adagrad", operation="lazy", mode="cold", mark="f", place="host",
           **counters):
    """Five samples of a kernel, which differ by a thousandth; ns may be a list of samples."""
    known = {"lookups": 1000, "distinct": 500, "rows": 10000, "dim": 64, "threads": 2, "alpha": 0,
             "persistent_mib": 10, "compulsory_mib": 4} | counters
    samples = ns if isinstance(ns, (list, tuple)) else [ns * (1 + i / 1000) for i in range(5)]
    label = (f"workload={workload} rule={rule} kernel={kernel} mode={mode} place={place} operation={operation} "
             f"check=exact fingerprint={mark} placement=same")
    return [known | {"name": f"{workload}/{kernel}", "run_type": "iteration", "time_unit": "ms", "ns_per_lookup": t,
                     "real_time": t * known["lookups"] / 1e6, "label": label} for t in samples]


TRAITS = {"cpu_atomic": "none", "cpu_hash": "none", "cpu_dense": "deterministic,dense_gradient,dense_step"}


def made_up(folder, name, *rows, **context):
    """A result with these series; the path of its file."""
    rows = [r for own in rows for r in own]
    kernels = dict.fromkeys(r["label"].split("kernel=")[1].split()[0] for r in rows)
    known = {"emb_schema": "1", "emb_cpu": "A CPU", "num_cpus": 2, "emb_commit": "c0ffee", "emb_date": "2024-01-02"}
    known |= {f"emb_kernel_{k}": f"cpu | host | {TRAITS.get(k, 'deterministic')} | {k} | Idea." for k in kernels}
    return save({"context": known | context, "benchmarks": rows}, folder, f"{name}.json.gz")
