# SPDX-License-Identifier: MIT
"""torch.nn.EmbeddingBag whose backward pass is fused with its optimizer, by libembfuse.

    bag = EmbeddingBag(rows, 64, mode="sum", optimizer="rowwise_adagrad", lr=0.05)
    loss(net(bag(ids, offsets))).backward()      # the rows of `ids` have taken their step

The weights are a buffer and not a parameter: no gradient of them exists, and no torch.optim knows them. The library
reads and writes the tensors where they are. The step is taken in backward(), once per forward.

What autograd cannot see is checked here. A backward pass of rows that have taken a step since their forward is an
error, as it is for a tensor that was changed in place: two forwards of one module before a backward would be two
steps, of gradients that belong together. backward() may be called on several modules from several threads.
"""
import os
import sys

import torch
from torch.autograd.function import once_differentiable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "library", "examples"))
import embfuse
from embfuse import constant

TYPES = {torch.float32: constant.FP32, torch.bfloat16: constant.BF16, torch.float16: constant.FP16}
TENSORS = {kind: dtype for dtype, kind in TYPES.items()}
MODES = {"sum": constant.SUM, "mean": constant.MEAN, "max": constant.MAX}
ROUNDINGS = {"nearest": constant.NEAREST, "stochastic": constant.STOCHASTIC}


class _Lookup(torch.autograd.Function):
    """The table is not among the inputs. `anchor` is a scalar that wants a gradient, so that backward() runs."""

    @staticmethod
    def forward(ctx, anchor, per_sample_weights, bag, ids, offsets):
        output = torch.empty(len(offsets) - 1, bag.embedding_dim, dtype=bag.output_dtype)
        winners = torch.empty(output.shape, dtype=torch.int32) if bag.mode == "max" else None
        batch = bag._model.batch(ids, offsets, per_sample_weights, winners)
        bag._model.forward(batch, output)
        ctx.bag, ctx.batch, ctx.steps = bag, batch, bag.steps
        ctx.save_for_backward(ids, offsets, per_sample_weights)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        bag, (_, _, weights) = ctx.bag, ctx.saved_tensors  # an error if one was changed in place
        if bag.steps != ctx.steps:
            raise RuntimeError(f"the table has taken {bag.steps - ctx.steps} steps since this forward pass; call "
                               "backward() once for each forward(), before the next one")
        if len(grad) == 0:
            grad = grad.new_zeros(1, bag.embedding_dim)
        grad = grad.contiguous()  # .sum().backward() gives one element with strides of 0
        weight_grad = torch.empty_like(weights) if ctx.needs_input_grad[1] else None
        bag._model.step(ctx.batch, grad, weight_grad)
        return None, weight_grad, None, None, None


class EmbeddingBag(torch.nn.Module):
    """The arguments of torch.nn.EmbeddingBag and, by keyword:

    optimizer    a rule of rules/README.md; its hyper-parameters are further keywords (lr, eps, beta1 ...), and
                 set(lr=...) changes them between steps, or bag.lr = ...
    dtype        of the weights: float32, bfloat16 or float16; rounding "nearest" or "stochastic" is how steps
                 write narrow ones, with `seed`
    output_dtype of outputs and gradients; float32 otherwise
    threads      those of PyTorch otherwise
    kernel       as `embfuse list` names it

    sparse has no meaning here: only the rows of a batch are touched.
    """

    def __init__(self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean",
                 sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None, *,
                 optimizer="sgd", output_dtype=torch.float32, rounding="nearest", seed=0, threads=None, kernel="auto",
                 **hyper):
        super().__init__()
        if mode not in MODES or max_norm is not None or scale_grad_by_freq:
            raise NotImplementedError("mode is sum, mean or max, without max_norm and scale_grad_by_freq")
        if torch.device(device or "cpu").type != "cpu":
            raise NotImplementedError(f"device {device}: this example is for the host")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx {padding_idx} is not a row of {num_embeddings}")
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.include_last_offset, self.output_dtype, self.optimizer = include_last_offset, output_dtype, optimizer
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        if _weight is None:
            _weight = torch.randn(num_embeddings, embedding_dim).to(dtype or torch.float32)
            if padding_idx is not None:
                _weight[padding_idx] = 0
        elif tuple(_weight.shape) != (num_embeddings, embedding_dim) or dtype not in (None, _weight.dtype):
            raise ValueError(f"_weight is {_weight.dtype} {list(_weight.shape)}")
        if _weight.dtype not in TYPES or output_dtype not in TYPES:
            raise TypeError(f"weights and outputs are {', '.join(map(str, TYPES))}, not {_weight.dtype}, {output_dtype}")
        self._model = embfuse.Model(
            [{"rows": num_embeddings, "dim": embedding_dim, "rule": optimizer, "weight_type": TYPES[_weight.dtype],
              "rounding": ROUNDINGS[rounding]}],
            [{"table": 0, "pooling": MODES[mode], "has_padding": padding_idx is not None,
              "padding_id": self.padding_idx or 0}], kernel=kernel,
            threads=threads or torch.get_num_threads(), grad_type=TYPES[output_dtype], rounding_seed=seed)
        self.register_buffer("weight", _weight.detach())
        self._names = ["weight"]
        for array in self._model.arrays(0)[1:]:
            self._names.append(array.name.decode().replace(".", "_"))
            self.register_buffer(self._names[-1], torch.zeros(num_embeddings, array.width, dtype=TENSORS[array.type]))
        self._kept = [(t.dtype, t.shape) for t in self._buffers.values()]
        self.set(**hyper)
        self._bind()
        self._model.init_states(0)

    def _bind(self):
        """Binds the tensors; load_state_dict() writes into them, .to() and others may replace them."""
        for i, name in enumerate(self._names):
            tensor = getattr(self, name)
            if (tensor.dtype, tensor.shape) != self._kept[i]:
                raise TypeError(f"{name} is {tensor.dtype} {list(tensor.shape)}, not {self._kept[i]}")
            self._model.bind(0, i, tensor)

    def _apply(self, fn, *recurse, **how):
        before = dict(self._buffers)
        super()._apply(fn, *recurse, **how)
        try:
            self._bind()
        except TypeError:
            self._buffers.update(before)
            raise
        return self

    def set(self, **hyper):
        """Sets hyper-parameters, from the next backward pass on."""
        for name, value in hyper.items():
            self._model.set(name, value)

    lr = property(lambda self: self._model.get("lr"), lambda self, value: self.set(lr=value))

    @property
    def steps(self):
        """The steps taken, which bias corrections and stochastic rounding depend on."""
        return self._model.get_steps()

    def get_extra_state(self):
        return {"steps": self.steps, "lr": self.lr}

    def set_extra_state(self, state):
        self._model.set_steps(state["steps"])
        self.lr = state["lr"]

    def _offsets(self, ids, offsets):
        """The first lookup of each bag, and behind the last one the number of lookups."""
        if ids.dim() == 2:
            if offsets is not None:
                raise ValueError("ids of two dimensions have no offsets: each row is a bag")
            return torch.arange(len(ids) + 1) * ids.shape[1]
        if ids.dim() != 1 or offsets is None or offsets.dim() != 1:
            raise ValueError("ids have two dimensions, or one and offsets of one")
        if offsets.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"offsets are {offsets.dtype}, not int32 or int64")
        if not self.include_last_offset:
            offsets = torch.cat([offsets.long(), torch.tensor([len(ids)])])
        elif len(offsets) == 0:
            raise ValueError("with include_last_offset there is at least one offset")
        return offsets.long().contiguous()

    def forward(self, input, offsets=None, per_sample_weights=None):
        for tensor in (input, offsets, per_sample_weights):
            if tensor is not None and tensor.device.type != "cpu":
                raise TypeError(f"a tensor is on {tensor.device}, not on the host")
        offsets = self._offsets(input, offsets)
        if per_sample_weights is not None:
            if self.mode != "sum":
                raise NotImplementedError("per_sample_weights are for mode sum")
            if per_sample_weights.shape != input.shape:
                raise ValueError("per_sample_weights have the shape of the ids")
            per_sample_weights = per_sample_weights.reshape(-1).contiguous()
        anchor = torch.zeros((), requires_grad=True)
        return _Lookup.apply(anchor, per_sample_weights, self, input.reshape(-1).contiguous(), offsets)

    def extra_repr(self):
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode}, optimizer={self.optimizer}"
