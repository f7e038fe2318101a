#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""extras/pytorch against torch.nn.EmbeddingBag and torch.optim: the same losses over 200 steps, the same outputs and
steps in every form of the input; errors where autograd or a wrong tensor would break it.

The interpreter is found as in test_torch_optim.py. Without PyTorch the test is skipped.
"""
import copy
import itertools
import sys

import tap

tap.use_torch(__file__)
sys.dont_write_bytecode = True
try:
    import torch
except ImportError as e:
    tap.skip_all("PyTorch example", f"{e}: make peers installs it, or set TORCH_PYTHON")
import embfuse
import train
from embedding_bag import EmbeddingBag

STEPS, EPSILON = 200, 2.0**-24
# Losses are means of 128 numbers below 1.5, which both compute in float32 from weights that are as near. Largest seen: 2
# roundings.
LOSS_TOLERANCE = 16 * EPSILON
# Of the largest weight: two standard deviations of 200 roundings. It holds for every element, because the linear layer keeps
# gradients away from 0, where a rounding decides the direction of a step of Adagrad or Adam. Largest seen: 9 roundings.
WEIGHT_TOLERANCE = 32 * EPSILON


def fails(kind, text, function, *args, **how):
    try:
        function(*args, **how)
    except kind as e:
        assert text in str(e), f"{text!r} is not in {e!s:.200}"
    else:
        raise AssertionError(f"no {kind}: {text}")


def test_losses_and_weights_over_200_steps(_):
    def change(theirs, _):
        """SGD of PyTorch rounds once for each lookup, unless it gets the sum: up to 233 roundings instead of 2."""
        theirs.bag.weight.register_hook(lambda grad: grad.coalesce())
    for name in train.RULES:
        generator = torch.Generator().manual_seed(3)
        stream = train.Stream(*train.drawn_bags(3000, 5000, generator), 128, generator)
        theirs, ours = train.train(name, stream, STEPS, 32, change=change)
        assert theirs.losses[-1] < 0.95 * theirs.losses[0], "nothing is learnt, so nothing is compared"
        loss, weight = train.differences(theirs, ours)
        assert loss <= LOSS_TOLERANCE and weight <= WEIGHT_TOLERANCE, (name, loss / EPSILON, weight / EPSILON)


# --- every form of the input: outputs, gradients of per-sample weights and a step of SGD

IDS = torch.tensor([3, 1, 3, 0, 5, 5, 2, 3])
OFFSETS = torch.tensor([0, 3, 3, 7])
FORMS = {
    "offsets with the last one": ({"include_last_offset": True}, IDS, torch.tensor([0, 2, 8])),
    "two dimensions": ({"mode": "sum"}, IDS.reshape(2, 4), None),
    "no ids, max": ({"mode": "max"}, IDS[:0], torch.tensor([0, 0])),
    "no bags": ({"include_last_offset": True}, IDS[:0], torch.tensor([0])),
}


def counted(y):
    """A backward pass with gradients 1, 2, 3 ..."""
    y.backward(torch.arange(1.0, 1 + y.numel()).reshape(y.shape))


def same(options, ids, offsets, weights=None, backward=counted):
    start = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    theirs = torch.nn.EmbeddingBag(6, 5, _weight=start.clone(), **options)
    ours = EmbeddingBag(6, 5, _weight=start.clone(), lr=0.5, **options)
    given = [None if weights is None else weights.clone().requires_grad_() for _ in range(2)]
    outputs = [bag(ids, offsets, w) for bag, w in zip((theirs, ours), given)]
    assert outputs[0].shape == outputs[1].shape and torch.allclose(*outputs, atol=1e-6), outputs
    for y in outputs:
        backward(y)
    want = theirs.weight.detach() - 0.5 * theirs.weight.grad
    assert torch.allclose(want, ours.weight, atol=1e-5), (want, ours.weight)
    assert ours.steps == 1
    if weights is not None:
        assert torch.allclose(given[0].grad, given[1].grad, atol=1e-5), [w.grad for w in given]


def test_every_mode_padding_and_type_of_ids(_):
    for mode, padding, dtype in itertools.product(("sum", "mean", "max"), (None, 3, -1), (torch.int64, torch.int32)):
        same({"mode": mode, "padding_idx": padding}, IDS.to(dtype), OFFSETS.to(dtype))


def test_other_forms_of_the_input(_):
    for name, (options, ids, offsets) in FORMS.items():
        print(f"# {name}")
        same(options, ids, offsets)


def test_per_sample_weights_and_their_gradient(_):
    weights = torch.linspace(-1, 2, 8)
    for padding in (None, 3, -1):
        options = {"mode": "sum", "padding_idx": padding}
        same(options, IDS, OFFSETS, weights)
        same(options, IDS.reshape(2, 4), None, weights.reshape(2, 4))


def test_gradients_that_are_transposed_or_cut(_):
    drawn = torch.randn(5, 8, generator=torch.Generator().manual_seed(4))
    for mode in ("sum", "max"):
        same({"mode": mode}, IDS, OFFSETS, backward=lambda y: y.backward(drawn[:, :4].t()))
        same({"mode": mode}, IDS, OFFSETS, backward=lambda y: y.backward(drawn.repeat(1, 2)[:4, ::2][:, :5]))


def test_rate_and_state_dict(_):
    offsets = torch.tensor([0, 3])
    step = lambda bag: bag(IDS, offsets).square().sum().backward()
    bag = EmbeddingBag(6, 5, optimizer="adam", lr=0.1)
    assert set(bag.state_dict()) == {"weight", "state_0", "state_1", "_extra_state"}
    assert not list(bag.parameters())
    step(bag)
    bag.lr = 0.0
    before = bag.weight.clone()
    step(bag)
    assert torch.equal(bag.weight, before) and bag.steps == 2
    bag.lr = 0.2
    other = EmbeddingBag(6, 5, optimizer="adam")
    other.load_state_dict(copy.deepcopy(bag.state_dict()))
    for each in (bag, other):
        step(each)
    assert other.lr == bag.lr and other.steps == 3
    assert torch.equal(bag.weight, other.weight) and torch.equal(bag.state_1, other.state_1)


# --- errors, not crashes

def test_wrong_tensors_are_refused(_):
    bag = EmbeddingBag(6, 5, mode="sum")
    before, offsets = bag.weight.clone(), torch.tensor([0, 3])
    fails(TypeError, "not int32 or int64", bag, IDS.float(), offsets)
    fails(TypeError, "not int32 or int64", bag, IDS, offsets.float())
    fails(TypeError, "not on the host", bag, IDS.to("meta"), offsets)
    fails(TypeError, "not float32", bag, IDS, offsets, torch.ones(8).double())
    fails(ValueError, "shape", bag, IDS, offsets, torch.ones(7))
    fails(ValueError, "no offsets", bag, IDS.reshape(2, 4), offsets)
    fails(ValueError, "offsets", bag, IDS)
    fails(embfuse.Error, "lookup 1", bag, torch.tensor([0, 6]), torch.tensor([0]))
    fails(embfuse.Error, "offsets", bag, IDS, torch.tensor([0, 5, 3]))
    assert torch.equal(bag.weight, before) and bag.steps == 0


def test_wrong_models_are_refused(_):
    for options in ({"mode": "min"}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"device": "cuda"}):
        fails(NotImplementedError, "", EmbeddingBag, 6, 5, **options)
    fails(embfuse.Error, "no_such_rule", EmbeddingBag, 6, 5, optimizer="no_such_rule")
    fails(TypeError, "float64", EmbeddingBag, 6, 5, dtype=torch.float64)
    fails(TypeError, "contiguous", EmbeddingBag, 6, 5, _weight=torch.zeros(5, 6).t())
    fails(ValueError, "padding_idx", EmbeddingBag, 6, 5, padding_idx=6)
    fails(NotImplementedError, "mode sum", EmbeddingBag(6, 5, mode="max"), IDS, torch.tensor([0]), torch.ones(8))


def test_a_backward_of_rows_that_have_moved_is_refused(_):
    bag = EmbeddingBag(6, 5, mode="sum")
    first, second = (bag(IDS, torch.tensor([0])) for _ in range(2))
    first.sum().backward()
    fails(RuntimeError, "1 steps since this forward", second.sum().backward)
    ids = IDS.clone()
    y = bag(ids, torch.tensor([0]))
    ids[0] = 5
    fails(RuntimeError, "modified by an inplace operation", y.sum().backward)
    assert bag.steps == 1


if __name__ == "__main__":
    torch.manual_seed(5)
    sys.exit(tap.run(globals(), "PyTorch example"))
