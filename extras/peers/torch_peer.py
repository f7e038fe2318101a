#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures PyTorch on batches from `embfuse gen`, the backward pass of embedding_bag and the step of the
optimizer, and a fused step in Triton (triton_step.py), timed by the suite's rules. merge.py puts the result beside the kernels'
result.

    for b in 0 1 2; do build/embfuse gen datasets/gpu.spec --workload zipf/alpha:1.05 \\
        --batch-number $b --initial-tables --out /tmp/peer$b; done
    python3 extras/peers/torch_peer.py /tmp/peer0 /tmp/peer1 /tmp/peer2 --out build/results/torch.json
    python3 reports/merge.py build/results/gpu/bench.json build/results/torch.json --out both.json

The forward pass is not timed. Before timing, one step of each is compared with `embfuse step`.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from program import Arguments, ResultError, cpu_model, fact, write_whole
from results import add_not_run
from systems import TRITON, described
from torch_batch import STATES, libraries, reason
from worker import Worker

KERNELS = ("triton", "torch_sparse", "torch_dense")  # dense steps move untouched rows, so they come last


def context(worker):
    out = {"emb_schema": "1", "emb_torch": worker.torch.__version__,
           "emb_threads": worker.torch.get_num_threads(),
           "emb_date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
           "emb_cpu": fact("/proc/cpuinfo", "model name"), "emb_cpu_model": cpu_model()}
    if worker.cuda:
        out["emb_gpu"] = worker.cuda.get_device_name(0)
        out["emb_gpu_driver"] = fact("/proc/driver/nvidia/version", "NVRM version")
    return out | described(KERNELS, worker.place) | TRITON


def copy_gbs(worker):
    """The speed of a copy, the best of three."""
    tensor = worker.flushed
    into = worker.torch.empty_like(tensor)
    return 2e-9 * 4 * tensor.numel() / min(worker.seconds(lambda: into.copy_(tensor)) for _ in range(3))


def samples(worker, name, args):
    """Yields the rows of a peer."""
    for mode in args.modes.split():
        for r in range(args.reps):
            copy = copy_gbs(worker)
            row = worker.sample(name, mode, r)
            yield row | {"repetitions": args.reps, "copy_gbs": copy, "share_copy": row["traffic_gbs"] / copy}


def measure_rule(worker, rule, args, out):
    if worker.open(args.prefixes, rule, "one set of tables")["weights"]:
        several = len(worker.shapes) > 1
        worker.weights([f"{args.prefixes[0]}.weight{f'.{t}' * several}.npy" for t in range(len(worker.shapes))])
    workload, *others = {b.workload for b in worker.batches}
    if others:
        raise ResultError("the batches are of several workloads")
    answer = worker.check(KERNELS)
    for name, peer in answer["peers"].items():
        if peer["note"]:
            print(f"{name}, {rule}: {peer['note']}")
        try:
            out["benchmarks"] += samples(worker, name, args)
        except RuntimeError as e:  # out of memory
            answer["refused"][name] = reason(rule, e)
    for name, why in answer["refused"].items():
        add_not_run(out["context"], [(workload, name, why)])
        print(f"not run: {workload} | {name} | {why}", file=sys.stderr)
    worker.close()


def main():
    parser = Arguments(__doc__)
    parser.add_argument("prefixes", metavar="PREFIX", nargs="+", help="batches of one workload")
    parser.add_argument("--out", required=True, metavar="RESULT.json")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rules", default="sgd momentum adagrad rowwise_adagrad adam")
    parser.add_argument("--modes", default="cold warm")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--embfuse", default="build/embfuse")
    args = parser.parse_args()
    torch = libraries()[0]
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ResultError("PyTorch sees no CUDA device; --device cpu runs it on the host")
    worker = Worker(torch.get_num_threads(), args.embfuse, args.device)
    out = {"context": context(worker), "benchmarks": []}
    for rule in args.rules.split():
        if rule not in STATES:
            raise ResultError(f"unknown rule '{rule}': one of {' '.join(STATES)}")
        measure_rule(worker, rule, args, out)
    if not out["benchmarks"]:
        raise ResultError("nothing could be measured")
    write_whole(args.out, json.dumps(out, indent=1) + "\n")
    print(args.out)


if __name__ == "__main__":
    program.run(main)
