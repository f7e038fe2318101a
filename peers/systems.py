# SPDX-License-Identifier: MIT
"""The peers: PyTorch's embedding_bag with its optimizers, and FBGEMM's fused table batched embedding
bags. Each works on the tensors it is given, so that all share one copy of the tables.
"""
from results import ResultError
from torch_batch import HYPER, MEASURED_STEP
from torch_peer import KERNELS as TORCH
from torch_peer import STATE_NAMES, Peer, optimizer_for

KERNELS = {**{k: ("torch", traits, label, idea) for k, (_, traits, label, idea) in TORCH.items()},
           "fbgemm": ("fbgemm", "none", "FBGEMM fused", "SplitTableBatchedEmbeddingBags: radix sort "
                      "by row and table, sum, and the exact optimizer, all inside backward.")}
FBGEMM_NAMES = {"sgd": "EXACT_SGD", "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
                "adagrad": "EXACT_ADAGRAD", "adam": "ADAM"}


class Shared:
    """Puts back what a step did, by the rows of its batch."""

    moves_idle, per_lookup, note, kernel = False, False, "", "cpu_sort"
    eps_of = staticmethod(lambda hyper: hyper)

    def share(self, torch, weights, states, rows):
        self.torch, self.weights, self.arrays = torch, weights, [weights, *states, *rows]
        self.chosen = {}

    def touched(self, batch):
        if batch.prefix not in self.chosen:
            tables, rows = batch.rows
            self.chosen[batch.prefix] = [self.torch.from_numpy(rows[tables == t].copy())
                                         for t in range(len(self.weights))]
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

    def checksum(self):
        """Of the bits of all rows of all arrays; in pieces, since a sum of int32 is one of copies
        as int64."""
        bits = lambda x: x.view(-1).view(self.torch.int32).split(1 << 18)
        return [sum(int(part.sum()) for part in bits(x)) for a in self.arrays for x in a]

    def rewind(self):
        """What a step leaves behind that is no table."""


class Torch(Shared, Peer):
    def __init__(self, torch, name, rule, batch, flat, weights, states, rows, flats):
        if rule not in STATE_NAMES:
            raise ResultError("PyTorch has no such optimizer")
        self.share(torch, weights, states, rows)
        self.sparse, self.rule = TORCH[name][0], rule
        self.params = [torch.nn.Parameter(w) for w in weights]
        # The fused ones are the fastest that it has for dense gradients, and take no sparse ones.
        self.optimizer = optimizer_for(torch, self.params, rule, self.sparse,
                                       **({} if self.sparse else {"fused": True}))
        self.names, self.own = STATE_NAMES[rule], states
        self.moves_idle = rule == "adam" and not self.sparse
        if rule == "sgd" and self.sparse:
            self.per_lookup = True
            self.note = "sparse SGD applies the rule by lookup, not to the sum: other roundings"
        if self.moves_idle:
            self.kernel = "cpu_dense"
        if rule == "adam" and self.sparse:
            self.note = "SparseAdam adds eps before the bias correction; compared with eps to match"
            self.eps_of = lambda h: dict(h, eps=h["eps"] / (1 - h["beta2"]**MEASURED_STEP)**0.5)
        self.rewind()

    def rewind(self):
        for t, p in enumerate(self.params):
            p.grad = None
            if not self.names:
                continue
            own, last = self.optimizer.state[p], MEASURED_STEP - 1
            for k, name in enumerate(self.names):
                own[name] = self.own[k][t]
            counts = self.sparse and len(self.names) == 2  # SparseAdam counts in an int
            own["step"] = last if counts else self.torch.tensor(float(last))

    def save(self, batch):
        with self.torch.no_grad():
            return super().save(batch)

    def transient_bytes(self):
        return 0 if self.sparse else 4 * sum(w.numel() for w in self.weights)


class Fbgemm(Shared):
    def __init__(self, torch, name, rule, batch, flat, weights, states, rows, flats):
        pooling, padding = {p for _, p, _ in batch.features}, {p for *_, p in batch.features}
        if len(pooling) > 1 or padding != {-1}:
            raise ResultError("one pooling for all features, and no padding id")
        if batch.weighted and pooling != {"sum"}:
            raise ResultError("lookup weights of sums only")
        self.share(torch, weights, states, rows)
        h = HYPER[rule]
        given = dict(zip(("weights", "momentum1"), [flat, *flats]))
        self.module = fbgemm_module(
            torch, FBGEMM_NAMES[rule], [tuple(w.shape) for w in weights],
            feature_table_map=[t for t, *_ in batch.features], learning_rate=h["lr"],
            eps=h.get("eps", 1e-8), pooling=pooling.pop(), preallocated_host_buffers=given)
        assert self.module.weights_host.data_ptr() == flat.data_ptr(), "FBGEMM copied the tables"

    def forward(self, batch):
        if not hasattr(batch, "flat"):
            t = self.torch.from_numpy
            batch.flat = (t(batch.ids.astype("int64")), t(batch.offsets.astype("int64")),
                          t(batch.lookup_weights) if batch.weighted else None, t(batch.upstream))
        ids, offsets, weights, upstream = batch.flat
        out = self.module(ids, offsets, per_sample_weights=weights)
        return out, upstream.view_as(out)

    def step(self, batch, outputs):
        """What is timed: the optimizer is part of it."""
        out, upstream = outputs
        out.backward(upstream)

    def transient_bytes(self):
        return 0


def fbgemm_module(torch, optimizer, shapes, pooling="sum", **how):
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
        BoundsCheckMode, EmbeddingLocation, PoolingMode)
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(r, d, EmbeddingLocation.HOST, ComputeDevice.CPU) for r, d in shapes],
        optimizer=EmbOptimType[optimizer], stochastic_rounding=False,
        bounds_check_mode=BoundsCheckMode.NONE, pooling_mode=PoolingMode[pooling.upper()], **how)


def probe_fbgemm(torch):
    """(optimizers that take a step on the CPU, those that do not)."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    works, raises = [], []
    for optimizer in EmbOptimType:
        try:
            module = fbgemm_module(torch, optimizer.name, [(10, 8)])
            module(torch.tensor([1, 2]), torch.tensor([0, 2])).backward(torch.ones(1, 8))
            works.append(optimizer.name)
        except (AssertionError, RuntimeError, NotImplementedError, TypeError):
            raises.append(optimizer.name)
    return works, raises
