# SPDX-License-Identifier: MIT
"""A fused step in Triton, as TorchRec's TBE goes (pytorch/torchrec, Triton TBE: torch.sort, and kernels that sum a
row's gradients and update it), written for this comparison. torch.sort orders the lookups by row. A program takes a
chunk of them, sums the gradients of each row and updates it at once. A row whose lookups cross a border of chunks is
summed by atomics in a buffer, and a second kernel updates it; so its bits differ from run to run. The cost of
determinism is what cuda_fused takes beside this.

Tables of one width, sums or sequences, no padding, no per-sample weights; SGD, row-wise Adagrad and Adam.
TRITON_INTERPRET=1 runs it on a CPU, for tests."""
import os

import torch
import triton
import triton.language as tl

from program import ResultError
from systems import InPlace
from torch_batch import HYPER, MEASURED_STEP

RULES = {"sgd": 0, "rowwise_adagrad": 1, "adam": 2}
CHUNK = 32


@triton.jit
def update(row, g, weight, first, second, lr, eps, beta1, beta2, bias1, bias2, columns, mask, DIM: tl.constexpr,
           RULE: tl.constexpr):
    row = row.to(tl.int64)
    at = row * DIM + columns
    w = tl.load(weight + at, mask=mask, other=0.0)
    if RULE == 0:
        w -= lr * g
    elif RULE == 1:
        s = tl.load(first + row) + tl.sum(g * g, axis=0) / DIM
        tl.store(first + row, s)
        w -= lr / (tl.sqrt(s) + eps) * g
    else:
        m = beta1 * tl.load(first + at, mask=mask, other=0.0) + (1 - beta1) * g
        v = beta2 * tl.load(second + at, mask=mask, other=0.0) + (1 - beta2) * g * g
        tl.store(first + at, m, mask=mask)
        tl.store(second + at, v, mask=mask)
        w -= lr * (m * bias1) / (tl.sqrt(v * bias2) + eps)
    tl.store(weight + at, w, mask=mask)


@triton.jit
def sum_chunks(keys, order, rows, grad, partial, n, weight, first, second, lr, eps, beta1, beta2, bias1, bias2,
               DIM: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr, RULE: tl.constexpr):
    chunk = tl.program_id(0)
    begin = chunk * SIZE
    end = tl.minimum(begin + SIZE, n)
    columns = tl.arange(0, BLOCK)
    mask = columns < DIM
    key = tl.load(keys + begin)
    came = (tl.load(keys + tl.maximum(begin - 1, 0)) == key) & (begin > 0)  # its row's lookups began before
    owner = chunk
    if came:  # the chunk where they begin
        low, high = begin * 0, begin
        while low < high:
            middle = (low + high) // 2
            below = tl.load(keys + middle) < key
            low = tl.where(below, middle + 1, low)
            high = tl.where(below, high, middle)
        owner = low // SIZE
    g = tl.zeros([BLOCK], dtype=tl.float32)
    for k in range(SIZE):
        i = begin + k
        if i < end:
            key = tl.load(keys + i)
            row = tl.load(rows + tl.load(order + i))
            g += tl.load(grad + row * DIM + columns, mask=mask, other=0.0)
            goes_on = (tl.load(keys + tl.minimum(i + 1, n - 1)) == key) & (i + 1 < n)
            if (i + 1 == end) | (goes_on == 0):
                if came | goes_on:
                    tl.atomic_add(partial + owner * DIM + columns, g, mask=mask)
                else:
                    update(key, g, weight, first, second, lr, eps, beta1, beta2, bias1, bias2, columns, mask, DIM, RULE)
                g = tl.zeros([BLOCK], dtype=tl.float32)
                came = i < 0
                owner = chunk


@triton.jit
def finish_rows(keys, partial, n, weight, first, second, lr, eps, beta1, beta2, bias1, bias2, DIM: tl.constexpr,
                BLOCK: tl.constexpr, SIZE: tl.constexpr, RULE: tl.constexpr):
    """Of the row whose lookups begin in the chunk and go on behind it."""
    chunk = tl.program_id(0)
    begin = chunk * SIZE
    end = tl.minimum(begin + SIZE, n)
    key = tl.load(keys + end - 1)
    came = (tl.load(keys + tl.maximum(begin - 1, 0)) == key) & (begin > 0)
    goes_on = (tl.load(keys + tl.minimum(end, n - 1)) == key) & (end < n)
    if goes_on & (came == 0):
        columns = tl.arange(0, BLOCK)
        mask = columns < DIM
        g = tl.load(partial + chunk * DIM + columns, mask=mask, other=0.0)
        update(key, g, weight, first, second, lr, eps, beta1, beta2, bias1, bias2, columns, mask, DIM, RULE)


class Triton(InPlace):
    """weights and states: the tables of each lie one after the other in memory."""

    def __init__(self, rule, batch, weights, states):
        if weights[0].device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise ResultError("Triton needs a CUDA device")
        if rule not in RULES:
            raise ResultError("the Triton step has no such rule")
        pooling = {p for _, p, _ in batch.features}
        if len(set(batch.dims)) > 1 or len(pooling) > 1 or not pooling <= {"sum", "none"} or batch.weighted or \
                any(padding >= 0 for *_, padding in batch.features):
            raise ResultError("the Triton step takes tables of one width, sums or sequences, no padding and no weights")
        self.share(torch, weights, states)
        h, self.dim, self.rule = HYPER[rule], batch.dims[0], RULES[rule]
        whole = [tables[0].as_strided((sum(t.numel() for t in tables),), (1,)) for tables in self.arrays]
        self.memory = (whole + [whole[0]] * 2)[:3]  # a state that the rule lacks is not read
        beta1, beta2 = h.get("beta1", 0.0), h.get("beta2", 0.0)
        self.hyper = (h["lr"], h.get("eps", 0.0), beta1, beta2, 1 / (1 - beta1**MEASURED_STEP), 1 / (1 - beta2**MEASURED_STEP))

    def forward(self, batch):
        """Nothing that a step needs; the tensors that it reads are made once."""
        if not hasattr(batch, "of_triton"):
            to = lambda a: torch.from_numpy(a).to(self.weights[0].device)
            first = torch.tensor([sum(batch.num_rows[:t]) for t, *_ in batch.features])
            batch.of_triton = (to(batch.ids.astype("int32")), to(batch.offsets.astype("int64")), to(batch.upstream).reshape(-1),
                               first.to(self.weights[0].device, torch.int32))
        return batch.of_triton

    def output(self, batch, outputs):
        f, found = torch.nn.functional, []
        for p in batch.parts:
            table = self.weights[p.table]
            found.append(f.embedding(p.ids, table) if p.pooling == "none" else
                         f.embedding_bag(p.ids, table, p.offsets, mode=p.pooling))
        flat = torch.cat([x.reshape(-1) for x in found]) if batch.features[0][1] == "none" else torch.cat(found, 1)
        return flat.reshape(-1).cpu().numpy()

    def step(self, batch, outputs):
        """The timed part: the index, sums and updates."""
        ids, offsets, grad, first = outputs
        n, bags, features = len(ids), batch.bags, len(batch.features)
        of = torch.repeat_interleave(torch.arange(bags * features, device=ids.device), offsets.diff(), output_size=n)
        feature = of // bags
        rows = torch.arange(n, device=ids.device) if batch.features[0][1] == "none" else of % bags * features + feature
        keys, order = torch.sort(ids + first[feature])
        chunks, block = triton.cdiv(n, CHUNK), triton.next_power_of_2(self.dim)
        partial = torch.zeros(chunks * self.dim, device=ids.device)
        how = dict(DIM=self.dim, BLOCK=block, SIZE=CHUNK, RULE=self.rule, num_warps=1)
        sum_chunks[(chunks,)](keys, order, rows, grad, partial, n, *self.memory, *self.hyper, **how)
        finish_rows[(chunks,)](keys, partial, n, *self.memory, *self.hyper, **how)
