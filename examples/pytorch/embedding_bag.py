# SPDX-License-Identifier: MIT
"""A drop-in torch.nn.EmbeddingBag whose optimizer is fused into the backward pass: libembfuse updates the touched rows
while autograd runs, so there is no gradient tensor and no optimizer step. CPU tensors, without copies.

    bag = EmbeddingBag(1_000_000, 64, mode="sum", optimizer="rowwise_adagrad", lr=0.05)
    bag(input, offsets).sum().backward()        # the rows are updated now
    bag.set(lr=0.01)

The weights are bag.weight, a tensor outside of the graph: its in-place updates bump no version, so autograd must not
see it. Each forward needs its backward before the next backward of the same module.
"""
import torch
from torch.autograd.function import once_differentiable

import embfuse

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bag, input, offsets, per_sample_weights, _):
        ctx.bag, ctx.tensors, ctx.weights = bag, (input, offsets), per_sample_weights
        output = torch.empty(len(offsets) - 1, bag.embedding_dim, dtype=bag.output_dtype)
        ctx.winners = torch.empty(output.shape, dtype=torch.int32) if bag.mode == "max" else None
        bag.model.forward(bag.batch(ctx), output.data_ptr())
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        """The step. The gradient of a sum is expanded, with strides of 0."""
        grad = grad.to(ctx.bag.output_dtype).contiguous()
        weight_grad = torch.empty_like(ctx.weights) if ctx.needs_input_grad[3] else None
        ctx.bag.model.step(ctx.bag.batch(ctx, weight_grad, trusted=True), grad.data_ptr())
        return None, None, None, weight_grad, torch.zeros(())


class EmbeddingBag(torch.nn.Module):
    """Arguments as torch.nn.EmbeddingBag; then optimizer, a rule of rules/README.md, and its hyper-parameters by name.
    weight, if given, is used in place. dtype: of the weights; rounding: how they are stored; output_dtype: of outputs and
    gradients; threads 0: all."""

    def __init__(self, num_embeddings, embedding_dim, mode="mean", padding_idx=None, include_last_offset=False, *,
                 weight=None, dtype=torch.float32, rounding="nearest", output_dtype=torch.float32, seed=0,
                 optimizer="rowwise_adagrad", kernel="auto", threads=0, lib=None, **hypers):
        super().__init__()
        if weight is None:
            weight = torch.randn(num_embeddings, embedding_dim).to(dtype)
            if padding_idx is not None:
                weight[padding_idx] = 0
        self._check(weight, "weight", tuple(DTYPES))
        if tuple(weight.shape) != (num_embeddings, embedding_dim):
            raise ValueError(f"weight is {tuple(weight.shape)}, not ({num_embeddings}, {embedding_dim})")
        if padding_idx is not None and padding_idx < 0:
            padding_idx += num_embeddings
        self.mode, self.embedding_dim, self.output_dtype = mode, embedding_dim, output_dtype
        self.include_last_offset = include_last_offset
        self.model = embfuse.Model(
            [embfuse.Table(rows=num_embeddings, dim=embedding_dim, weight_type=embfuse.TYPES[DTYPES[weight.dtype]],
                           rounding=embfuse.ROUNDINGS[rounding], rule=optimizer.encode())],
            [embfuse.Feature(table=0, pooling=embfuse.POOLINGS[mode],
                             padding_id=-1 if padding_idx is None else padding_idx)],
            embfuse.Options(kernel=kernel.encode(), threads=threads, rounding_seed=seed,
                            grad_type=embfuse.TYPES[DTYPES[output_dtype]]), lib)
        self.register_buffer("weight", weight)
        self.model.bind(0, 0, weight.data_ptr())
        for i, array in enumerate(self.model.arrays(0)[1:], 1):
            state = torch.empty(num_embeddings, array.width, dtype=(torch.float32, torch.bfloat16)[array.type])
            self.register_buffer(array.name.decode().replace(".", "_"), state)
            self.model.bind(0, i, state.data_ptr())
        self.model.init_states(0)
        self.set(**hypers)
        self._grad = torch.zeros((), requires_grad=True)  # so that autograd calls backward

    def set(self, **hypers):
        """Sets hyper-parameters, from the next backward on."""
        for name, value in hypers.items():
            self.model.set(0, name, value)

    @staticmethod
    def _check(tensor, name, dtypes):
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} is on {tensor.device}; this module takes CPU tensors")
        if tensor.dtype not in dtypes:
            raise TypeError(f"{name} is {tensor.dtype}, not one of {', '.join(map(str, dtypes))}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")

    def batch(self, ctx, weight_grad=None, trusted=False):
        """The call's batch. Its tensors live in ctx."""
        address = lambda t: None if t is None else t.data_ptr()
        input, offsets = ctx.tensors
        return embfuse.Batch(bags=len(offsets) - 1, lookups=len(input), ids=address(input), offsets=address(offsets),
                             lookup_weights=address(ctx.weights), winners=address(ctx.winners),
                             id_type=embfuse.ID_TYPES[str(input.dtype).partition(".")[2]], trusted=trusted,
                             weight_grad=address(weight_grad))

    def forward(self, input, offsets=None, per_sample_weights=None):
        if input.dim() == 2:
            if offsets is not None:
                raise ValueError("a 2D input has bags of one length, and takes no offsets")
            offsets = torch.arange(0, input.numel() + 1, input.shape[1])
            if per_sample_weights is not None:
                per_sample_weights = per_sample_weights.reshape(-1)
            input = input.reshape(-1)
        elif offsets is None:
            raise ValueError("a 1D input needs offsets")
        elif not self.include_last_offset:
            offsets = torch.cat((offsets, torch.tensor([len(input)])))
        input, offsets = input.contiguous(), offsets.to(torch.int64).contiguous()
        self._check(input, "input", (torch.int64, torch.int32))
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.contiguous()
            self._check(per_sample_weights, "per_sample_weights", (torch.float32,))
            if per_sample_weights.shape != input.shape:
                raise ValueError("per_sample_weights and input differ in shape")
        if len(offsets) < 2:  # no bags
            return torch.empty(0, self.embedding_dim, dtype=self.output_dtype)
        return _Lookup.apply(self, input, offsets, per_sample_weights, self._grad)
