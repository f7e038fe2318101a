#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a fused EmbeddingBag beside torch.nn.EmbeddingBag(sparse=True) with an optimizer of torch.optim: the same start,
the same batches, the same losses but for rounding.

The ids are a recorded stream, a text file with one bag a line, or drawn where there is none. Both models take turns, and
the table has the median time of an iteration: lookup, a linear layer, loss, backward pass and step. Labels are planted:
the sign of a sum of one random number per id.
"""
import argparse
import gzip
import os
import statistics
import time

import torch

from embfuse import EmbeddingBag

# Name in torch.optim, and hyper-parameters of both. Adam takes dense gradients and moves all rows: so does cpu_dense.
RULES = {"SGD": {"lr": 1.0}, "Adagrad": {"lr": 0.1, "eps": 1e-10}, "SparseAdam": {"lr": 0.01, "eps": 1e-8},
         "Adam": {"lr": 0.001, "eps": 1e-8}}
DENSE = ("Adam",)


def read_bags(path):
    """(ids, offsets of bags) of a text file, also a compressed one."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="ascii") as file:
        bags = [list(map(int, line.split())) for line in file]
    return torch.tensor([i for bag in bags for i in bag]), torch.tensor([0, *map(len, bags)]).cumsum(0)


def drawn_bags(bags, rows, generator):
    lengths = torch.randint(0, 40, (bags,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    return (torch.rand(int(offsets[-1]), generator=generator)**3 * rows).long(), offsets


class Stream:
    """Batches of bags in their order, from the start again after the end."""

    def __init__(self, ids, offsets, batch, generator):
        self.ids, self.offsets, self.batch = ids, offsets, batch
        self.rows = int(ids.max()) + 1
        planted = 2 * torch.rand(self.rows, generator=generator) - 1
        sums = torch.cat([torch.zeros(1), planted[ids].cumsum(0)])[offsets].diff()
        self.labels = (sums > 0).float()

    def __getitem__(self, step):
        first = step * self.batch % (len(self.labels) - self.batch + 1)
        offsets = self.offsets[first:first + self.batch + 1]
        return self.ids[offsets[0]:offsets[-1]], offsets[:-1] - offsets[0], self.labels[first:first + self.batch]


class Side:
    """An embedding, a linear layer and their optimizers; both sides begin with the same numbers."""

    def __init__(self, bag, optimizer=None):
        self.bag, self.linear, self.seconds, self.losses = bag, torch.nn.Linear(bag.embedding_dim, 1), [], []
        with torch.no_grad():
            for p, value in zip(self.linear.parameters(), (torch.linspace(-1, 1, bag.embedding_dim), 0.0)):
                p[:] = value
        self.optimizers = [o for o in (optimizer, torch.optim.SGD(self.linear.parameters(), lr=0.1)) if o]

    def iterate(self, ids, offsets, labels):
        begin = time.perf_counter()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.linear(self.bag(ids, offsets)).squeeze(1), labels)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(loss.item())


def train(name, stream, steps, dim, mode="mean", change=lambda *sides: None):
    """(PyTorch's side, ours) after these steps. change(theirs, ours) may change them before."""
    hyper = RULES[name]
    start = 0.1 * torch.randn(stream.rows, dim, generator=torch.Generator().manual_seed(7))
    theirs = torch.nn.EmbeddingBag(stream.rows, dim, mode=mode, sparse=name not in DENSE, _weight=start.clone())
    sides = (Side(theirs, getattr(torch.optim, name)(theirs.parameters(), **hyper)),
             Side(EmbeddingBag(stream.rows, dim, mode=mode, _weight=start.clone(), optimizer=name,
                               kernel="cpu_dense" if name in DENSE else "auto", **hyper)))
    change(*sides)
    for step in range(steps):
        for side in sides if step % 2 else sides[::-1]:
            side.iterate(*stream[step])
    return sides


def differences(theirs, ours):
    """The largest difference of a loss; and that of a weight, as a share of the largest weight. With SGD the rounding of
    PyTorch shows, which adds the gradient of each lookup to the weight."""
    loss = max(abs(a - b) for a, b in zip(theirs.losses, ours.losses))
    return loss, ((theirs.bag.weight - ours.bag.weight).abs().max() / theirs.bag.weight.abs().max()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("trace", nargs="?", metavar="TRACE.txt.gz")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if min(args.steps, args.batch, args.dim, args.threads) < 1:
        parser.error("all numbers are at least 1")
    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(1)
    try:
        ids, offsets = read_bags(args.trace) if args.trace else drawn_bags(20000, 50000, generator)
    except (OSError, ValueError) as e:
        parser.error(f"{args.trace}: {getattr(e, 'strerror', None) or e}")
    if len(offsets) <= args.batch or len(ids) == 0:
        parser.error(f"{args.trace}: {len(offsets) - 1} bags with {len(ids)} ids are too few for --batch {args.batch}")
    stream = Stream(ids, offsets, args.batch, generator)
    print(f"{os.path.basename(args.trace or 'drawn ids')}: {stream.rows} rows of {args.dim}, {args.steps} batches of "
          f"{args.batch} bags, {len(ids) / len(stream.labels):.1f} lookups per bag; {args.threads} threads, torch "
          f"{torch.__version__}\n")
    print("| optimizer | first loss | last loss, torch | last loss, fused | largest difference of a loss | of a weight | "
          "torch, ms | fused, ms | ratio |\n| --- |" + " ---: |" * 8)
    for name in RULES:
        sides = train(name, stream, args.steps, args.dim)
        times = [1e3 * statistics.median(side.seconds) for side in sides]
        figures = [sides[0].losses[0], *(side.losses[-1] for side in sides)]
        print(f"| {name} |", *(f"{x:.6f} |" for x in figures), *(f"{x:.1e} |" for x in differences(*sides)),
              f"{times[0]:.3f} | {times[1]:.3f} | {times[0] / times[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
