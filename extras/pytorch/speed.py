#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Time of the module beside torch.nn.EmbeddingBag, and of its step beside the C call; both sides take turns.

    speed.py [--threads 1 2] [--batches 256 4096 65536] [--rows 1000000] [--dim 64] [--length 20]

forward: a lookup that keeps what backward() needs. step: backward() from the gradient of the output, whose end is the
fused step. C call: embfuse_step() on the same ids through ctypes. empty: backward() of a clone, which is what PyTorch
takes for any pass; more: what the step takes beyond both. Medians of as many rounds as fit into --seconds.
"""
import argparse
import os
import statistics
import sys
import time

import torch

import embfuse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "library", "examples"))
import libembfuse


def sides(args, threads, batch):
    """{name: function that takes one sample and returns its seconds}"""
    generator = torch.Generator().manual_seed(1)
    ids = (torch.rand(batch * args.length, generator=generator)**3 * args.rows).long()
    offsets = torch.arange(0, len(ids), args.length)
    start = torch.randn(args.rows, args.dim, generator=generator)
    hyper = {"optimizer": "rowwise_adagrad", "lr": 0.01, "mode": "sum"}
    ours = embfuse.EmbeddingBag(args.rows, args.dim, _weight=start.clone(), **hyper)
    theirs = torch.nn.EmbeddingBag(args.rows, args.dim, mode="sum", sparse=True, _weight=start)
    state, weight = torch.zeros(args.rows, 1), start.clone()
    model = libembfuse.Model([{"rows": args.rows, "dim": args.dim, "rule": "rowwise_adagrad"}], [{"table": 0}], threads=threads)
    for number, array in enumerate((weight, state)):
        model.bind(0, number, array)
    whole = torch.cat([offsets, torch.tensor([len(ids)])])
    called = model.batch(ids, whole)
    grad = torch.randn(batch, args.dim, generator=generator)

    def timed(function, *given):
        begin = time.perf_counter()
        result = function(*given)
        return time.perf_counter() - begin, result
    leaf = torch.zeros(batch, args.dim, requires_grad=True)
    return {"forward, torch": lambda: timed(theirs, ids, offsets)[0], "forward": lambda: timed(ours, ids, offsets)[0],
            "step": lambda: timed(ours(ids, offsets).backward, grad)[0], "step, C call": lambda: timed(model.step, called, grad)[0],
            "empty": lambda: timed(leaf.clone().backward, grad)[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count()])
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 1024, 4096, 16384, 65536])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    print(f"{args.rows} rows of {args.dim}, {args.length} lookups per bag, rowwise_adagrad; torch {torch.__version__}; medians in us\n")
    print("| threads | batch | forward, torch | forward | ratio | step, C call | empty | step | more |\n|" + " ---: |" * 9)
    for threads in args.threads:
        torch.set_num_threads(threads)
        for batch in args.batches:
            functions = sides(args, threads, batch)
            times, end = {name: [] for name in functions}, time.perf_counter() + args.seconds
            for function in functions.values():
                function()
            while time.perf_counter() < end or len(times["step"]) < 5:
                for name, function in functions.items():
                    times[name].append(function())
            plain, forward, step, call, empty = (1e6 * statistics.median(times[n]) for n in functions)
            print(f"| {threads} | {batch} | {plain:.0f} | {forward:.0f} | {forward / plain:.2f} | {call:.0f} | {empty:.0f} | "
                  f"{step:.0f} | {step - call - empty:+.0f} |", flush=True)


if __name__ == "__main__":
    main()
