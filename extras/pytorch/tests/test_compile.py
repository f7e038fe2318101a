#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The modules of extras/pytorch under torch.compile: one graph, the same steps, and no copy of a table."""
import copy
import os
import resource
import sys

import installed
import tap

installed.use(__file__, "PyTorch compile")
import torch

from embfuse import EmbeddingBag, EmbeddingBagCollection, KeyedJaggedTensor, Optimizer, Table


class Net(torch.nn.Module):
    def __init__(self, bag):
        super().__init__()
        self.bag, self.linear = bag, torch.nn.Linear(bag.embedding_dim, 1)

    def forward(self, ids, offsets, weights=None):
        return self.linear(torch.relu(self.bag(ids, offsets, weights))).square().mean()


def batches(rows, bags=8):
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(0, 6, (bags + seed,), generator=generator)
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])[:-1]
        yield torch.randint(0, rows, (int(lengths.sum()),), generator=generator), offsets


def compare(net, waits=False, weights_learn=False):
    """Trains a compiled copy beside the module. waits: an Optimizer takes the steps."""
    torch.compiler.reset()
    compiled_net = copy.deepcopy(net)
    compiled = torch.compile(compiled_net, fullgraph=True)
    optimizers = [Optimizer(n) for n in (net, compiled_net)] if waits else []
    for ids, offsets in batches(net.bag.num_embeddings):
        weights = torch.rand(len(ids)) if net.bag.mode == "sum" else None
        given = [weights if weights is None else weights.clone().requires_grad_(weights_learn) for _ in range(2)]
        losses = [f(ids, offsets, w) for f, w in zip((net, compiled), given)]
        assert torch.allclose(*losses, rtol=1e-5), losses
        for loss in losses:
            loss.backward()
        if weights_learn:
            assert torch.allclose(given[0].grad, given[1].grad, rtol=1e-4), [w.grad for w in given]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert net.bag.steps == compiled_net.bag.steps == 4
    for name, array in net.bag.state_dict().items():
        other = compiled_net.bag.state_dict()[name]
        assert array == other if name == "_extra_state" else torch.allclose(array, other, rtol=1e-4, atol=1e-6), name


def test_one_graph_and_the_same_steps(_):
    for mode in ("sum", "mean", "max"):
        compare(Net(EmbeddingBag(50, 8, mode=mode, optimizer="adam", lr=0.05)))


def test_the_step_waits_for_an_optimizer(_):
    compare(Net(EmbeddingBag(50, 8, mode="sum", optimizer="adagrad", lr=0.05)), waits=True)


class Twice(Net):
    def forward(self, ids, offsets, weights=None):
        return self.linear(self.bag(ids, offsets, weights) * self.bag(ids, offsets, 2 * weights)).square().mean()


def test_two_lookups_are_one_step(_):
    compare(Twice(EmbeddingBag(50, 8, mode="sum", optimizer="adagrad", lr=0.05)), weights_learn=True)


def test_a_rate_that_changes_needs_no_new_graph(_):
    net = Net(EmbeddingBag(50, 8, mode="sum", lr=0.05))
    compiled = torch.compile(net, fullgraph=True)
    ids, offsets = next(batches(50))
    compiled(ids, offsets).backward()
    with torch.compiler.set_stance("fail_on_recompile"):
        for rate in (0.1, 0.0):
            net.bag.lr = rate
            before = net.bag.weight.detach().clone()
            compiled(ids, offsets).backward()
            assert torch.equal(before, net.bag.weight) == (rate == 0)


def test_frozen_tables(_):
    net = Net(EmbeddingBag(50, 8, mode="sum", lr=0.05))
    net.bag.requires_grad_(False)
    before = net.bag.weight.clone()
    torch.compile(net, fullgraph=True)(*next(batches(50))).backward()
    assert torch.equal(before, net.bag.weight) and net.bag.steps == 0


def test_no_copy_of_a_table(_):
    """A table of 256 MiB: the largest resident memory grows by less than it."""
    torch.compiler.reset()
    net = Net(EmbeddingBag(1 << 20, 64, mode="sum", _weight=torch.zeros(1 << 20, 64), lr=0.05))
    compiled = torch.compile(net, fullgraph=True)
    small = torch.compile(Net(EmbeddingBag(50, 64, mode="sum", lr=0.05)), fullgraph=True)
    for ids, offsets in batches(50):
        small(ids, offsets).backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # after all that compiling takes
    for ids, offsets in batches(50):
        compiled(ids, offsets).backward()
    assert net.bag.steps == 4
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 128 << 10, f"{grown} KiB"


def test_collections(_):
    tables = lambda: EmbeddingBagCollection([Table(7, 4, "a", ["x", "y"], weight=torch.ones(7, 4)),
                                             Table(5, 8, "b", weight=torch.ones(5, 8))], optimizer="adagrad", lr=0.1)
    kjt = KeyedJaggedTensor(["x", "y", "b"], torch.tensor([1, 2, 6, 0, 4, 3]), lengths=torch.tensor([2, 1, 0, 1, 1, 1]))
    sides = tables(), tables()
    compiled = torch.compile(lambda k: sides[1](k).values(), fullgraph=True)
    for _ in range(2):
        sides[0](kjt).values().square().sum().backward()
        compiled(kjt).square().sum().backward()
    for name, array in sides[0].state_dict().items():
        other = sides[1].state_dict()[name]
        assert array == other if name == "_extra_state" else torch.allclose(array, other), name


def test_operators_keep_torchs_rules(_):
    """torch.library.opcheck: schema, fake tensors, autograd."""
    bag = EmbeddingBag(6, 4, mode="sum", lr=0.1)
    ids, offsets = torch.tensor([1, 2, 5]), torch.tensor([0, 2])
    for ids in (ids, ids.int()):
        torch.library.opcheck(torch.ops.embfuse.forward.default, ([bag.weight.detach()], ids, offsets, False, None, bag._number))
    whole = torch.tensor([0, 2, 3])
    torch.library.opcheck(torch.ops.embfuse.step.default, (
        [bag.weight.detach()], bag._steps, ids, whole, None, torch.empty(0, 4, dtype=torch.int32), torch.ones(2, 4), [1], bag._number))


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tap.BUILD, "pytorch", "inductor"))
    sys.exit(tap.run(globals(), "PyTorch compile"))
