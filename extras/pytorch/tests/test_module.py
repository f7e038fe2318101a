#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""EmbeddingBag of extras/pytorch against torch.nn.EmbeddingBag and torch.optim: the same losses over 200 steps, the same
outputs and steps in every form of the input; what freezes, copies, saves and replaces weights; errors where autograd or a
wrong tensor would break it.
"""
import copy
import io
import itertools
import os
import sys
import threading

import installed
import tap

installed.use(__file__, "PyTorch module")
import torch

import train
from embfuse import EmbeddingBag
from installed import fails

STEPS, EPSILON = 200, 2.0**-24
# Losses are means of 128 numbers below 1.5, which both compute in float32 from weights that are as near. Largest seen: 2
# roundings.
LOSS_TOLERANCE = 16 * EPSILON
# Of the largest weight: two standard deviations of 200 roundings. It holds for every element, because the linear layer keeps
# gradients away from 0, where a rounding decides the direction of a step of Adagrad or Adam. Largest seen: 9 roundings.
WEIGHT_TOLERANCE = 32 * EPSILON


def test_losses_and_weights_over_200_steps(_):
    def change(theirs, _):
        """SGD of PyTorch rounds once for each lookup, unless it gets the sum: up to 233 roundings instead of 2."""
        theirs.bag.weight.register_hook(lambda grad: grad.coalesce() if grad.is_sparse else grad)
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


def test_means_take_per_sample_weights(_):
    weights = torch.linspace(-1, 2, 8).requires_grad_()
    bag = EmbeddingBag(6, 5, mode="mean", lr=0.5)
    start = bag.weight.detach().clone()
    counts = torch.tensor([3, 0, 4, 1]).clamp(min=1)
    ours, rows = bag(IDS, OFFSETS, weights), start.clone().requires_grad_()
    plain = torch.nn.functional.embedding_bag(IDS, rows, OFFSETS, mode="sum", per_sample_weights=weights) / counts[:, None]
    assert torch.allclose(ours, plain, atol=1e-6)
    counted(plain)
    want, weights.grad = weights.grad, None
    counted(ours)
    assert torch.allclose(weights.grad, want, atol=1e-5) and torch.allclose(bag.weight, start - 0.5 * rows.grad, atol=1e-5)


# --- what trains

OFFSET = torch.tensor([0, 3])
step_of = lambda bag: bag(IDS, OFFSET).square().sum().backward()


def test_frozen_is_frozen(_):
    weights = torch.ones(8, requires_grad=True)
    bag = EmbeddingBag(6, 5, mode="sum", optimizer="adam", lr=0.1, weight_decay=0.1)
    before = copy.deepcopy(bag.state_dict())
    unchanged = lambda: all(torch.equal(before[n], bag.state_dict()[n]) for n in ("weight", "state_0")) and bag.steps == 0
    bag.requires_grad_(False)
    assert not bag(IDS, OFFSET).requires_grad
    bag(IDS, OFFSET, weights).sum().backward()  # the weights have a gradient, the table takes no step
    assert weights.grad is not None and unchanged()
    bag.requires_grad_(True)
    with torch.no_grad():
        assert not bag(IDS, OFFSET).requires_grad
    with torch.inference_mode():
        bag(IDS, OFFSET)
    assert unchanged() and bag.weight.grad is None
    step_of(bag)
    assert bag.steps == 1 and not torch.equal(before["weight"], bag.weight)
    frozen = EmbeddingBag.from_pretrained(torch.ones(6, 5), mode="sum")
    assert not frozen(IDS, OFFSET).requires_grad
    assert EmbeddingBag.from_pretrained(torch.ones(6, 5), freeze=False)(IDS, OFFSET).requires_grad


def test_lookups_of_one_pass_are_one_step(_):
    bags = [EmbeddingBag(6, 5, mode="sum", _weight=torch.ones(6, 5), optimizer="adagrad", lr=0.1) for _ in range(2)]
    (bags[0](IDS, OFFSET).sum() + bags[0](IDS[:4], OFFSET).sum()).backward()
    bags[1](torch.cat([IDS, IDS[:4]]), torch.tensor([0, 3, 8, 11])).sum().backward()
    assert torch.equal(bags[0].weight, bags[1].weight) and bags[0].steps == 1


def test_torch_optim_leaves_the_table_alone(_):
    bag = EmbeddingBag(6, 5, mode="sum", lr=0.1)
    optimizer = torch.optim.AdamW(bag.parameters(), lr=1.0, weight_decay=0.5)
    step_of(bag)
    after = bag.weight.detach().clone()
    optimizer.step()
    assert torch.equal(after, bag.weight)


# --- checkpoints and copies

def test_rate_and_state_dict(_):
    bag = EmbeddingBag(6, 5, optimizer="adam", lr=0.1)
    assert set(bag.state_dict()) == {"weight", "state_0", "state_1", "_extra_state"}
    step_of(bag)
    bag.lr = 0.0
    before = bag.weight.clone()
    step_of(bag)
    assert torch.equal(bag.weight, before) and bag.steps == 2
    bag.set(lr=0.2, betas=(0.5, 0.75))
    saved = copy.deepcopy(bag.state_dict())
    others = [EmbeddingBag(6, 5, optimizer="adam") for _ in range(2)]
    others[0].load_state_dict(saved)
    others[1].load_state_dict(copy.deepcopy(saved), assign=True)
    for each in (bag, *others):
        step_of(each)
    for other in others:
        assert other.hyper() == bag.hyper() and other.steps == 3
        assert torch.equal(bag.weight, other.weight) and torch.equal(bag.state_1, other.state_1)


def test_a_checkpoint_of_torch(_):
    theirs = torch.nn.EmbeddingBag(6, 5)
    bag = EmbeddingBag(6, 5, optimizer="adam", lr=0.1)
    step_of(bag)
    bag.load_state_dict(theirs.state_dict())
    assert torch.equal(bag.weight, theirs.weight) and bag.steps == 0 and not bag.state_0.any()
    torch.nn.Sequential(EmbeddingBag(6, 5)).load_state_dict(torch.nn.Sequential(theirs).state_dict())


def test_a_checkpoint_of_another_rule_is_refused(_):
    saved = EmbeddingBag(6, 5, optimizer="adagrad").state_dict()
    bag = EmbeddingBag(6, 5, optimizer="adadelta")
    before = copy.deepcopy(bag.state_dict())
    fails(RuntimeError, "saved with adagrad", bag.load_state_dict, saved)
    fails(RuntimeError, "size mismatch", bag.load_state_dict, EmbeddingBag(7, 5, optimizer="adadelta").state_dict())
    assert torch.equal(before["weight"], bag.weight) and torch.equal(before["state_0"], bag.state_0)
    fails(RuntimeError, "state_0", bag.load_state_dict, {k: v for k, v in before.items() if k != "state_0"})


def test_copies_go_on_alone(_):
    bag = EmbeddingBag(6, 5, optimizer="adam", lr=0.1, eps=0.5)
    step_of(bag)
    file = io.BytesIO()
    torch.save(bag, file)
    file.seek(0)
    for other in (copy.deepcopy(bag), torch.load(file, weights_only=False)):
        assert torch.equal(bag.weight, other.weight) and other.hyper() == bag.hyper() and other.steps == 1
        step_of(other)
        assert other.steps == 2 and bag.steps == 1 and not torch.equal(bag.weight, other.weight)


def test_averaged_model(_):
    bag = EmbeddingBag(6, 5, mode="sum", lr=0.5)
    average, seen = torch.optim.swa_utils.AveragedModel(bag), []
    for _ in range(3):
        step_of(bag)
        average.update_parameters(bag)
        seen.append(bag.weight.detach().clone())
    want = torch.stack(seen).mean(0)
    assert torch.allclose(average.module.weight, want, atol=1e-6)
    assert torch.allclose(average(IDS, OFFSET), torch.nn.functional.embedding_bag(IDS, want, OFFSET, mode="sum"), atol=1e-5)


def test_weights_that_are_replaced(_):
    new, bag = torch.ones(6, 5), EmbeddingBag(6, 5, mode="sum", lr=0.5)
    step_of(bag)
    bag.weight.data = new.clone()
    assert torch.equal(bag(IDS, OFFSET)[0], 3 * new[0])
    step_of(bag)
    assert not torch.equal(bag.weight, new) and bag.steps == 2
    other = {"weight": torch.full((6, 5), 2.0)}
    assert torch.equal(torch.func.functional_call(bag, other, (IDS, OFFSET))[0], 6 * new[0])
    wide = torch.zeros(6, 8)
    bag.weight = torch.nn.Parameter(wide[:, :5])
    step_of(bag)
    assert not wide[:, 5:].any()
    bag.weight = torch.nn.Parameter(torch.zeros(5, 5))
    fails(ValueError, "shape", bag, IDS, OFFSET)


def test_weights_that_cannot_be_stepped_are_refused(_):
    fails(ValueError, "overlap", EmbeddingBag.from_pretrained(torch.ones(1, 5).expand(6, 5)), IDS, OFFSET)
    bag = EmbeddingBag(6, 5, mode="sum", lr=0.5)
    base = torch.ones(6, 5, requires_grad=True)
    fails(ValueError, "no leaf", torch.func.functional_call, bag, {"weight": 2 * base}, (IDS, OFFSET))
    for other in (OFFSET.to("meta"), None), (OFFSET, torch.ones(8, device="meta")):
        fails(TypeError, "on meta, the table is on cpu", bag, IDS, *other)


def test_hooks_of_saved_tensors_see_no_table(_):
    bags = [EmbeddingBag(6, 5, mode="sum", _weight=torch.ones(6, 5), optimizer="adagrad", lr=0.5) for _ in range(2)]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        y = bags[0](IDS, OFFSET)
    y.sum().backward()
    bags[1](IDS, OFFSET).sum().backward()
    assert bags[0].steps == 1 and torch.equal(bags[0].weight, bags[1].weight)


def test_batches_without_lookups_or_bags(_):
    weights = torch.ones(0, requires_grad=True)
    bag = EmbeddingBag(6, 5, mode="sum", lr=0.5)
    bag(IDS[:0], torch.tensor([0, 0]), weights).sum().backward()
    assert weights.grad.shape == (0,) and bag.steps == 1
    for mode in ("sum", "mean", "max"):
        bag = EmbeddingBag(6, 5, mode=mode, lr=0.5)
        bag(torch.zeros(0, 3, dtype=torch.long)).sum().backward()
        assert bag.steps == 1


def test_other_layers_of_a_checkpoint(_):
    """Only tables that it has begin anew."""
    net = torch.nn.Sequential(EmbeddingBag(6, 5, mode="sum", optimizer="adam"), torch.nn.Linear(5, 1))
    step_of(net[0])
    net.load_state_dict({"1.weight": torch.zeros(1, 5)}, strict=False)
    assert net[0].steps == 1 and net[0].state_0.any()


def test_types_places_and_sharing(_):
    bag = EmbeddingBag(6, 5, mode="sum", optimizer="adagrad", lr=0.5).bfloat16()
    step_of(bag)
    assert bag.weight.dtype == torch.bfloat16 and bag.state_0.dtype == torch.float32 and bag.steps == 1
    with torch.device("meta"):
        bag = EmbeddingBag(6, 5, mode="sum", optimizer="adam")
    bag.load_state_dict(EmbeddingBag(6, 5, mode="sum", optimizer="adam").state_dict(), assign=True)
    step_of(bag)
    assert bag.steps == 1
    torch.set_default_dtype(torch.bfloat16)
    try:
        step_of(EmbeddingBag(6, 5, mode="sum", optimizer="adagrad"))
    finally:
        torch.set_default_dtype(torch.float32)
    assert bag.share_memory()._steps.is_shared() and bag.weight.is_shared() and bag.state_1.is_shared()


def test_passes_of_several_threads(_):
    """Each is a step of its own; none is lost, and a pass that finds its rows changed says so."""
    bag = EmbeddingBag(6, 5, mode="sum", lr=0.5, threads=1)
    taken, refused = [], []

    def passes():
        for _ in range(50):
            try:
                step_of(bag)
                taken.append(1)
            except RuntimeError as e:
                refused.append(str(e))
    threads = [threading.Thread(target=passes) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert bag.steps == len(taken) and len(taken) + len(refused) == 150, (bag.steps, len(taken))
    assert all("rows have changed" in text for text in refused), refused


def test_a_child_process_is_told(_):
    bag = EmbeddingBag(6, 5, mode="sum", threads=2)
    step_of(bag)
    child = os.fork()
    if child == 0:
        try:
            step_of(bag)
        except RuntimeError as e:
            os._exit(0 if "fork()" in str(e) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    alone = EmbeddingBag(6, 5, mode="sum", threads=1)
    if (child := os.fork()) == 0:
        with torch.no_grad():
            os._exit(0 if alone(IDS, OFFSET).isfinite().all() else 1)
    assert os.waitpid(child, 0)[1] == 0


# --- errors, not crashes

def test_wrong_tensors_are_refused(_):
    bag = EmbeddingBag(6, 5, mode="sum")
    before, offsets = bag.weight.clone(), torch.tensor([0, 3])
    fails(TypeError, "not int32 or int64", bag, IDS.float(), offsets)
    fails(TypeError, "not int32 or int64", bag, IDS, offsets.float())
    fails(TypeError, "table is on cpu", bag, IDS.to("meta"), offsets)
    fails(TypeError, "not float32", bag, IDS, offsets, torch.ones(8).double())
    fails(ValueError, "shape", bag, IDS, offsets, torch.ones(7))
    fails(ValueError, "no offsets", bag, IDS.reshape(2, 4), offsets)
    fails(ValueError, "offsets", bag, IDS)
    fails(IndexError, "lookup 1", bag, torch.tensor([0, 6]), torch.tensor([0]))
    fails(IndexError, "offsets", bag, IDS, torch.tensor([0, 5, 3]))
    assert torch.equal(bag.weight, before) and bag.steps == 0


def test_wrong_models_are_refused(_):
    for options in ({"mode": "min"}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}):
        fails(NotImplementedError, "", EmbeddingBag, 6, 5, **options)
    fails(ValueError, "no_such_rule", EmbeddingBag, 6, 5, optimizer="no_such_rule")
    fails(ValueError, "rho", EmbeddingBag, 6, 5, optimizer="adam", rho=1)
    fails(ValueError, "single precision", EmbeddingBag, 6, 5, lr=-1)
    fails(TypeError, "float64", EmbeddingBag, 6, 5, dtype=torch.float64)
    fails(ValueError, "contiguous", EmbeddingBag(6, 5, _weight=torch.zeros(5, 6).t()), IDS, torch.tensor([0]))
    fails(ValueError, "padding_idx", EmbeddingBag, 6, 5, padding_idx=6)
    fails(NotImplementedError, "sum and mean", EmbeddingBag(6, 5, mode="max"), IDS, torch.tensor([0]), torch.ones(8))
    bag = EmbeddingBag(6, 5, optimizer="adam")
    fails(TypeError, "float64", bag.double)
    assert bag.weight.dtype == bag.state_0.dtype == torch.float32
    if not torch.cuda.is_available():
        fails((RuntimeError, AssertionError), "", EmbeddingBag, 6, 5, device="cuda")


def test_names_of_other_systems(_):
    for name, rule in (("AdamW", "adam"), ("SparseAdam", "adam_epsilon_hat"), (torch.optim.SGD, "sgd"),
                       ("EXACT_ROWWISE_ADAGRAD", "rowwise_adagrad"), ("PARTIAL_ROWWISE_LAMB", "rowwise_lamb")):
        assert EmbeddingBag(6, 5, optimizer=name).optimizer == rule, name
    assert EmbeddingBag(6, 5, optimizer="SGD", momentum=0.5, nesterov=True).hyper()["momentum"] == 0.5
    assert EmbeddingBag(6, 5, optimizer="Adam", amsgrad=True).optimizer == "amsgrad"
    assert EmbeddingBag(6, 5, optimizer="AdamW", weight_decay=0.1).hyper()["decoupled_weight_decay"] == 1


def test_a_backward_of_rows_that_have_moved_is_refused(_):
    bag = EmbeddingBag(6, 5, mode="sum")
    first, second = (bag(IDS, torch.tensor([0])) for _ in range(2))
    first.sum().backward()
    fails(RuntimeError, "rows have changed since this lookup", second.sum().backward)
    ids = IDS.clone()
    y = bag(ids, torch.tensor([0]))
    ids[0] = 5
    fails(RuntimeError, "modified by an inplace operation", y.sum().backward)
    assert bag.steps == 1
    fails(NotImplementedError, "create_graph", bag(IDS, OFFSET).sum().backward, create_graph=True)
    assert bag.steps == 1


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "PyTorch module"))
