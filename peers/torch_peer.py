#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures PyTorch on batches from `embfuse gen`: the backward pass of embedding_bag and the step of the
optimizer, timed by the suite's rules. merge.py puts the result beside that of the kernels.

    for b in 0 1 2; do build/embfuse gen datasets/gpu.spec --workload zipf/alpha:1.05 \\
        --batch-number $b --initial-tables --out /tmp/peer$b; done
    python3 peers/torch_peer.py /tmp/peer0 /tmp/peer1 /tmp/peer2 --out build/results/torch.json
    python3 reports/merge.py build/results/gpu/bench.json build/results/torch.json --out both.json

torch_sparse is sparse=True with SGD, Adagrad and SparseAdam. torch_dense is sparse=False with SGD (with
and without momentum), Adagrad and Adam. Dense momentum and Adam are another operation: they move
untouched rows. The forward pass is not timed. Before timing, one step of each is compared with `embfuse
step`.
"""
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reports"))
import program
from compact import Compact
from program import Arguments, ResultError, fact, write_whole
from torch_batch import (HYPER, MEASURED_STEP, STATES, Batch, learn_rules, libraries, reason,
                         tables_for)

KERNELS = {"torch_sparse": (True, "none", "PyTorch sparse", "sparse=True: a gradient row per lookup, "
                            "coalesced by the optimizer, which updates touched rows."),
           "torch_dense": (False, "dense_gradient,dense_step", "PyTorch dense", "sparse=False: a "
                           "gradient of all rows, and an optimizer that sweeps them all.")}
PLACES = {"cuda": "device", "cpu": "host"}
STATE_NAMES = {"sgd": (), "momentum": ("momentum_buffer",), "adagrad": ("sum",),
               "adam": ("exp_avg", "exp_avg_sq")}


def optimizer_for(torch, params, rule, sparse):
    h = HYPER[rule]
    # Fused optimizers are the fastest for dense gradients; they refuse sparse ones.
    how = {} if sparse else {"fused": True}
    if rule in ("sgd", "momentum"):
        return torch.optim.SGD(params, lr=h["lr"], momentum=h.get("momentum", 0), **how)
    if rule == "adagrad":
        fused = {} if params[0].is_cuda else how
        return torch.optim.Adagrad(params, lr=h["lr"], eps=h["eps"], **fused)
    kind = torch.optim.SparseAdam if sparse else torch.optim.Adam
    return kind(params, lr=h["lr"], eps=h["eps"], betas=(h["beta1"], h["beta2"]), **how)


class InPlace:
    """Tables that a step changes in place. restore() puts back touched rows only: untouched rows stay
    where a dense optimizer moves them."""

    moves_idle, per_lookup, note, kernel = False, False, "", "cpu_sort"
    eps_of = staticmethod(lambda hyper: hyper)

    def share(self, torch, weights, states):
        """states: [array][table]."""
        self.torch, self.weights, self.arrays = torch, weights, [weights, *states]
        self.chosen = {}

    def touched(self, batch):
        if batch.prefix not in self.chosen:
            tables, rows = batch.rows
            self.chosen[batch.prefix] = [
                self.torch.from_numpy(rows[tables == t].copy()).to(w.device)
                for t, w in enumerate(self.weights)]
        return self.chosen[batch.prefix]

    def save(self, batch):
        rows = self.touched(batch)
        return [[a[t].index_select(0, r) for t, r in enumerate(rows)] for a in self.arrays]

    def restore(self, batch, saved):
        rows = self.touched(batch)
        for array, own in zip(self.arrays, saved):
            for t, r in enumerate(rows):
                array[t].index_copy_(0, r, own[t])
        self.rewind()

    def rewind(self):
        """Resets what a step changes besides the tables."""


class Peer(InPlace):
    """PyTorch with one rule, dense or sparse."""

    def __init__(self, torch, name, rule, weights, states):
        self.sparse = KERNELS[name][0]
        if rule not in STATE_NAMES:
            raise ResultError("PyTorch has no such optimizer")
        if rule == "momentum" and self.sparse:
            raise ResultError("PyTorch has no such optimizer: SGD with sparse gradients and momentum "
                              "moves all rows that it has ever seen")
        self.share(torch, weights, states)
        self.params = [torch.nn.Parameter(w) for w in weights]
        self.optimizer = optimizer_for(torch, self.params, rule, self.sparse)
        self.names, self.moves_idle = STATE_NAMES[rule], False
        if rule in ("momentum", "adam") and not self.sparse:
            self.moves_idle, self.kernel = True, "cpu_dense"
        if rule == "sgd" and self.sparse:
            self.per_lookup = True
            self.note = "sparse SGD applies the rule per lookup, not to the sum, and rounds differently"
        if rule == "adam" and self.sparse:
            self.note = "SparseAdam adds eps before the bias correction; compared with an eps to match"
            self.eps_of = lambda h: dict(h, eps=h["eps"] / (1 - h["beta2"]**MEASURED_STEP)**0.5)
        self.rewind()

    def rewind(self):
        last = MEASURED_STEP - 1
        for t, p in enumerate(self.params):
            p.grad = None
            own = self.optimizer.state[p]
            for array, name in zip(self.arrays[1:], self.names):
                own[name] = array[t]
            if "exp_avg" in self.names and self.sparse:
                own["step"] = last  # SparseAdam counts in an int
            elif self.names:
                fused = self.optimizer.param_groups[0].get("fused")
                own["step"] = self.torch.tensor(float(last), device=p.device if fused else "cpu")

    def save(self, batch):
        with self.torch.no_grad():
            return super().save(batch)

    def forward(self, batch):
        f, outputs = self.torch.nn.functional, []
        for p in batch.parts:
            weight, how = self.params[p.table], {"padding_idx": p.padding, "sparse": self.sparse}
            if p.pooling == "none":
                outputs.append(f.embedding(p.ids, weight, **how))
            else:
                outputs.append(f.embedding_bag(p.ids, weight, p.offsets, mode=p.pooling,
                                               per_sample_weights=p.weights, **how))
        return outputs

    def step(self, batch, outputs):
        """The timed part."""
        self.torch.autograd.backward(outputs, [p.upstream for p in batch.parts])
        self.optimizer.step()

    def transient_bytes(self):
        return 0 if self.sparse else 4 * sum(w.numel() for w in self.weights)


class Clock:
    """Times a call by events on a device, by the monotonic clock on the host."""

    def __init__(self, torch, device):
        self.torch, self.cuda = torch, device == "cuda"
        cache = 64 << 20
        if self.cuda:
            cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", cache)
        self.from_ = torch.ones(max(256 << 20, 4 * cache) // 4, device=device)
        self.to = torch.ones_like(self.from_)

    def flush(self):
        self.to.add_(1)

    def seconds(self, call):
        if not self.cuda:
            begin = time.perf_counter()
            call()
            return time.perf_counter() - begin
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    def copy_gbs(self):
        best = min(self.seconds(lambda: self.to.copy_(self.from_)) for _ in range(3))
        return 2e-9 * 4 * self.from_.numel() / best


def check(peer, batch, compact, embfuse):
    saved = peer.save(batch)
    try:
        peer.step(batch, peer.forward(batch))
        compact.compare(peer, embfuse)
    finally:
        peer.restore(batch, saved)


def samples(peer, batches, clock, mode, reps):
    """Yields (batch, seconds, copy GB/s) for each repetition."""
    for r in range(reps):
        batch = batches[r % len(batches) if mode == "cold" else 0]
        copy, saved = clock.copy_gbs(), peer.save(batch)
        if mode == "warm":
            peer.step(batch, peer.forward(batch))
            peer.restore(batch, saved)
        outputs = peer.forward(batch)
        if mode == "cold":
            clock.flush()
        yield batch, clock.seconds(lambda: peer.step(batch, outputs)), copy
        del outputs
        peer.restore(batch, saved)


def row(peer, name, rule, mode, repetition, args, sample, peak, persistent):
    batch, seconds, copy = sample
    own = batch.row(rule, name, mode, PLACES[args.device], peer.moves_idle, repetition, seconds, persistent)
    more = {"repetitions": args.reps, "copy_gbs": copy, "share_copy": own["traffic_gbs"] / copy}
    return own | more | ({"peak_mib": peak / 2.0**20} if peak else {})


def context(torch, args):
    out = {"emb_schema": "1", "emb_torch": torch.__version__, "emb_threads": torch.get_num_threads(),
           "emb_date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
           "emb_cpu": fact("/proc/cpuinfo", "model name")}
    if args.device == "cuda":
        out["emb_gpu"] = torch.cuda.get_device_name(0)
        out["emb_gpu_driver"] = fact("/proc/driver/nvidia/version", "NVRM version")
    for name, (_, traits, label, idea) in KERNELS.items():
        out[f"emb_kernel_{name}"] = f"torch | {PLACES[args.device]} | {traits} | {label} | {idea}"
    return out


def measure_rule(torch, np, batches, rule, args, out):
    clock, batch, cuda = Clock(torch, args.device), batches[0], args.device == "cuda"
    weights, states = tables_for(torch, np, batch, rule, args.device)
    persistent = sum(4 * w.numel() for w in weights) * (1 + STATES[rule])
    with tempfile.TemporaryDirectory() as folder:
        compact = Compact(np, batch, rule, weights, states, folder)
        for name in KERNELS:  # sparse first: dense steps move untouched rows
            try:
                peer = Peer(torch, name, rule, weights, states)
                check(peer, batch, compact, args.embfuse)
                if peer.note:
                    print(f"{name}, {rule}: {peer.note}")
                if cuda:
                    torch.cuda.reset_peak_memory_stats()
                for mode in args.modes.split():
                    for r, s in enumerate(samples(peer, batches, clock, mode, args.reps)):
                        peak = torch.cuda.max_memory_allocated() if cuda else 0
                        out["benchmarks"].append(
                            row(peer, name, rule, mode, r, args, s, peak, persistent))
            except (ResultError, torch.cuda.OutOfMemoryError) as e:
                keys = sum(k.startswith("emb_not_run") for k in out["context"])
                why = f"{batch.workload} | {name} | {reason(rule, e)}"
                out["context"][f"emb_not_run_{keys}"] = why
                print(f"not run: {why}", file=sys.stderr)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("prefixes", metavar="PREFIX", nargs="+", help="batches of one workload")
    parser.add_argument("--out", required=True, metavar="RESULT.json")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rules", default="sgd momentum adagrad adam")
    parser.add_argument("--modes", default="cold warm")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--embfuse", default="build/embfuse")
    args = parser.parse_args()
    torch, np = libraries()
    learn_rules(args.embfuse)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ResultError("PyTorch sees no CUDA device; --device cpu runs it on the host")
    batches = [Batch(p, torch, np, args.device) for p in args.prefixes]
    if len({b.workload for b in batches}) > 1:
        raise ResultError("the batches are of several workloads")
    out = {"context": context(torch, args), "benchmarks": []}
    for rule in args.rules.split():
        if rule not in STATES:
            raise ResultError(f"unknown rule '{rule}': one of {' '.join(STATES)}")
        measure_rule(torch, np, batches, rule, args, out)
    if not out["benchmarks"]:
        raise ResultError("nothing could be measured")
    write_whole(args.out, json.dumps(out, indent=1) + "\n")
    print(args.out)


if __name__ == "__main__":
    program.run(main)
