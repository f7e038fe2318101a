# SPDX-License-Identifier: MIT
"""The input of the peers: batches from `embfuse gen` as tensors, and tables. Also the bound on how far
their results may be from the suite's.
"""
import json
import re
import struct
import subprocess
from collections import namedtuple
from pathlib import Path

from program import ResultError
from results import ITERATION

MEASURED_STEP = 10  # as harness/measure/measure.h
SINGLE = lambda x: struct.unpack("f", struct.pack("f", x))[0]  # float32, as in the suite's rules
# By rule: presets of its hyper-parameters, states per element, states per row.
HYPER, STATES, ROW_STATES = {}, {}, {}


class Differs(ResultError):
    """A step of a peer is not the suite's."""


def reason(rule, error):
    """Why a peer has no time, as results say it."""
    wrong = "WRONG RESULT: " if isinstance(error, Differs) else ""
    return f"{wrong}{rule}: {(str(error) or type(error).__name__).splitlines()[0]}"


def learn_rules(embfuse):
    """Fills HYPER, STATES and ROW_STATES from the program, so that they include new rules."""
    try:
        done = subprocess.run([embfuse, "list", "--json"], capture_output=True, text=True, check=True)
        rules = json.loads(done.stdout)["rules"]
    except (OSError, subprocess.CalledProcessError, ValueError) as e:
        raise ResultError(f"{embfuse} list --json: {e}; 'make' builds it") from None
    for r in rules:
        STATES[r["name"]], ROW_STATES[r["name"]] = r["elem_states"], r["row_states"]
        HYPER[r["name"]] = {p["name"]: SINGLE(p["preset"]) for p in r["params"]}


def libraries():
    try:
        import numpy
        import torch
    except ImportError as e:
        raise ResultError(f"no PyTorch: {e}; the peers need torch and numpy") from None
    return torch, numpy


# One feature of a batch: the arguments of embedding_bag, or of embedding, as tensors.
Part = namedtuple("Part", "table pooling padding ids offsets weights upstream")


def weights_of_a_sum(np, ids, padding, offsets, weights):
    """The weights with which a sum is the weighted mean: torch has weights for sums only."""
    lengths = np.diff(offsets)
    lookups = np.add.reduceat(np.append(ids != padding, 0), offsets[:-1])
    return (weights / np.repeat(np.where(lengths > 0, lookups, 1), lengths)).astype(np.float32)


class Batch:
    """One batch from gen, PREFIX.batch and its arrays, on the device."""

    def __init__(self, prefix, torch, np, device):
        text = Path(prefix + ".batch").read_text(encoding="utf-8")
        read = lambda name: np.load(f"{prefix}.{name}.npy")
        if re.search(r"(?m)^(table .*\b(weight|momentum)_type|grad_type) (?!fp32\b)", text):
            raise ResultError(f"{prefix}.batch: peers need tables and gradients of fp32; leave out weight_type, "
                              "momentum_type and grad_type")
        facts = [re.search(p, text, re.M) for p in (r"^# (\S+): ", r"^# fingerprint (\w+)", r"^bags (\d+)")]
        if not all(facts):
            raise ResultError(f"{prefix}.batch: lacks the workload, the fingerprint or the bags; "
                              "embfuse gen writes them")
        self.prefix = prefix
        self.workload, self.fingerprint, self.bags = facts[0][1], facts[1][1], int(facts[2][1])
        shapes = re.findall(r"^table rows (\d+) dim (\d+)", text, re.M)
        self.num_rows, self.dims = [int(r) for r, _ in shapes], [int(d) for _, d in shapes]
        self.features = [(int(t), p or "sum", int(pad) if pad else -1) for t, p, pad in re.findall(
            r"^feature table (\d+)(?: pooling (\w+))?(?: padding (-?\d+))?", text, re.M)]
        if any(pooling == "max" for _, pooling, _ in self.features):
            raise ResultError(f"{prefix}.batch: peers take the winners of max pooling from their own forward, not "
                              "those that were drawn; leave pooling max out")
        self.ids, self.offsets = read("ids"), read("offsets")
        self.weighted = re.search(r"(?m)^weighted 1", text) is not None
        self.upstream = read("grad")
        self.lookup_weights = read("lookup_weights") if self.weighted else None
        self.split(np, lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(device))
        self.count(np)

    def span(self, f):
        return slice(int(self.offsets[f * self.bags]), int(self.offsets[(f + 1) * self.bags]))

    def split(self, np, to):
        """By feature: a pooled feature has columns of the gradient, a sequence has rows."""
        self.parts, self.grad_elements, column, flat, weights = [], 0, 0, 0, None
        for f, (table, pooling, padding) in enumerate(self.features):
            span, dim = self.span(f), self.dims[table]
            offsets = self.offsets[f * self.bags:(f + 1) * self.bags + 1] - span.start
            ids = self.ids[span]
            if pooling == "none":
                upstream = self.upstream.reshape(-1)[flat:flat + len(ids) * dim].reshape(len(ids), dim)
                flat += len(ids) * dim
                self.grad_elements += len(ids) * dim
            else:
                upstream = self.upstream.reshape(self.bags, -1)[:, column:column + dim]
                column += dim
                self.grad_elements += int((np.diff(offsets) > 0).sum()) * dim
            if self.weighted:
                weights = self.lookup_weights[span]
                if pooling == "mean":
                    weights, pooling = weights_of_a_sum(np, ids, padding, offsets, weights), "sum"
                weights = to(weights)
            self.parts.append(Part(table, pooling, padding if padding >= 0 else None,
                                   to(ids.astype(np.int64)), to(offsets[:-1]), weights, to(upstream)))

    def count(self, np):
        """rows: [2][unique rows], tables and row numbers; hits: the lookups of each."""
        keep, start = np.ones(len(self.ids), bool), np.zeros(len(self.ids), np.int64)
        first = np.concatenate(([0], np.cumsum(self.num_rows)))
        for f, (table, _, padding) in enumerate(self.features):
            start[self.span(f)] = first[table]
            keep[self.span(f)] = self.ids[self.span(f)] != padding
        flat, self.hits = np.unique((self.ids + start)[keep], return_counts=True)
        tables = np.searchsorted(first, flat, side="right") - 1
        self.rows = np.stack([tables, flat - first[tables]])
        self.lookups = int(keep.sum())
        self.longest = int(np.diff(self.offsets).max(initial=0))

    def compulsory_bytes(self, rule, iteration=False):
        """As in harness/measure/traffic.h."""
        touched = sum(self.dims[t] * (1 + STATES[rule]) + ROW_STATES[rule]
                      for t in self.rows[0].tolist())
        input_ = self.ids.nbytes + self.offsets.nbytes + (4 * len(self.ids) if self.weighted else 0)
        step = input_ + 4 * self.grad_elements + 8 * touched
        if not iteration:
            return step
        return step + input_ + 4 * self.upstream.size + 4 * sum(self.dims[t] for t in self.rows[0].tolist())

    def row(self, rule, kernel, mode, place, dense, repetition, seconds, persistent):
        """A row of a result. dense: whether the step moves untouched rows; persistent: bytes."""
        words = {"workload": self.workload, "rule": rule, "kernel": kernel, "mode": mode, "place": place,
                 "operation": "dense" if dense else "lazy", "check": "bound", "fingerprint": self.fingerprint}
        size, mib = self.compulsory_bytes(rule, mode == ITERATION), 2.0**20
        return {"name": f"{self.workload}/{rule}/{kernel}/{mode}", "run_type": "iteration",
                "repetition_index": repetition, "iterations": 1, "real_time": 1e3 * seconds,
                "cpu_time": 1e3 * seconds, "time_unit": "ms",
                "label": " ".join(f"{k}={v}" for k, v in words.items()),
                "ns_per_lookup": 1e9 * seconds / self.lookups, "lookups_per_s": self.lookups / seconds,
                "lookups": self.lookups, "distinct": self.rows.shape[1],
                "hottest_share": int(self.hits.max(initial=0)) / self.lookups,
                "traffic_gbs": 1e-9 * size / seconds, "compulsory_mib": size / mib,
                "persistent_mib": persistent / mib}


def agrees(got, want, before, hits, between=0):
    """Whether got is within the rounding of one sum and one update, or of one step per lookup.
    between: as Compact.between returns it."""
    np = libraries()[1]
    bound = (hits[:, None] + 8) * 2.0**-24 * (
        np.abs(before) + 4 * np.abs(want - before) + between + 2.0**-20)
    return bool((np.abs(got.astype(np.float64) - want) <= bound).all())
