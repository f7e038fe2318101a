# SPDX-License-Identifier: MIT
"""The peer FBGEMM, its fused table-batched embedding bags; torch_peer.py has the PyTorch peers. Each
peer works on the tensors it is given, so all peers share one copy of the tables.
"""
import ctypes
import glob
import os
from pathlib import Path

from program import ResultError
from torch_batch import HYPER
from torch_peer import KERNELS as TORCH
from torch_peer import InPlace

KERNELS = {**{k: ("torch", traits, label, idea) for k, (_, traits, label, idea) in TORCH.items()},
           "fbgemm": ("fbgemm", "none", "FBGEMM fused", "SplitTableBatchedEmbeddingBags: radix sort "
                      "by row and table, sum, and the exact optimizer, all inside backward.")}
FBGEMM_NAMES = {"sgd": "EXACT_SGD", "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
                "adagrad": "EXACT_ADAGRAD", "adam": "ADAM"}
INSTRUCTIONS = ("none", "avx2", "avx512", "avx512_ymm", "avx512_vnni", "avx512_vnni_ymm", "sve")


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

    def step(self, batch, outputs):
        """The timed part, with the optimizer."""
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
