#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a click model on several processes: tables sharded by embfuse.distributed, dense layers copied by
DistributedDataParallel.

    torchrun --nproc-per-node 2 extras/pytorch/train_ranks.py --steps 100

Each rank draws bags of its own. Labels are planted: the sign of a sum of one random number per id.
"""
import argparse

import torch
import torch.distributed as dist

from embfuse import KeyedJaggedTensor, Optimizer, Table
from embfuse.distributed import ShardedEmbeddingBagCollection, ignore_in_ddp

ROWS = {"user": 50_000, "item": 200_000}


class Clicks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        tables = [Table(rows, 32, name) for name, rows in ROWS.items()]
        self.tables = ShardedEmbeddingBagCollection(tables, plan={"user": "table_wise", "item": "row_wise"},
                                                    optimizer="rowwise_adagrad", lr=0.05)
        self.dense = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, features):
        return self.dense(self.tables(features).values()).squeeze(1)


def drawn(bags, planted, generator):
    """(features, labels) of a rank."""
    lengths = torch.randint(1, 10, (2, bags), generator=generator)
    ids = [(torch.rand(int(n.sum()), generator=generator)**3 * rows).long() for n, rows in zip(lengths, ROWS.values())]
    sums = sum(torch.zeros(bags).index_add_(0, torch.repeat_interleave(n), planted[name][i])
               for n, i, name in zip(lengths, ids, ROWS))
    return KeyedJaggedTensor(list(ROWS), torch.cat(ids), lengths=lengths.flatten()), (sums > 0).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--bags", type=int, default=512, help="of each rank")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    planted = {name: 2 * torch.rand(rows) - 1 for name, rows in ROWS.items()}
    model = torch.nn.parallel.DistributedDataParallel(ignore_in_ddp(Clicks()))
    tables, dense = Optimizer(model), torch.optim.Adam(model.module.dense.parameters(), lr=0.002)
    generator = torch.Generator().manual_seed(2 + rank)
    for step in range(args.steps):
        features, labels = drawn(args.bags, planted, generator)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features), labels)
        # DistributedDataParallel divides by the ranks for the dense layers; the tables sum over the ranks.
        loss.backward()
        for group in tables.param_groups:
            group["grad_scale"] = 1 / ranks
        for optimizer in (tables, dense):
            optimizer.step()
            optimizer.zero_grad()
        if step % 20 == 0 or step == args.steps - 1:
            dist.all_reduce(total := loss.detach() / ranks)
            if rank == 0:
                print(f"step {step}: loss {total.item():.4f}", flush=True)
    if rank == 0:
        print(f"{ranks} ranks; bytes sent by rank 0: {model.module.tables.bytes}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
