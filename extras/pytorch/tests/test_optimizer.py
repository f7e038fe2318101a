#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embfuse.Optimizer with what torch puts around an optimizer: schedulers, GradScaler, accumulation, clipping."""
import copy
import gc
import sys

import installed
import tap

installed.use(__file__, "PyTorch optimizer")
import torch

from embfuse import EmbeddingBag, EmbeddingBagCollection, KeyedJaggedTensor, Optimizer, Table
from installed import fails

ROWS, DIM = 20, 4
START = torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(1))


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, ROWS, (12,), generator=generator), torch.tensor([0, 3, 3, 8])


def pair(optimizer="sgd", **hyper):
    """Ours, and torch's with the optimizer of the same name."""
    mode = hyper.pop("mode", "sum")
    ours = EmbeddingBag(ROWS, DIM, mode=mode, _weight=START.clone(), optimizer=optimizer, **hyper)
    return ours, torch.nn.EmbeddingBag(ROWS, DIM, mode=mode, _weight=START.clone())


def same(a, b, tolerance=1e-6):
    assert torch.allclose(a, b, atol=tolerance), (a - b).abs().max()


def test_the_step_waits_for_step(_):
    ours, theirs = pair(lr=0.5)
    mine, plain = Optimizer(ours), torch.optim.SGD(theirs.parameters(), lr=0.5)
    for bag in (ours, theirs):
        bag(*batch(1)).square().sum().backward()
    assert torch.equal(ours.weight, START) and ours.steps == 0
    for each in (mine, plain):
        each.step()
        each.zero_grad()
    same(ours.weight, theirs.weight)
    mine.step()
    assert ours.steps == 1 and mine.skipped == 0


def test_accumulated_passes_are_one_step(_):
    ours, theirs = pair("adagrad", lr=0.1, eps=1e-10)
    mine, plain = Optimizer(ours), torch.optim.Adagrad(theirs.parameters(), lr=0.1)
    for _ in range(3):
        for seed in range(4):
            for bag in (ours, theirs):
                (bag(*batch(seed)).square().sum() / 4).backward()
        for each in (mine, plain):
            each.step()
            each.zero_grad()
    same(ours.weight, theirs.weight, 1e-5)
    assert ours.steps == 3


def test_schedulers_change_the_rate(_):
    ours, theirs = pair(lr=0.5)
    mine, plain = Optimizer(ours), torch.optim.SGD(theirs.parameters(), lr=0.5)
    schedules = [torch.optim.lr_scheduler.SequentialLR(o, [
        torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [3])
        for o in (mine, plain)]
    for seed in range(8):
        for bag, optimizer, schedule in zip((ours, theirs), (mine, plain), schedules):
            bag(*batch(seed)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    same(ours.weight, theirs.weight, 1e-4 * float(theirs.weight.abs().max()))
    mine.step()
    assert abs(mine.param_groups[0]["lr"] - plain.param_groups[0]["lr"]) < 1e-12


def test_a_step_with_inf_is_skipped_and_counted(_):
    for broken in (None, 2):
        ours, theirs = pair(lr=0.5)
        mine, plain = Optimizer(ours), torch.optim.SGD(theirs.parameters(), lr=0.5)
        scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2) for _ in range(2)]
        for i in range(6):
            for bag, optimizer, scaler in zip((ours, theirs), (mine, plain), scalers):
                loss = bag(*batch(i)).square().sum() * (float("inf") if i == broken else 1)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        assert scalers[0].get_scale() == scalers[1].get_scale() != 1024
        assert mine.skipped == (broken is not None) and ours.steps == 6 - mine.skipped
        same(ours.weight, theirs.weight)


def test_skip_nonfinite(_):
    ours, _ = pair(lr=0.5)
    mine = Optimizer(ours, skip_nonfinite=True)
    for factor in (1.0, float("nan"), 1.0):
        (ours(*batch(1)).sum() * factor).backward()
        mine.step()
    assert mine.skipped == 1 and ours.steps == 2 and ours.weight.isfinite().all()


def test_clipping_is_torchs(_):
    for mode in ("sum", "mean", "max"):
        ours, theirs = pair(lr=0.5, mode=mode)
        nets = [torch.nn.Linear(DIM, 1), torch.nn.Linear(DIM, 1)]
        nets[1].load_state_dict(nets[0].state_dict())
        mine, plain = Optimizer(ours), torch.optim.SGD(theirs.parameters(), lr=0.5)
        for seed in range(2):
            for bag, net in zip((ours, theirs), nets):
                net(bag(*batch(seed))).square().sum().backward()
        norms = [mine.clip_grad_norm_(0.5, nets[0].parameters()),
                 torch.nn.utils.clip_grad_norm_([*theirs.parameters(), *nets[1].parameters()], 0.5)]
        assert norms[1] > 0.5
        same(*norms, 1e-4 * float(norms[1]))
        for each in (mine, plain):
            each.step()
        same(ours.weight, theirs.weight)
        same(nets[0].weight.grad, nets[1].weight.grad)


def test_clipping_of_collections_weights_and_padding(_):
    kjt = KeyedJaggedTensor(["a", "b", "c"], torch.tensor([1, 2, 1, 3, 3, 0, 1, 2]), torch.rand(8), lengths=torch.tensor([2, 1, 0, 3, 1, 1]))
    start = [torch.randn(5, 3), torch.randn(4, 2)]
    ours = EmbeddingBagCollection([Table(5, 3, "one", ["a", "b"], weight=start[0].clone(), padding_idx=3),
                                   Table(4, 2, "two", ["c"], weight=start[1].clone())])
    mine = Optimizer(ours)
    ours(kjt).values().square().sum().backward()
    bags = [torch.nn.EmbeddingBag(*w.shape, mode="sum", _weight=w.clone(), include_last_offset=True, padding_idx=p)
            for w, p in zip(start, (3, None))]
    at = torch.cat([torch.zeros(1, dtype=torch.long), kjt.lengths().cumsum(0)])
    for f, bag in enumerate((bags[0], bags[0], bags[1])):
        own = at[2 * f:2 * f + 3]
        piece = slice(int(own[0]), int(own[-1]))
        bag(kjt.values()[piece], own - own[0], kjt.weights_or_none()[piece]).square().sum().backward()
    want = torch.stack([b.weight.grad.norm() for b in bags]).norm()
    same(mine.clip_grad_norm_(1.0), want, 1e-5)


def test_groups_closures_and_state(_):
    ours, _ = pair("sparse_adam", lr=0.1, betas=(0.5, 0.75))
    mine = Optimizer(torch.nn.Sequential(ours, torch.nn.Linear(DIM, 1)))
    group, = mine.param_groups
    assert abs(group["lr"] - 0.1) < 1e-8 and group["betas"] == (0.5, 0.75) and group["params"][0] is ours.weight
    group["lr"] = 0.0

    def closure():
        loss = ours(*batch(1)).sum()
        loss.backward()
        return loss
    before = ours.weight.clone()
    assert mine.step(closure).item() == ours(*batch(1)).sum().item()
    assert torch.equal(before, ours.weight) and ours.steps == 1 and ours.lr == 0
    saved = mine.state_dict()
    other = Optimizer(pair("sparse_adam")[0])
    other.load_state_dict(saved)
    assert other.param_groups[0]["betas"] == (0.5, 0.75)
    fails(ValueError, "no table", Optimizer, torch.nn.Linear(2, 2))
    fails(ValueError, "2 tables", other.load_state_dict, {"param_groups": [{}, {}]})
    fails(ValueError, "it has no", other.load_state_dict, Optimizer(pair()[0]).state_dict())
    fails(ValueError, "groups are the tables", other.add_param_group, {"params": [torch.nn.Parameter(torch.ones(2))]})
    fails(TypeError, "save state_dict()", copy.deepcopy, other)
    torch.optim.lr_scheduler.OneCycleLR(other, 1.0, total_steps=10)


def test_groups_have_the_last_word(_):
    ours, theirs = pair(lr=0.5)
    mine = Optimizer(ours)
    ours.lr = 0.25
    mine.param_groups[0]["lr"] = 0.5
    for bag in (ours, theirs):
        bag(*batch(1)).sum().backward()
    mine.step()
    same(ours.weight, theirs.weight - 0.5 * theirs.weight.grad)


def test_what_waits_is_kept_apart(_):
    """Programs use the tensors of a batch again before step()."""
    ours, theirs = pair(lr=0.5)
    mine, (ids, offsets) = Optimizer(ours), batch(1)
    weights = torch.rand(len(ids))
    for bag in (theirs, ours):
        bag(ids, offsets, weights).sum().backward()
    for tensor in (ids, offsets, weights):
        tensor.zero_()
    mine.step()
    same(ours.weight, theirs.weight - 0.5 * theirs.weight.grad)


def test_an_optimizer_that_is_gone(_):
    ours, _ = pair(lr=0.5)
    mine = Optimizer(ours)
    ours(*batch(1)).sum().backward()
    del mine
    gc.collect()
    ours(*batch(1)).sum().backward()
    assert ours.steps == 1 and not ours._model.gradients()


def test_a_pass_that_raises_leaves_nothing(_):
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("as planned")
    for optimizer in (False, True):
        bags = [pair(lr=0.5)[0] for _ in range(2)]
        mine = Optimizer(bags) if optimizer else None
        start = Raises.apply(torch.zeros(3, requires_grad=True)).sum()
        fails(RuntimeError, "as planned", (sum(b(*batch(1)).sum() for b in bags) + start).backward)
        assert all(torch.equal(b.weight, START) and b.steps == 0 for b in bags)
        for b in bags:
            b(*batch(2)).sum().backward()
        if mine:
            mine.step()
        expected = pair(lr=0.5)[0]
        expected(*batch(2)).sum().backward()
        assert all(torch.equal(b.weight, expected.weight) and b.steps == 1 for b in bags)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "PyTorch optimizer"))
