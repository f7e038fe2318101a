# SPDX-License-Identifier: MIT
"""Checks what must be equal before results stand side by side: the machine, and the work behind a name. All code that
compares or joins results calls this module.

A name is for display. Samples of one workload have the same WORK and as many threads, and in each repetition the same
batch: batches of a ring may differ in lookups.
"""
import re

from program import ResultError

WORK = ("tables", "rows", "dim")  # of all samples of a workload
BATCH = ("lookups", "fingerprint")
TEXT = "pooling|weighted|id_type|weight_type|momentum_type|grad_type|rounding"  # of emb_workload_NAME
UNKNOWN = (None, "", "?", "unavailable")


def cache_text(cache):
    """'48K L1 data'"""
    kind = str(cache["type"]).lower()
    return f"{cache['size'] // 1024}K L{cache['level']}" + f" {kind}" * (kind != "unified")


def caches_text(found):
    try:
        return ", ".join(map(cache_text, found or []))
    except (KeyError, TypeError):  # not as Google Benchmark writes them
        return str(found)


def of_gpu(context):
    """Whether a result is of a GPU alone. Then the GPU, its driver and CUDA are the machine, not the CPU beside it."""
    return bool(context.get("emb_gpu")) and context.get("emb_var_PLACE") == "device"


def gpu(context):
    """{name: fact} of the GPU of a result."""
    version = re.search(r"\d+(\.\d+)+", str(context.get("emb_gpu_driver")))
    return {"gpu": context.get("emb_gpu"), "gpu_driver": version and version[0],
            "cuda": context.get("emb_gpu_cuda_runtime")}


def gpu_text(context):
    """'NVIDIA H200, driver 580.159.04, CUDA 13.0'"""
    names = {"gpu": "", "gpu_driver": "driver ", "cuda": "CUDA "}
    return ", ".join(f"{names[k]}{v}" for k, v in gpu(context).items() if v not in UNKNOWN)


def machine(context):
    """{name: fact} of what tells machines apart, as far as a result has it. Marketing names do not: three generations
    of a CPU have one. The stepping is no part of it. Results without emb_cpu_model may have emb_record_machine."""
    if of_gpu(context):
        return {k: str(v) for k, v in gpu(context).items() if v not in UNKNOWN}
    recorded = [*str(context.get("emb_record_machine") or "").split(" | "), "", "", "", ""]
    facts = {"cpu": context.get("emb_cpu") or recorded[0],
             "cpu_model": context.get("emb_cpu_model") or recorded[1].partition(", stepping")[0],
             "caches": caches_text(context.get("caches")) or recorded[3],
             "cpus": context.get("num_cpus"), **gpu(context), "threads": context.get("emb_threads")}
    return {k: str(v) for k, v in facts.items() if v not in UNKNOWN}


def other_machine(context, other, threads=False):
    """The name of the first fact that both have and that differs; None if there is none. threads: those of the runs
    count, too."""
    own, its = machine(context), machine(other)
    return next((k for k in own if k in its and own[k] != its[k] and (threads or k != "threads")), None)


def same_machine(first, other, why="results of several machines are not merged", threads=False):
    key = other_machine(first.context, other.context, threads)
    if key:
        own, its = (machine(r.context)[key] for r in (first, other))
        raise ResultError(f"{other.path}: {key} is '{its}', in {first.path} it is '{own}': {why}")


# --- the work
def values(samples, field):
    """The values of a field in the samples, as far as they are recorded."""
    return {s.fingerprint if field == "fingerprint" else s.get(field) for s in samples} - {None}


def listed(found):
    return " or ".join(f"{v:.10g}" if isinstance(v, float) else v for v in sorted(found))


def other_work(one, other, fields=(*WORK, *BATCH)):
    """'dim is 8, and 64': the first field that tells two lists of samples apart; '' if none does. The ring of one may
    be a part of the other's."""
    for field in fields:
        own, its = values(one, field), values(other, field)
        if not (own <= its or its <= own):
            return f"{field} is {listed(own)}, and {listed(its)}"
    return ""


def other_text(first, other, workload):
    """The first difference between the texts of a workload in two results; '' if there is none."""
    own, its = (dict(re.findall(rf" ({TEXT}) (\w+)", str(r.context.get(f"emb_workload_{workload}"))))
                for r in (first, other))
    for key in own | its if own and its else ():
        if own.get(key) != its.get(key):
            return f"{key} is {own.get(key, 'the preset')}, and {its.get(key, 'the preset')}"
    return ""


def same_work(first, other):
    """Refuses two results whose workloads of one name are different work."""
    both = {}
    for r in (first, other):
        for s in r.series:
            both.setdefault(s.workload, {}).setdefault(r.path, []).extend(s.samples)
    for workload, samples in both.items():
        differs = len(samples) > 1 and (other_work(*samples.values(), (*WORK, "threads", *BATCH)) or
                                        other_text(first, other, workload))
        if differs:
            raise ResultError(f"{other.path}: {workload} is other work than in {first.path}: {differs}")


def one_work(path, series):
    """Refuses samples of one name that are of several workloads."""
    first, batches = {}, {}
    for s in series:
        for x in s.samples:
            number = x.get("repetition_index")
            known = first.setdefault(s.workload, x)
            batch = x if number is None else batches.setdefault((s.workload, s.mode, number), x)
            differs = other_work([known], [x], (*WORK, "threads")) or other_work([batch], [x], BATCH)
            if differs:
                raise ResultError(f"{path}: {s.workload}: {differs}, in samples of this one name: give the workloads "
                                  "different names, and measure again")
