#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains torch.nn.EmbeddingBag with a sparse optimizer of PyTorch, and the fused one of embedding_bag.py, on the same
batches of a real id stream: python3 examples/pytorch/train.py [TRACE.txt.gz] [--steps 200]. It prints both losses and
the median times of an iteration. Without a trace the ids are drawn.

The model predicts whether the first id of the next line is an even number, from the pooled ids of this line."""
import argparse
import gzip
import statistics
import sys
import time

import torch

from embedding_bag import EmbeddingBag

DIM, BAGS = 64, 512
OPTIMIZERS = {  # rule: torch's optimizer for sparse gradients, hyper-parameters of the rule
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.5), {"lr": 0.5}),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.05), {"lr": 0.05, "eps": 1e-10}),
    "adam_epsilon_hat": (lambda p: torch.optim.SparseAdam(p, lr=0.002), {"lr": 0.002, "eps": 1e-8}),
}


def lines_of(path):
    """Lists of ids, one for each line."""
    if path:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
            return [torch.tensor([int(x) for x in line.split()][:200]) for line in file]
    torch.manual_seed(1)
    return [(torch.rand(int(n)) ** 4 * 20000).long() for n in torch.randint(1, 40, (20000,))]


def batches_of(lines, steps):
    """(ids, offsets, labels), in the order of the stream; it starts anew at its end."""
    for s in range(steps):
        mine = [lines[(s * BAGS + b) % len(lines)] for b in range(BAGS + 1)]
        offsets = torch.tensor([0] + [len(x) for x in mine[:-2]]).cumsum(0)
        yield torch.cat(mine[:-1]), offsets, torch.tensor([float(x[0] % 2 == 0) for x in mine[1:]])


class Model(torch.nn.Module):
    def __init__(self, bag, head):
        super().__init__()
        self.bag, self.head = bag, head

    def loss(self, ids, offsets, labels):
        out = self.head(self.bag(ids, offsets)).squeeze(1)
        return torch.nn.functional.binary_cross_entropy_with_logits(out, labels)


def train(lines, rule, steps, threads=0):
    """[(loss of torch, loss of embfuse, seconds of torch, seconds of embfuse)] of each step, and both tables."""
    make, hypers = OPTIMIZERS[rule]
    torch.manual_seed(0)
    rows = 1 + max(int(x.max()) for x in lines)
    weight = 0.1 * torch.randn(rows, DIM)
    heads = [torch.nn.Sequential(torch.nn.Linear(DIM, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)) for _ in range(2)]
    heads[1].load_state_dict(heads[0].state_dict())
    theirs = torch.nn.EmbeddingBag(rows, DIM, mode="mean", sparse=True, _weight=weight.clone())
    ours = EmbeddingBag(rows, DIM, mode="mean", weight=weight.clone(), optimizer=rule, threads=threads, **hypers)
    models = Model(theirs, heads[0]), Model(ours, heads[1])
    sparse, dense = make([theirs.weight]), [torch.optim.SGD(h.parameters(), lr=0.05) for h in heads]
    log = []
    for batch in batches_of(lines, steps):
        row = []
        for which, model in enumerate(models):
            begin = time.perf_counter()
            optimizers = [dense[which]] + [sparse] * (which == 0)
            for o in optimizers:
                o.zero_grad(set_to_none=True)
            loss = model.loss(*batch)
            loss.backward()
            for o in optimizers:
                o.step()
            row += [loss.item(), time.perf_counter() - begin]
        log.append((row[0], row[2], row[1], row[3]))
    return log, theirs.weight.detach(), ours.weight


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    lines = lines_of(args.trace)
    print(f"{len(lines)} lines, {args.steps} steps of {BAGS} bags, dim {DIM}, torch {torch.__version__}, "
          f"{torch.get_num_threads()} threads\n")
    print("| rule | loss of the last step, torch | embfuse | largest difference | torch, ms | embfuse, ms | ratio |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for rule in OPTIMIZERS:
        log, _, _ = train(lines, rule, args.steps, torch.get_num_threads())
        worst = max(abs(a - b) for a, b, _, _ in log)
        theirs, ours = (1e3 * statistics.median(row[i] for row in log) for i in (2, 3))
        print(f"| {rule} | {log[-1][0]:.6f} | {log[-1][1]:.6f} | {worst:.1e} | {theirs:.2f} | {ours:.2f} | "
              f"{theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
