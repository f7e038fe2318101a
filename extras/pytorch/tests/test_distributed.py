#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embfuse.distributed over gloo on 1 to 4 processes of this machine: the bits of one process where sums are exact, the bytes
that the shardings should take, checkpoints on another number of ranks, ranks that disagree or are lost."""
import itertools
import os
import sys

import installed
import tap

installed.use(__file__, "PyTorch distributed")
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from embfuse import EmbeddingBagCollection, KeyedJaggedTensor, Optimizer, Table
from embfuse.distributed import ShardedEmbeddingBagCollection, ignore_in_ddp

LR = 0.5
PLANS = ({}, {"user": "table_wise", "item": "row_wise", "shop": ("table_wise", 0)},
         {"user": "table_wise", "item": "table_wise", "shop": "table_wise"})
BAGS = 5  # of each rank and feature


def whole(rows, dim):
    """Weights that are integers, so that sums of them are exact in any order."""
    return torch.randint(-8, 9, (rows, dim), generator=torch.Generator().manual_seed(rows)).float()


def tables():
    return [Table(11, 4, "user", weight=whole(11, 4), padding_idx=3), Table(30, 8, "item", ["bought", "seen"], weight=whole(30, 8)),
            Table(3, 2, "shop", weight=whole(3, 2))]


def batch(rank, step, weighted=False):
    generator = torch.Generator().manual_seed(100 * step + rank)
    lengths, ids = torch.randint(0, 4, (4 * BAGS,), generator=generator), []
    for count, rows in zip(lengths.view(4, BAGS).sum(1).tolist(), (11, 30, 30, 3)):
        ids.append(torch.randint(0, rows, (count,), generator=generator))
    weights = torch.randint(1, 4, (int(lengths.sum()),), generator=generator).float() if weighted else None
    return KeyedJaggedTensor(["user", "bought", "seen", "shop"], torch.cat(ids), weights, lengths=lengths)


def loss_of(output):
    """A gradient of small integers, another one for each element."""
    values = output.values()
    return (values * (torch.arange(values.numel()) % 7 - 3).view_as(values)).sum()


def joined(ranks, step, weighted):
    """The batches of all ranks as one."""
    parts = [batch(r, step, weighted) for r in range(ranks)]
    lengths = torch.cat([p.lengths().view(4, BAGS) for p in parts], 1)
    ids = [torch.cat([p.values().split(p.lengths().view(4, BAGS).sum(1).tolist())[f] for p in parts]) for f in range(4)]
    weights = [torch.cat([p.weights_or_none().split(p.lengths().view(4, BAGS).sum(1).tolist())[f] for p in parts])
               for f in range(4)] if weighted else None
    return KeyedJaggedTensor(parts[0].keys(), torch.cat(ids), torch.cat(weights) if weighted else None, lengths=lengths.flatten())


def alone(ranks, steps, weighted=False, optimizer="sgd"):
    """One process with all bags: (outputs of the last step, {name: weights})."""
    one = EmbeddingBagCollection(tables(), optimizer=optimizer, lr=LR)
    for step in range(steps):
        output = one(joined(ranks, step, weighted))
        parts = [x.split(BAGS) for x in output.to_dict().values()]
        per_rank = [torch.cat([p[r] for p in parts], 1) for r in range(ranks)]
        sum((v * (torch.arange(v.numel()) % 7 - 3).view_as(v)).sum() for v in per_rank).backward()
    return per_rank, {n: h.weight.detach() for n, h in one.embedding_bags.items()}


# --- a group of processes

GROUPS = itertools.count()


def member(rank, ranks, folder, group, function, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group-{group}", rank=rank, world_size=ranks)
    function(rank, ranks, folder, *args)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # some threads of PyTorch's checkpoints do not survive the destructors of a process


def together(ranks, folder, function, *args):
    """Runs a function in so many processes; an assertion that fails in one of them fails here."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mp.spawn(member, (ranks, folder, next(GROUPS), function, args), nprocs=ranks)


def gathered(sharded, ranks):
    """{name: all rows}, on every rank."""
    found = {}
    for number, table in enumerate(sharded.tables):
        parts = [None] * ranks
        mine = sharded.shards[table.name].weight.detach() if table.name in sharded.shards else torch.zeros(0, table.embedding_dim)
        dist.all_gather_object(parts, mine)
        found[table.name] = torch.cat(parts)
    return found


def train(rank, ranks, _, plan, weighted):
    outputs, weights = alone(ranks, 3, weighted)
    sharded = ShardedEmbeddingBagCollection(tables(), plan=plan, optimizer="sgd", lr=LR)
    for step in range(3):
        output = sharded(batch(rank, step, weighted))
        loss_of(output).backward()
    assert torch.equal(output.values(), outputs[rank]), (output.values() - outputs[rank]).abs().max()
    for name, rows in gathered(sharded, ranks).items():
        assert torch.equal(rows, weights[name]), name


def test_the_bits_of_one_process(folder):
    for ranks in (1, 2, 3, 4):
        together(ranks, folder, train, PLANS[ranks % 3], ranks == 2)
    together(2, folder, train, PLANS[1], False)


def adagrad(rank, ranks, _):
    _, weights = alone(ranks, 2, optimizer="rowwise_adagrad")
    sharded = ShardedEmbeddingBagCollection(tables(), plan=PLANS[1], optimizer="rowwise_adagrad", lr=LR)
    optimizer = Optimizer(sharded)
    for step in range(2):
        loss_of(sharded(batch(rank, step))).backward()
        optimizer.step()
    for name, rows in gathered(sharded, ranks).items():
        assert torch.allclose(rows, weights[name], atol=1e-6), name


def test_other_rules_and_the_optimizer(folder):
    together(3, folder, adagrad)


def learnt(rank, ranks, _):
    """The gradient of per-sample weights, also of ranks that have no shard."""
    some = lambda: [Table(30, 8, "item", weight=whole(30, 8))]
    kjt = lambda r: KeyedJaggedTensor(["item"], torch.tensor([4, 1 + r, 29, 7, 4]), torch.arange(5.0).requires_grad_(),
                                      lengths=torch.tensor([3, 0, 1, 1]))
    one = EmbeddingBagCollection(some(), lr=LR)
    plain, mine = kjt(rank), kjt(rank)
    loss_of(one(plain)).backward()
    sharded = ShardedEmbeddingBagCollection(some(), plan={"item": ("table_wise", ranks - 1)}, lr=LR)
    loss_of(sharded(mine)).backward()
    assert torch.equal(plain.weights_or_none().grad, mine.weights_or_none().grad)


def test_the_gradient_of_per_sample_weights(folder):
    together(3, folder, learnt)


def means(rank, ranks, _):
    some = lambda: [Table(30, 8, "item", weight=whole(30, 8), pooling="mean", padding_idx=4)]
    kjt = lambda r: KeyedJaggedTensor(["item"], torch.tensor([4, 1 + r, 29, 7, 4]), lengths=torch.tensor([3, 0, 1, 1]))
    sharded = ShardedEmbeddingBagCollection(some(), optimizer="sgd", lr=LR)
    one = EmbeddingBagCollection(some(), lr=LR)
    output = sharded(kjt(rank))
    assert torch.allclose(output.values(), one(kjt(rank)).values())
    output.values().sum().backward()
    sum(one(kjt(r)).values().sum() for r in range(ranks)).backward()
    assert torch.allclose(gathered(sharded, ranks)["item"], one.embedding_bags["item"].weight, atol=1e-6)


def test_means_and_padding(folder):
    together(2, folder, means)


def count(rank, ranks, _):
    """Row-wise: a bag goes once to each rank that has one of its rows, and its ids once. Outputs and gradients come to the
    same bytes on all ranks together."""
    sharded = ShardedEmbeddingBagCollection([Table(30, 8, "item", weight=whole(30, 8))], lr=LR)
    ids, lengths = torch.tensor([0, 29, 1, 15, 15]), torch.tensor([2, 3])
    sharded(KeyedJaggedTensor(["item"], ids, lengths=lengths)).values().sum().backward()
    block = -(-30 // ranks)
    owners = [set((x // block).tolist()) for x in ids.split(lengths.tolist())]
    asked = sum(len(o - {rank}) for o in owners)
    header = (ranks - 1) * 4 * 8
    assert sharded.bytes["ids"] == header + 8 * (asked + int((ids // block != rank).sum())), sharded.bytes
    assert sharded.bytes["gradients"] == 4 * 8 * asked, sharded.bytes
    answered = sum((rank in o) for o in owners) * (ranks - 1)
    assert sharded.bytes["outputs"] == 4 * 8 * answered, sharded.bytes


def test_bytes(folder):
    for ranks in (1, 2, 3):
        together(ranks, folder, count)


def save(rank, ranks, folder):
    import torch.distributed.checkpoint as dcp
    sharded = ShardedEmbeddingBagCollection(tables(), plan=PLANS[1], optimizer="adam", lr=LR)
    loss_of(sharded(batch(rank, 0))).backward()
    dcp.save(sharded.sharded_state_dict(), checkpoint_id=os.path.join(folder, "saved"))
    if rank == 0:
        torch.save((gathered_all(sharded, ranks)), os.path.join(folder, "all.pt"))
    else:
        gathered_all(sharded, ranks)


def gathered_all(sharded, ranks):
    found = {}
    for number, table in enumerate(sharded.tables):
        for name, width in sharded._arrays(number):
            parts = [None] * ranks
            here = table.name in sharded.shards
            dist.all_gather_object(parts, getattr(sharded.shards[table.name], name).detach() if here else torch.zeros(0, width))
            found[f"{table.name}.{name}"] = torch.cat(parts)
    return found


def load(rank, ranks, folder):
    import torch.distributed.checkpoint as dcp
    sharded = ShardedEmbeddingBagCollection([Table(t.num_embeddings, t.embedding_dim, t.name, t.feature_names, padding_idx=t.padding_idx)
                                             for t in tables()], plan=PLANS[2], optimizer="adam", lr=LR)
    state = sharded.sharded_state_dict()
    dcp.load(state, checkpoint_id=os.path.join(folder, "saved"))
    sharded.load_steps(state)
    want = torch.load(os.path.join(folder, "all.pt"))
    for name, rows in gathered_all(sharded, ranks).items():
        assert torch.equal(rows, want[name]), name
    assert all(s.steps == 1 for s in sharded.shards.values())


def test_checkpoints_on_other_ranks(folder):
    together(2, folder, save)
    for ranks in (1, 3):
        together(ranks, folder, load)


# --- errors

def disagree(rank, ranks, _):
    installed.fails(ValueError, "other tables", ShardedEmbeddingBagCollection, [Table(11 + rank, 4, "user")])
    sharded = ShardedEmbeddingBagCollection(tables(), lr=LR)
    before = gathered(sharded, ranks)
    kjt = batch(rank, 0)
    if rank == 1:
        kjt.values()[-1] = 3
    installed.fails(IndexError, "id 3 is not a row of 3" if rank == 1 else "rank 1 has a wrong batch", sharded, kjt)
    kjt = batch(rank, 0)
    if rank == 0:
        kjt = KeyedJaggedTensor(kjt.keys(), kjt.values()[1:], lengths=kjt.lengths())
    installed.fails(IndexError, "lengths of bags" if rank == 0 else "rank 0 has a wrong batch", sharded, kjt)
    installed.fails(ValueError, "per-sample weights", sharded, batch(rank, 0, weighted=rank == 0))
    loss_of(sharded(batch(rank, 0))).backward()
    assert any(not torch.equal(rows, before[n]) for n, rows in gathered(sharded, ranks).items())
    installed.fails(ValueError, "no table", ShardedEmbeddingBagCollection, tables(), plan={"users": "row_wise"})
    installed.fails(NotImplementedError, "pooling max", ShardedEmbeddingBagCollection, [Table(11, 4, "user", pooling="max")])


def test_ranks_that_disagree(folder):
    together(2, folder, disagree)


def lose(rank, ranks, folder):
    sharded = ShardedEmbeddingBagCollection(tables(), lr=LR)
    sharded(batch(rank, 0))
    if rank == 1:
        os._exit(0)
    try:
        for step in range(100):
            loss_of(sharded(batch(rank, step))).backward()
    except RuntimeError as e:
        with open(os.path.join(folder, "told"), "w", encoding="utf-8") as file:
            file.write(str(e))
    os._exit(0)


def test_a_lost_rank_is_an_error(folder):
    together(2, folder, lose)
    assert os.path.exists(os.path.join(folder, "told")), "the other rank did not notice"


def wrapped(rank, ranks, _):
    net = torch.nn.ModuleDict({"tables": ShardedEmbeddingBagCollection(tables(), lr=0.01), "linear": torch.nn.Linear(22, 1)})
    ddp = torch.nn.parallel.DistributedDataParallel(ignore_in_ddp(Net(net)))
    for step in range(3):
        ddp(batch(rank, step)).sum().backward()
    grads = [None] * ranks
    dist.all_gather_object(grads, net["linear"].weight.grad)
    assert all(torch.equal(grads[0], g) for g in grads) and net["tables"].shards["item"].steps == 3


class Net(torch.nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, kjt):
        return self.parts["linear"](self.parts["tables"](kjt).values())


def test_beside_data_parallel_layers(folder):
    together(2, folder, wrapped)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "PyTorch distributed"))
