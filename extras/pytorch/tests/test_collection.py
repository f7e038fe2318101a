#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""EmbeddingBagCollection of extras/pytorch against one torch.nn.EmbeddingBag for each table."""
import sys

import installed
import tap

installed.use(__file__, "PyTorch collection")
import torch

from embfuse import EmbeddingBagCollection, KeyedJaggedTensor, Optimizer, Table
from installed import fails

LR = 0.5


def tables(**pooling):
    """Three tables of other widths; "item" is read by two features."""
    draw = lambda *shape: torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0]))
    return [Table(7, 3, "user", weight=draw(7, 3), padding_idx=2),
            Table(9, 5, "item", ["bought", "seen"], weight=draw(9, 5), pooling=pooling.get("item", "sum")),
            Table(4, 2, "shop", weight=draw(4, 2), pooling="mean")]


def features(strides=(3, 3, 3, 3), keys=("user", "bought", "seen", "shop"), weighted=False):
    generator = torch.Generator().manual_seed(11)
    lengths = torch.randint(0, 5, (sum(strides),), generator=generator)
    parts = [int(x.sum()) for x in lengths.split(list(strides))]
    rows = {"user": 7, "bought": 9, "seen": 9, "shop": 4}
    ids = torch.cat([torch.randint(0, rows[k], (n,), generator=generator) for k, n in zip(keys, parts)])
    weights = torch.rand(len(ids), generator=generator) if weighted else None
    return KeyedJaggedTensor(keys, ids, weights, lengths=lengths, stride_per_key=strides)


def torch_side(some):
    return {t.name: torch.nn.EmbeddingBag(t.num_embeddings, t.embedding_dim, mode=t.pooling, padding_idx=t.padding_idx,
                                          include_last_offset=True, _weight=t.weight.clone()) for t in some}


def outputs_of(bags, some, kjt):
    """{feature: output} of torch."""
    found, at, end = {}, 0, 0
    for key, stride in zip(kjt.keys(), kjt.stride_per_key()):
        table = next(t for t in some if key in (t.feature_names or [t.name]))
        lengths = kjt.lengths()[at:at + stride]
        begin, end, at = end, end + int(lengths.sum()), at + stride
        weights = None if kjt.weights_or_none() is None else kjt.weights_or_none()[begin:end]
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        found[key] = bags[table.name](kjt.values()[begin:end], offsets, weights)
    return found


def compare(some, kjt):
    ours, theirs = EmbeddingBagCollection([Table(**{**vars(t), "weight": t.weight.clone()}) for t in some], lr=LR), torch_side(some)
    got, want = ours(kjt).to_dict(), outputs_of(theirs, some, kjt)
    for key, y in want.items():
        assert torch.allclose(y, got[key], atol=1e-6), (key, y, got[key])
    for result in (got, want):
        sum((n + 1) * result[key].square().sum() for n, key in enumerate(sorted(result))).backward()
    for name, bag in theirs.items():
        stepped = bag.weight.detach() - LR * bag.weight.grad
        assert torch.allclose(stepped, ours.embedding_bags[name].weight, atol=1e-5), name
    assert ours._steps.tolist() == [1, 1, 1]


def test_shared_tables_of_other_widths(_):
    compare(tables(), features())
    compare(tables(item="mean"), features())


def test_maxima_and_empty_bags(_):
    compare(tables(item="max"), features())


def test_a_batch_size_of_each_feature(_):
    compare(tables(), features((3, 1, 5, 2)))
    compare(tables(), features((1, 0, 4, 2)))


def test_features_in_another_order(_):
    compare(tables(), features(keys=("shop", "user", "seen", "bought")))


def test_per_sample_weights(_):
    some = tables()
    some[2].pooling = "sum"
    compare(some, features(weighted=True))


def test_frozen_tables_beside_others(_):
    ours = EmbeddingBagCollection(tables(), optimizer="adam", lr=LR, weight_decay=0.1)
    frozen = ours.embedding_bags["item"]
    frozen.weight.requires_grad_(False)
    before = [frozen.weight.clone(), frozen.state_0.clone()]
    others = {n: ours.embedding_bags[n].weight.clone() for n in ("user", "shop")}
    for _ in range(2):
        ours(features()).values().sum().backward()
    assert torch.equal(frozen.weight, before[0]) and torch.equal(frozen.state_0, before[1])
    assert all(not torch.equal(ours.embedding_bags[n].weight, w) for n, w in others.items())
    assert ours._steps.tolist() == [2, 0, 2]


def test_tables_that_freeze_between_lookups(_):
    ours = EmbeddingBagCollection(tables(), lr=LR)
    user, item = (ours.embedding_bags[n].weight for n in ("user", "item"))
    before = user.clone(), item.clone()
    first = ours(features()).values()
    item.requires_grad_(False)
    second = ours(features()).values()
    item.requires_grad_(True)
    (first.sum() + second.sum()).backward()
    once = EmbeddingBagCollection(tables(), lr=LR)
    once(features()).values().sum().backward()
    assert torch.allclose(user - before[0], 2 * (once.embedding_bags["user"].weight - before[0]), atol=1e-5)
    assert torch.equal(item, once.embedding_bags["item"].weight) and ours._steps.tolist() == [1, 1, 1]


def test_lookups_of_other_arrays_are_steps_of_their_own(_):
    ours = EmbeddingBagCollection(tables(), lr=LR)
    other = torch.nn.Parameter(ours.embedding_bags["shop"].weight.detach().clone())
    again = torch.func.functional_call(ours, {"embedding_bags.shop.weight": other}, (features(),)).values()
    (ours(features()).values().sum() + again.sum()).backward()
    assert torch.equal(other, ours.embedding_bags["shop"].weight) and ours._steps.tolist() == [2, 2, 2]


def test_two_passes_are_one_step_of_an_optimizer(_):
    """As one batch that has both: also with features of other batch sizes."""
    first, second = features(), features((2, 3, 1, 4))
    ours = EmbeddingBagCollection(tables(item="max"), optimizer="rowwise_adagrad", lr=LR)
    bags = torch_side(tables(item="max"))
    optimizer = Optimizer(ours)
    for kjt in (first, second):
        ours(kjt).values().square().sum().backward()
        sum(y.square().sum() for y in outputs_of(bags, tables(item="max"), kjt).values()).backward()
    optimizer.step()
    for name, bag in bags.items():
        g = bag.weight.grad
        state = g.square().mean(1, keepdim=True)
        want = bag.weight.detach() - torch.where(state > 0, LR * g / (state.sqrt() + 1e-8), 0 * g)
        assert torch.allclose(want, ours.embedding_bags[name].weight, atol=1e-5), name
    assert ours._steps.tolist() == [1, 1, 1] and not ours._model.gradients()


def test_rules_of_each_table_and_checkpoints(_):
    some = tables()
    some[0].optimizer, some[0].hyper = "SparseAdam", {"betas": (0.5, 0.75)}
    ours = EmbeddingBagCollection(some, optimizer="adagrad", lr=LR, eps=0.25)
    assert ours.hyper(0)["beta1"] == 0.5 and ours.hyper(1)["eps"] == 0.25 and ours.hyper(0)["lr"] == LR
    names = set(ours.state_dict())
    assert {"embedding_bags.user.weight", "embedding_bags.user.state_1", "embedding_bags.item.state_0"} <= names, names
    ours(features()).values().sum().backward()
    other = EmbeddingBagCollection(tables(), optimizer="adagrad")
    fails(RuntimeError, "adam_epsilon_hat", other.load_state_dict, ours.state_dict())
    again = EmbeddingBagCollection(some, optimizer="adagrad")
    again.load_state_dict(ours.state_dict())
    for each in (ours, again):
        each(features()).values().sum().backward()
    for (name, a), b in zip(ours.state_dict().items(), again.state_dict().values()):
        assert a == b if name.endswith("extra_state") else torch.equal(a, b), name


def test_wrong_batches_are_refused(_):
    ours = EmbeddingBagCollection(tables(), lr=LR)
    before = {n: t.clone() for n, t in ours.state_dict().items() if hasattr(t, "clone")}
    kjt = features()
    fails(ValueError, "shop", ours, KeyedJaggedTensor(["user", "bought", "seen"], kjt.values(), lengths=kjt.lengths()[:9]))
    fails(ValueError, "lengths", KeyedJaggedTensor, ["user"], kjt.values(), lengths=kjt.lengths(), stride_per_key=[3])
    fails(ValueError, "begin with 1", KeyedJaggedTensor, ["a"], torch.tensor([9, 1]), offsets=torch.tensor([1, 2]))
    fails(TypeError, "float", KeyedJaggedTensor, ["a"], torch.tensor([9]), lengths=torch.tensor([1.0]))
    fails(ValueError, "twice", KeyedJaggedTensor, ["a", "a"], torch.tensor([9]), lengths=torch.tensor([1, 0]))
    fails(ValueError, "either", KeyedJaggedTensor, ["user"], kjt.values())
    fails(IndexError, "", ours, KeyedJaggedTensor(kjt.keys(), kjt.values() + 9, lengths=kjt.lengths()))
    fails(IndexError, "", ours, KeyedJaggedTensor(kjt.keys(), kjt.values()[:-1], lengths=kjt.lengths()))
    fails(ValueError, "name of its own", EmbeddingBagCollection, [Table(3, 2, "a"), Table(3, 2, "a")])
    fails(NotImplementedError, "pooling", EmbeddingBagCollection, [Table(3, 2, "a", pooling="none")])
    assert all(torch.equal(before[n], t) for n, t in ours.state_dict().items() if n in before)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "PyTorch collection"))
