#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures PyTorch and FBGEMM, one sample at a time. peers.py drives it line by line, as it drives
extras/peers/session, in the peers' virtual environment; torch_peer.py measures PyTorch alone with it.

A line is a JSON object with "do": open, weights, check, sample, close; so is the answer. All peers of a
rule work on the same weights and states in turn. Touched rows are restored outside the timed region, as
in the suite. (Dense Adam and momentum also move untouched rows. These stay moved: their values do not
influence the time.)
"""
import contextlib
import ctypes
import gc
import glob
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from math import prod
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
from compact import Compact
from program import ResultError, fact
from results import ITERATION
from systems import (KERNELS, Fbgemm, Peer, described, fbgemm_instructions, fbgemm_openmp,
                     probe_fbgemm)
from torch_batch import ROW_STATES, STATES, Batch, Differs, learn_rules, libraries, reason

TRIES, SECONDS_FOR_TRIES = 4, 0.25  # as in harness/measure/measure.c
WAITING_TOLERATED = 0.01  # as in harness/measure/disturbance.h
FEW_FAULTS = 16  # with more the heap grew during the step: the sample is taken again, at least once
GIB = 2.0**30
RESERVE = 1.5 * GIB  # stays free for extras/peers/session and for the check of a step


def waited():
    """Seconds that the threads have waited for a CPU; 0 where the system does not count them."""
    total = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        with contextlib.suppress(OSError):  # a thread has just ended
            total += int(Path(path).read_text().split()[1])
    return 1e-9 * total


def stolen():
    """Seconds that a hypervisor has taken from the CPUs that this process may use."""
    mine = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    ticks = (line.split()[8] for line in Path("/proc/stat").read_text().splitlines() if line.split()[0] in mine)
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def events():
    """Lost seconds and page faults so far."""
    return waited() + stolen(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def memory(key, file="/proc/self/status"):
    """In bytes; the file has kB."""
    return 1024 * int(fact(file, key).split()[0])


def trim():
    """Returns free memory to the system; otherwise the heap keeps it (IN_FAVOUR in peers.py)."""
    ctypes.CDLL(None).malloc_trim(0)


def last_level_cache():
    """As in harness/measure/ceiling.c."""
    for level in (3, 2):
        size = subprocess.run(["getconf", f"LEVEL{level}_CACHE_SIZE"], capture_output=True,
                              text=True, check=False).stdout.strip()
        if size.isdigit() and int(size):
            return int(size)
    return 32 << 20


class Worker:
    def __init__(self, threads, embfuse, device="cpu"):
        self.torch, self.np = libraries()
        self.device, self.cuda = device, self.torch.cuda if device == "cuda" else None
        self.place = "device" if self.cuda else "host"
        learn_rules(embfuse)
        self.torch.set_num_threads(threads)
        self.torch.set_num_interop_threads(1)
        self.embfuse, self.key, self.flat, self.peers = embfuse, None, None, {}
        self.factors = self.torch.randint(-2**62, 2**62, (1 << 16,), device=device) | 1
        flushed = max(2 * last_level_cache(), 64 << 20)
        if self.cuda:
            cache = getattr(self.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
            flushed = max(256 << 20, 4 * cache)
        self.flushed = self.torch.zeros(flushed // 4, device=device)

    def require(self, size, what):
        trim()
        free = self.cuda.mem_get_info()[0] if self.cuda else memory("MemAvailable", "/proc/meminfo")
        if size + RESERVE > free:
            left = max(0, free - RESERVE)
            raise ResultError(f"{what} needs {size / GIB:.1f} GiB, {left / GIB:.1f} GiB are available")

    def seconds(self, call):
        """The time of a call: by events on a device, by the monotonic clock on the host."""
        if not self.cuda:
            begin = time.perf_counter()
            call()
            return time.perf_counter() - begin
        begin, end = (self.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    def appeared(self, call):
        """The bytes that a call takes at its peak, beside those that were there before."""
        if self.cuda:
            before = self.cuda.memory_allocated()
            self.cuda.reset_peak_memory_stats()
            call()
            return self.cuda.max_memory_allocated() - before
        trim()
        with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")  # resets the peak
        before = memory("VmRSS")
        call()
        return memory("VmHWM") - before

    def hello(self):
        import fbgemm_gpu
        works, raises = probe_fbgemm(self.torch)
        return {"context": {
            "emb_torch": self.torch.__version__, "emb_fbgemm": fbgemm_gpu.__version__,
            "emb_torch_threads": str(self.torch.get_num_threads()),
            "emb_torch_huge_pages": os.environ.get("THP_MEM_ALLOC_ENABLE", "0"),
            "emb_torch_parallel": " ".join(
                x.strip() for x in self.torch.__config__.parallel_info().splitlines()[:8]),
            "emb_fbgemm_instructions": fbgemm_instructions(),
            "emb_fbgemm_openmp": "yes" if fbgemm_openmp() else "no",
            "emb_fbgemm_cpu_optimizers": " ".join(works),
            "emb_fbgemm_cpu_refuses": " ".join(raises),
            **described(KERNELS, "host")}}

    def open(self, prefixes, rule, key):
        """Returns whether it needs weights: workloads with the same tables share them."""
        self.batches = [Batch(p, self.torch, self.np, self.device) for p in prefixes]
        self.rule, first = rule, self.batches[0]
        self.shapes = list(zip(first.num_rows, first.dims))
        if key == self.key:
            return {"weights": False}
        self.key = self.flat = None
        count = sum(map(prod, self.shapes))
        self.require(4 * count, "weights")
        self.key, self.flat = key, self.torch.empty(count, device=self.device)
        return {"weights": True}

    def cut(self, flat, shapes):
        """An array's tables, which lie one after the other."""
        return [x.view(s) for x, s in zip(flat.split(list(map(prod, shapes))), shapes)]

    def weights(self, paths):
        """Copies into the tensor: a mapped file would cost page faults in the steps."""
        for path, table in zip(paths, self.cut(self.flat, self.shapes)):
            table.copy_(self.torch.from_numpy(self.np.load(path, mmap_mode="c")))
        return {}

    def tables(self):
        """Weights, and states of random numbers in [0, 1/16), as in the suite."""
        by_row = [(rows,) for rows, _ in self.shapes]
        kinds = [self.shapes] * STATES[self.rule] + [by_row] * ROW_STATES[self.rule]
        sizes = [sum(map(prod, shapes)) for shapes in kinds]
        self.require(4 * sum(sizes), "states")
        block = self.torch.rand(1 << 20, generator=self.torch.Generator().manual_seed(42)).div_(16)
        states = [self.torch.empty(n, device=self.device) for n in sizes]
        for state in states:
            for part in state.split(len(block)):
                part.copy_(block[:len(part)])
        self.persistent = 4 * (self.flat.numel() + sum(sizes))
        return self.cut(self.flat, self.shapes), [self.cut(s, shapes) for s, shapes in zip(states, kinds)]

    def check(self, kernels):
        """Makes the peers, and compares one step of each with `embfuse step`. Returns {name: note}, and
        {name: reason} for peers that cannot be measured."""
        weights, states = self.tables()
        peers, refused, self.initial = {}, {}, None
        with tempfile.TemporaryDirectory(dir=os.path.dirname(self.batches[0].prefix)) as folder:
            compact = Compact(self.np, self.batches[0], self.rule, weights, states, folder)
            for name in kernels:
                try:
                    if name == "fbgemm":
                        peer = Fbgemm(self.torch, self.rule, self.batches[0], weights, states)
                    elif name == "triton":
                        from triton_step import Triton
                        peer = Triton(self.rule, self.batches[0], weights, states)
                    else:
                        peer = Peer(self.torch, name, self.rule, weights, states)
                    self.require(peer.transient_bytes(), name)
                    peers[name] = self.check_one(peer, compact)
                    self.peers[name] = peer
                except (ResultError, AssertionError, ImportError, RuntimeError, NotImplementedError) as e:
                    refused[name] = reason(self.rule, e)
                gc.collect()
        for peer in self.peers.values():
            peer.once(self.batches[0])  # the heap grows to what all peers need
        return {"peers": peers, "refused": refused}

    def checksum(self, peer):
        """Of the bits of all rows: the sum of each piece, every number times a random odd factor. Without
        factors two changes could cancel each other."""
        pieces = lambda x: x.view(-1).view(self.torch.int32).split(len(self.factors))
        return [int((part * self.factors[:len(part)]).sum())
                for array in peer.arrays for table in array for part in pieces(table)]

    def check_one(self, peer, compact):
        batch = self.batches[0]
        self.initial = self.initial or self.checksum(peer)
        outputs, saved = peer.forward(batch), peer.save(batch)
        compact.compare_output(peer.output(batch, outputs), self.embfuse)
        peer.appeared = self.appeared(lambda: peer.step(batch, outputs))
        del outputs
        try:
            compact.compare(peer, self.embfuse)
        finally:
            peer.restore(batch, saved)
        if not peer.moves_idle and self.checksum(peer) != self.initial:
            raise Differs("untouched rows differ after the step")
        return {"note": peer.note}

    def sample(self, kernel, mode, round_):
        peer = self.peers[kernel]
        batch = self.batches[0 if mode == "warm" else round_ % len(self.batches)]
        begin = time.perf_counter()
        for rejected in range(TRIES):
            if mode == "warm":
                peer.once(batch)
            saved, outputs = peer.save(batch), None if mode == ITERATION else peer.forward(batch)
            if mode != "warm":
                self.flushed.add_(1)
            before = events()
            if mode == ITERATION:
                seconds, more = self.iteration(peer, batch)
            else:
                seconds, more = self.seconds(lambda: peer.step(batch, outputs)), {}
            lost, faults = (b - a for a, b in zip(before, events()))
            disturbed = lost > WAITING_TOLERATED * seconds
            grew = faults > FEW_FAULTS
            del outputs
            peer.restore(batch, saved)
            late = time.perf_counter() - begin > SECONDS_FOR_TRIES
            if not (disturbed or grew) or late and (rejected or not grew):
                break
        row = batch.row(self.rule, kernel, mode, self.place, peer.moves_idle, round_, seconds,
                        self.persistent)
        return row | more | {"peak_mib": (self.persistent + peer.appeared) / 2.0**20,
                      "threads": self.torch.get_num_threads(), "rejected_samples": rejected,
                      "disturbed": int(disturbed)}

    def iteration(self, peer, batch):
        """(seconds of forward, backward and optimizer, the row's counters). Only the host's clock can be
        read between forward and backward without a wait."""
        if self.cuda:
            return self.seconds(lambda: peer.step(batch, peer.forward(batch))), {}
        begin = time.perf_counter()
        outputs = peer.forward(batch)
        middle = time.perf_counter()
        peer.step(batch, outputs)
        return time.perf_counter() - begin, {"forward_ms": 1e3 * (middle - begin)}

    def close(self):
        self.peers, self.batches = {}, []
        gc.collect()
        trim()
        return {}


def main():
    threads, embfuse = int(sys.argv[1]), sys.argv[2]
    out, sys.stdout = sys.stdout, sys.stderr  # libraries may print, but only answers go to stdout
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
