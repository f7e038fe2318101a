#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on the batches that `embfuse gen` wrote: the backward pass of embedding_bag and the step of
the optimizer, timed by the suite's rules and written as a result that merge.py puts beside kernels.

    for b in 0 1 2; do build/embfuse gen datasets/gpu.spec --workload zipf/alpha:1.05 \\
        --batch-number $b --initial-tables --out /tmp/peer$b; done
    python3 reports/torch_peer.py /tmp/peer0 /tmp/peer1 /tmp/peer2 --out build/results/torch.json
    python3 reports/merge.py build/results/gpu/bench.json build/results/torch.json --out both.json

torch_sparse is sparse=True with SGD, Adagrad and SparseAdam; torch_dense is sparse=False with SGD,
Adagrad and Adam, which for Adam is another operation: it moves rows that nobody looked up. The forward
pass is not timed. Every result is compared with that of `embfuse step` before it is timed.
"""
import json
import sys
import tempfile
import time

from results import Arguments, ResultError
from torch_batch import (HYPER, MEASURED_STEP, STATES, Batch, agrees, expected, libraries,
                         tables_for)

KERNELS = {"torch_sparse": (True, "none", "PyTorch sparse", "sparse=True: a gradient row per lookup, "
                            "coalesced by the optimizer, which updates touched rows."),
           "torch_dense": (False, "dense_gradient,dense_step", "PyTorch dense", "sparse=False: a "
                           "gradient of all rows, and an optimizer that sweeps them all.")}
STATE_NAMES = {"sgd": (), "adagrad": ("sum",), "adam": ("exp_avg", "exp_avg_sq")}


def optimizer_for(torch, params, rule, sparse, **how):
    h = HYPER[rule]
    if rule == "sgd":
        return torch.optim.SGD(params, lr=h["lr"], **how)
    if rule == "adagrad":
        return torch.optim.Adagrad(params, lr=h["lr"], eps=h["eps"], **how)
    kind = torch.optim.SparseAdam if sparse else torch.optim.Adam
    return kind(params, lr=h["lr"], eps=h["eps"], betas=(h["beta1"], h["beta2"]), **how)


class Peer:
    """Tables and optimizer of one rule, dense or sparse."""

    def __init__(self, torch, rule, sparse, weights, states):
        self.torch, self.sparse = torch, sparse
        self.initial = weights, states
        self.params = [torch.nn.Parameter(w.clone()) for w in weights]
        self.optimizer = optimizer_for(torch, self.params, rule, sparse)
        self.names = STATE_NAMES[rule]
        self.restore()

    def restore(self):
        weights, states = self.initial
        for t, p in enumerate(self.params):
            p.data.copy_(weights[t])
            p.grad = None
            own = self.optimizer.state[p]
            for k, name in enumerate(self.names):
                if name in own:
                    own[name].copy_(states[k][t])
                else:
                    own[name] = states[k][t].clone()
            if self.names:
                last = MEASURED_STEP - 1
                counts = self.sparse and len(self.names) == 2  # SparseAdam counts in an int
                own["step"] = last if counts else self.torch.tensor(float(last))

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
        """What is timed."""
        self.torch.autograd.backward(outputs, [p.upstream for p in batch.parts])
        self.optimizer.step()


class Clock:
    """Seconds of a call: events on a device, the monotonic clock on the host."""

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


def check(peer, batch, want):
    np = libraries()[1]
    peer.restore()
    peer.step(batch, peer.forward(batch))
    for t, p in enumerate(peer.params):
        hits = np.zeros(len(want[t]))
        own = batch.rows[0] == t
        hits[batch.rows[1][own]] = batch.hits[own]
        if not agrees(p.data.cpu().numpy(), want[t], peer.initial[0][t].cpu().numpy(), hits):
            raise ResultError(f"table {t}: rows differ from those of embfuse step")
    peer.restore()


def samples(peer, batches, clock, mode, reps):
    """(batch, seconds, copy GB/s) of every repetition."""
    for r in range(reps):
        batch = batches[r % len(batches) if mode == "cold" else 0]
        copy = clock.copy_gbs()
        if mode == "warm":
            peer.step(batch, peer.forward(batch))
            peer.restore()
        outputs = peer.forward(batch)
        if mode == "cold":
            clock.flush()
        yield batch, clock.seconds(lambda: peer.step(batch, outputs)), copy
        del outputs
        peer.restore()


def row(name, rule, mode, repetition, args, sample, peak, persistent):
    batch, seconds, copy = sample
    gbs = 1e-9 * batch.compulsory_bytes(rule) / seconds
    operation = "dense" if name == "torch_dense" and rule == "adam" else "lazy"
    place = "device" if args.device == "cuda" else "host"
    words = {"workload": batch.workload, "rule": rule, "kernel": name, "mode": mode, "place": place,
             "operation": operation, "check": "bound", "fingerprint": batch.fingerprint,
             "placement": "unknown"}
    mib = 2.0**20
    return {"name": f"{batch.workload}/{rule}/{name}/{mode}", "run_type": "iteration",
            "repetitions": args.reps, "repetition_index": repetition, "iterations": 1,
            "real_time": 1e3 * seconds, "cpu_time": 1e3 * seconds, "time_unit": "ms",
            "label": " ".join(f"{k}={v}" for k, v in words.items()),
            "ns_per_lookup": 1e9 * seconds / batch.lookups,
            "lookups_per_s": batch.lookups / seconds, "lookups": batch.lookups,
            "distinct": batch.rows.shape[1], "hottest_share": int(batch.hits.max()) / batch.lookups,
            "traffic_gbs": gbs, "copy_gbs": copy, "share_copy": gbs / copy,
            "compulsory_mib": batch.compulsory_bytes(rule) / mib, "persistent_mib": persistent / mib,
            **({"peak_mib": peak / mib} if peak else {})}


def first_line(path, key):
    try:
        with open(path, encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "")
    except OSError:
        return ""


def context(torch, args):
    place = "device" if args.device == "cuda" else "host"
    out = {"emb_schema": "1", "emb_torch": torch.__version__, "emb_threads": torch.get_num_threads(),
           "emb_date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
           "emb_cpu": first_line("/proc/cpuinfo", "model name")}
    if args.device == "cuda":
        out["emb_gpu"] = torch.cuda.get_device_name(0)
        out["emb_gpu_driver"] = first_line("/proc/driver/nvidia/version", "NVRM version")
    for name, (_, traits, label, idea) in KERNELS.items():
        out[f"emb_kernel_{name}"] = f"torch | {place} | {traits} | {label} | {idea}"
    return out


def measure(torch, np, batches, args, out):
    clock = Clock(torch, args.device)
    for rule in args.rules.split():
        for name, (sparse, *_) in KERNELS.items():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    weights, states = tables_for(torch, np, batches[0], rule, folder, args.device)
                    persistent = sum(4 * w.numel() for w in weights) * (1 + STATES[rule])
                    peer = Peer(torch, rule, sparse, weights, states)
                    want, note = expected(args.embfuse, batches[0], rule, sparse, folder,
                                          len(weights))
                    check(peer, batches[0], want)
                    if note:
                        print(f"{name}, {rule}: {note}")
                    if args.device == "cuda":
                        torch.cuda.reset_peak_memory_stats()
                    for mode in args.modes.split():
                        for r, s in enumerate(samples(peer, batches, clock, mode, args.reps)):
                            peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
                            out["benchmarks"].append(
                                row(name, rule, mode, r, args, s, peak, persistent))
                except (ResultError, torch.cuda.OutOfMemoryError) as e:
                    wrong = "WRONG RESULT: " if "differ" in str(e) else ""
                    keys = sum(k.startswith("emb_not_run") for k in out["context"])
                    reason = f"{batches[0].workload} | {name} | {wrong}{rule}: {e}".replace("\n", " ")
                    out["context"][f"emb_not_run_{keys}"] = reason
                    print(f"not run: {reason}", file=sys.stderr)


def main():
    parser = Arguments(prog="torch_peer.py", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("prefixes", metavar="PREFIX", nargs="+", help="batches of one workload")
    parser.add_argument("--out", required=True, metavar="RESULT.json")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rules", default="sgd adagrad adam")
    parser.add_argument("--modes", default="cold warm")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--embfuse", default="build/embfuse")
    args = parser.parse_args()
    torch, np = libraries()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ResultError("PyTorch sees no CUDA device; --device cpu runs it on the host")
    batches = [Batch(p, torch, np, args.device) for p in args.prefixes]
    if len({b.workload for b in batches}) > 1:
        raise ResultError("the batches are of several workloads")
    out = {"context": context(torch, args), "benchmarks": []}
    measure(torch, np, batches, args, out)
    if not out["benchmarks"]:
        raise ResultError("nothing could be measured")
    with open(args.out, "w", encoding="utf-8") as file:
        file.write(json.dumps(out, indent=1) + "\n")
    print(args.out)


if __name__ == "__main__":
    try:
        main()
    except (ResultError, OSError, AttributeError) as e:
        sys.exit(f"torch_peer.py: {e}")
