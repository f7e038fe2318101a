#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch and FBGEMM on the host, one sample at a time, led line by line by peers.py as the suite's
kernels are by peers/session. Runs in the peers' virtual environment.

A line is a JSON object with "do": open, weights, check, sample, close; the answer is one too. All
peers of a rule work on the same weights and states in turn; rows that a step touched are put back
outside of the timed region, as the suite does. (Dense Adam also moves rows that nobody looked up:
these are left where it moved them; their values have no influence on time.)
"""
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "reports"), HERE]
from compact import Compact
from results import ResultError
from systems import KERNELS, Fbgemm, Torch, probe_fbgemm
from torch_batch import ROW_STATES, STATES, Batch, libraries

TRIES, SECONDS_FOR_TRIES = 4, 0.25  # as harness/measure.c
GIB = 2.0**30


def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def meminfo(key, file="/proc/meminfo"):
    with open(file, encoding="utf-8") as lines:
        return next(1024 * int(x.split()[1]) for x in lines if x.startswith(key + ":"))


def require(size, what):
    free = meminfo("MemAvailable")
    if size > 0.95 * free:
        raise ResultError(f"{what} needs {size / GIB:.1f} GiB, {free / GIB:.1f} GiB are available")


def last_level_cache():
    """As harness/ceiling.c has it."""
    for level in (3, 2):
        size = subprocess.run(["getconf", f"LEVEL{level}_CACHE_SIZE"], capture_output=True,
                              text=True, check=False).stdout.strip()
        if size.isdigit() and int(size):
            return int(size)
    return 32 << 20


class Worker:
    def __init__(self, threads, embfuse):
        self.torch, self.np = libraries()
        self.torch.set_num_threads(threads)
        self.torch.set_num_interop_threads(1)
        self.embfuse, self.key, self.flat, self.peers = embfuse, None, None, {}
        self.flushed = self.torch.zeros(max(2 * last_level_cache(), 64 << 20) // 4)

    def hello(self):
        import fbgemm_gpu
        works, raises = probe_fbgemm(self.torch)
        return {"context": {
            "emb_torch": self.torch.__version__, "emb_fbgemm": fbgemm_gpu.__version__,
            "emb_torch_threads": str(self.torch.get_num_threads()),
            "emb_torch_huge_pages": os.environ.get("THP_MEM_ALLOC_ENABLE", "0"),
            "emb_torch_parallel": " ".join(
                x.strip() for x in self.torch.__config__.parallel_info().splitlines()[:8]),
            "emb_fbgemm_cpu_optimizers": " ".join(works),
            "emb_fbgemm_cpu_refuses": " ".join(raises),
            **{f"emb_kernel_{k}": f"{family} | host | {traits} | {label} | {idea}"
               for k, (family, traits, label, idea) in KERNELS.items()}}}

    def open(self, prefixes, rule, key):
        """Whether the weights must be given: those of another workload with the same tables stay."""
        self.batches = [Batch(p, self.torch, self.np, "cpu") for p in prefixes]
        self.rule, first = rule, self.batches[0]
        self.shapes = list(zip(first.num_rows, first.dims))
        if key == self.key:
            return {"weights": False}
        self.key = self.flat = None
        require(4 * sum(r * d for r, d in self.shapes), "weights")
        self.key, self.flat = key, self.torch.empty(sum(r * d for r, d in self.shapes))
        return {"weights": True}

    def weights(self, paths):
        """Read into place: a map of the file would be paid for in page faults."""
        at = 0
        for path, (rows, dim) in zip(paths, self.shapes):
            with open(path, "rb") as file:
                shape = self.np.lib.format.read_magic(file) and \
                    self.np.lib.format.read_array_header_1_0(file)[0]
                assert tuple(shape) == (rows, dim), f"{path}: {shape}"
                file.readinto(memoryview(self.flat.numpy()[at:at + rows * dim]).cast("B"))
            at += rows * dim
        return {}

    def tables(self):
        """Weights and states by table, as views: states are numbers in [0, 1/16), as the suite's."""
        torch, rule = self.torch, self.rule
        require(STATES[rule] * 4 * self.flat.numel(), "states")

        def rand(size):
            block = torch.rand(1 << 20, generator=torch.Generator().manual_seed(42)).div_(16)
            out = torch.empty(size)
            for part in out.split(len(block)):
                part.copy_(block[:len(part)])
            return out

        flats = [rand(self.flat.numel()) for _ in range(STATES[rule])]
        row = rand(sum(r for r, _ in self.shapes)) if rule in ROW_STATES else None
        split = lambda flat: [x.view(s) for x, s in zip(
            flat.split([r * d for r, d in self.shapes]), self.shapes)]
        rows = [] if row is None else [list(row.split([r for r, _ in self.shapes]))]
        return split(self.flat), [split(f) for f in flats], rows, flats + ([] if row is None else [row])

    def check(self, kernels):
        """Makes the peers, and compares one step of each with `embfuse step`: {name: note}, and
        {name: reason} of those that cannot be measured."""
        if self.rule not in STATES:
            return {"peers": {}, "refused": {k: f"{self.rule}: no peer has it" for k in kernels}}
        weights, states, rows, flats = self.tables()
        peers, refused, self.initial = {}, {}, None
        with tempfile.TemporaryDirectory(dir=os.path.dirname(self.batches[0].prefix)) as folder:
            compact = Compact(self.np, self.batches[0], self.rule, weights, states + rows, folder)
            for name in kernels:
                try:
                    make = Fbgemm if name == "fbgemm" else Torch
                    peer = make(self.torch, name, self.rule, self.batches[0], self.flat, weights,
                                states, rows, flats)
                    require(peer.transient_bytes(), name)
                    peers[name] = self.check_one(peer, compact)
                    self.peers[name] = peer
                except (ResultError, AssertionError, RuntimeError, NotImplementedError) as e:
                    wrong = "WRONG RESULT: " if "differ" in str(e) else ""
                    refused[name] = wrong + f"{self.rule}: {str(e).splitlines()[0]}"
                gc.collect()
        self.persistent = 4 * self.flat.numel() + sum(4 * f.numel() for f in flats)
        return {"peers": peers, "refused": refused}

    def check_one(self, peer, compact):
        batch = self.batches[0]
        self.initial = self.initial or peer.checksum()
        outputs, saved = peer.forward(batch), peer.save(batch)
        with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")  # the peak begins anew
        resident = meminfo("VmRSS", "/proc/self/status")
        peer.step(batch, outputs)
        peer.appeared = meminfo("VmHWM", "/proc/self/status") - resident
        del outputs
        try:
            compact.compare(peer, self.embfuse)
        finally:
            peer.restore(batch, saved)
        if not peer.moves_idle and peer.checksum() != self.initial:
            raise ResultError("rows that nobody looked up differ after the step")
        return {"note": peer.note}

    def sample(self, kernel, mode, round_):
        peer = self.peers[kernel]
        batch = self.batches[round_ % len(self.batches) if mode == "cold" else 0]
        begin = time.perf_counter()
        for rejected in range(TRIES):
            if mode == "warm":
                saved = peer.save(batch)
                peer.step(batch, peer.forward(batch))
                peer.restore(batch, saved)
            saved, outputs = peer.save(batch), peer.forward(batch)
            if mode == "cold":
                self.flushed.add_(1)
            before, start = switches(), time.perf_counter()
            peer.step(batch, outputs)
            seconds = time.perf_counter() - start
            disturbed = switches() != before
            del outputs
            peer.restore(batch, saved)
            if not disturbed or time.perf_counter() - begin > SECONDS_FOR_TRIES:
                break
        return self.row(peer, kernel, mode, round_, batch, seconds, rejected, disturbed)

    def row(self, peer, kernel, mode, round_, batch, seconds, rejected, disturbed):
        words = {"workload": batch.workload, "rule": self.rule, "kernel": kernel, "mode": mode,
                 "place": "host", "operation": "dense" if peer.moves_idle else "lazy",
                 "check": "bound", "fingerprint": batch.fingerprint}
        size, mib = batch.compulsory_bytes(self.rule), 2.0**20
        return {"name": f"{batch.workload}/{self.rule}/{kernel}/{mode}", "run_type": "iteration",
                "repetition_index": round_, "iterations": 1, "real_time": 1e3 * seconds,
                "cpu_time": 1e3 * seconds, "time_unit": "ms",
                "label": " ".join(f"{k}={v}" for k, v in words.items()),
                "ns_per_lookup": 1e9 * seconds / batch.lookups,
                "lookups_per_s": batch.lookups / seconds, "lookups": batch.lookups,
                "distinct": batch.rows.shape[1],
                "hottest_share": int(batch.hits.max(initial=0)) / batch.lookups,
                "traffic_gbs": 1e-9 * size / seconds, "compulsory_mib": size / mib,
                "persistent_mib": self.persistent / mib,
                "peak_mib": (self.persistent + peer.appeared) / mib,
                "threads": self.torch.get_num_threads(), "rejected_samples": rejected,
                "disturbed": int(disturbed)}

    def close(self):
        self.peers = {}
        self.batches = []
        gc.collect()
        return {}


def main():
    threads, embfuse = int(sys.argv[1]), sys.argv[2]
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    worker = Worker(threads, embfuse)
    gc.disable()
    print(json.dumps(worker.hello()), file=out, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except (ResultError, OSError, RuntimeError, AssertionError) as e:
            answer = {"error": f"{type(e).__name__}: {e}".splitlines()[0]}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    try:
        main()
    except ResultError as e:
        print(json.dumps({"error": str(e)}), flush=True)
        sys.exit(1)
