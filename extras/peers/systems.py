# SPDX-License-Identifier: MIT
"""The peers: PyTorch, and FBGEMM's fused table-batched embedding bags. Each peer works on the tensors it is
given, so all peers share one copy of the tables.

torch_sparse is sparse=True with SGD, Adagrad and SparseAdam. torch_dense is sparse=False with SGD (with
and without momentum), Adagrad and Adam. Dense momentum and Adam are another operation: they move
untouched rows.
"""
import ctypes
import glob
import os
from pathlib import Path

from program import ResultError
from torch_batch import HYPER, MEASURED_STEP

KERNELS = {  # family, traits, label, idea
    "torch_sparse": ("torch", "none", "PyTorch sparse", "sparse=True: a gradient row per lookup, "
                     "coalesced by the optimizer, which updates touched rows."),
    "torch_dense": ("torch", "dense_gradient,dense_step", "PyTorch dense", "sparse=False: a "
                    "gradient of all rows, and an optimizer that sweeps them all."),
    "fbgemm": ("fbgemm", "none", "FBGEMM fused", "SplitTableBatchedEmbeddingBags: radix sort "
               "by row and table, sum, and the exact optimizer, all inside backward.")}
TRITON = {"emb_kernel_triton": "triton | device | none | Triton, fused | torch.sort; a program sums the rows of a chunk of "
          "lookups and updates them, and rows of several chunks are summed by atomics."}
STATE_NAMES = {"sgd": (), "momentum": ("momentum_buffer",), "adagrad": ("sum",),
               "adam": ("exp_avg", "exp_avg_sq")}
FBGEMM_NAMES = {"sgd": "EXACT_SGD", "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
                "adagrad": "EXACT_ADAGRAD", "adam": "ADAM"}
INSTRUCTIONS = ("none", "avx2", "avx512", "avx512_ymm", "avx512_vnni", "avx512_vnni_ymm", "sve")


def described(kernels, place):
    """The keys of a result's context that describe these kernels."""
    return {f"emb_kernel_{k}": " | ".join((family, place, *more))
            for k, (family, *more) in KERNELS.items() if k in kernels}


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

    def transient_bytes(self):
        """What a step needs besides."""
        return 0

    def once(self, batch):
        """A step that leaves no trace in touched rows."""
        saved = self.save(batch)
        self.step(batch, self.forward(batch))
        self.restore(batch, saved)


class Peer(InPlace):
    """PyTorch with one rule, dense or sparse."""

    def __init__(self, torch, name, rule, weights, states):
        self.sparse = name == "torch_sparse"
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

    def output(self, batch, outputs):
        """All that the forward wrote, in the shape of the batch's gradients."""
        flat = [x.detach().cpu().reshape(-1) for x in outputs]
        if batch.features[0][1] != "none":
            flat = [self.torch.cat([x.detach().cpu() for x in outputs], 1).reshape(-1)]
        return self.torch.cat(flat).numpy()

    def step(self, batch, outputs):
        """The timed part."""
        self.torch.autograd.backward(outputs, [p.upstream for p in batch.parts])
        self.optimizer.step()

    def transient_bytes(self):
        return 0 if self.sparse else 4 * sum(w.numel() for w in self.weights)


class Fbgemm(InPlace):
    def __init__(self, torch, rule, batch, weights, states):
        """weights and states: the tables of each lie one after the other in memory."""
        if rule not in FBGEMM_NAMES:
            raise ResultError("FBGEMM has no such optimizer")
        pooling, padding = {p for _, p, _ in batch.features}, {p for *_, p in batch.features}
        if len(pooling) > 1 or padding != {-1}:
            raise ResultError("FBGEMM needs one pooling for all features, and no padding id")
        if batch.weighted and pooling != {"sum"}:
            raise ResultError("FBGEMM has per-sample weights for sums only")
        if fbgemm_instructions() == "none" and torch.backends.cpu.get_cpu_capability() != "DEFAULT":
            raise ResultError("FBGEMM finds no vector instructions: its reference code would run")
        self.share(torch, weights, states)
        h = HYPER[rule]
        whole = lambda tables: tables[0].as_strided((sum(t.numel() for t in tables),), (1,))
        given = dict(zip(("weights", "momentum1"), map(whole, self.arrays)))
        self.module = fbgemm_module(
            torch, FBGEMM_NAMES[rule], [tuple(w.shape) for w in weights],
            feature_table_map=[t for t, *_ in batch.features], learning_rate=h["lr"],
            eps=h.get("eps", 1e-8), pooling=pooling.pop(), preallocated_host_buffers=given)
        copied = self.module.weights_host.data_ptr() != weights[0].data_ptr()
        assert not copied, "FBGEMM copied the tables"

    def forward(self, batch):
        if not hasattr(batch, "flat"):
            t = self.torch.from_numpy
            batch.flat = (t(batch.ids.astype("int64")), t(batch.offsets.astype("int64")),
                          t(batch.lookup_weights) if batch.weighted else None, t(batch.upstream))
        ids, offsets, weights, upstream = batch.flat
        out = self.module(ids, offsets, per_sample_weights=weights)
        return out, upstream.view_as(out)

    def output(self, batch, outputs):
        return outputs[0].detach().reshape(-1).numpy()

    def step(self, batch, outputs):
        """The timed part, with the optimizer."""
        out, upstream = outputs
        out.backward(upstream)


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


def fbgemm_libraries():
    import fbgemm_gpu
    return glob.glob(os.path.join(os.path.dirname(fbgemm_gpu.__file__), "*.so"))


def fbgemm_instructions():
    """The vector instructions that FBGEMM finds on this machine, by its own name."""
    library = next(x for x in fbgemm_libraries() if os.path.basename(x) == "fbgemm.so")
    return INSTRUCTIONS[ctypes.CDLL(library)._ZN6fbgemm20fbgemmInstructionSetEv()]


def fbgemm_openmp():
    """Whether any library of FBGEMM uses OpenMP; if not, its own loops run on one thread."""
    return any(call in text for text in (Path(x).read_bytes() for x in fbgemm_libraries())
               for call in (b"GOMP_parallel", b"__kmpc_fork_call"))


def probe_fbgemm(torch):
    """Returns (optimizers that take a step on the CPU, optimizers that do not)."""
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
