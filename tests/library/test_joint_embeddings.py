#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joint embeddings through libembfuse, against NumPy.

Word and characters: the row of a word beside the mean of the rows of its characters; two tables of two widths in one
forward and one step (Chen et al. 2015, character-enhanced word embeddings, by concatenation).

A table shared by two tasks: two features read it, and the rule gets the sum of the gradients of both. One step per
task instead is another function for every rule that is not linear: rows of both tasks differ, all others do not.
"""
import sys

sys.dont_write_bytecode = True
import tap

try:
    import numpy as np
except ImportError as e:
    tap.skip_all("joint embeddings", e)
import embfuse
from embfuse import constant

# Of the largest value. NumPy computes in float64; libembfuse rounds some ten operations and a sum in each of 40 steps.
TOLERANCE = 64 * 2.0**-24
LR, EPS = 0.1, 1e-3


class Table:
    """A table in float64 that takes steps as the suite does, and the same start in float32."""

    def __init__(self, rows, dim, rule, seed):
        self.rows, self.dim, self.rule = rows, dim, rule
        self.weight = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
        self.state = None if rule == "sgd" else np.zeros((rows, 1 if rule == "rowwise_adagrad" else dim), np.float32)
        self.want, self.want_state = self.weight.astype(np.float64), np.zeros((rows, 1))

    def step(self, ids, grads):
        """The gradients of a row are summed before the rule."""
        rows, where = np.unique(ids, return_inverse=True)
        g = np.zeros((len(rows), self.dim))
        np.add.at(g, where, grads)
        if self.rule == "sgd":
            self.want[rows] -= LR * g
            return
        square = (g * g).mean(1, keepdims=True) if self.rule == "rowwise_adagrad" else g * g
        self.want_state = np.broadcast_to(self.want_state, self.state.shape).copy()
        self.want_state[rows] += square
        self.want[rows] -= LR * g / (np.sqrt(self.want_state[rows]) + EPS)

    def check(self):
        for got, want in ((self.weight, self.want), (self.state, self.want_state)):
            if got is not None:
                off = np.abs(got - want).max() / np.abs(want).max()
                assert off < TOLERANCE, f"{self.rule} is off by {off / 2.0**-24:.0f} roundings"


def open_model(tables, features):
    model = embfuse.Model([{"rows": t.rows, "dim": t.dim, "rule": t.rule} for t in tables],
                          [{"table": t, "pooling": constant.MEAN, "padding_id": -1} for t in features], threads=2)
    for i, table in enumerate(tables):
        model.bind(i, 0, table.weight)
        if table.state is not None:
            model.bind(i, 1, table.state)
            model.set("eps", EPS, i)
    model.set("lr", LR)
    return model


def batch_of(model, features):
    """features: the bags of each, lists of ids."""
    bags = [bag for feature in features for bag in feature]
    return model.batch(np.array([i for bag in bags for i in bag], np.int64), np.cumsum([0, *map(len, bags)]))


def of_lookups(bags, grads):
    """The gradient of each lookup of a mean."""
    return np.concatenate([np.tile(g / len(bag), (len(bag), 1)) for bag, g in zip(bags, grads)])


def bags_of(random, count, rows):
    return [random.integers(0, rows, random.integers(1, 6)).tolist() for _ in range(count)]


def test_a_word_and_the_mean_of_its_characters(_):
    random = np.random.default_rng(1)
    words, characters = tables = Table(5000, 32, "adagrad", 1), Table(200, 16, "rowwise_adagrad", 2)
    model = open_model(tables, [0, 1])
    for _ in range(3):
        bags, ids = bags_of(random, 300, 200), random.integers(0, 300, 300)
        batch = batch_of(model, [ids[:, None].tolist(), bags])
        output, grad = np.empty((300, 48), np.float32), random.standard_normal((300, 48)).astype(np.float32)
        model.forward(batch, output)
        want = np.concatenate([words.want[ids], [characters.want[b].mean(0) for b in bags]], axis=1)
        assert np.abs(output - want).max() < 20 * TOLERANCE, np.abs(output - want).max()
        model.step(batch, grad)
        words.step(ids, grad[:, :32])
        characters.step(np.concatenate(bags), of_lookups(bags, grad[:, 32:]))
    words.check()
    characters.check()


def test_a_table_of_two_tasks(_):
    """One step of the sum, and a step for each task beside it."""
    for rule in ("adagrad", "rowwise_adagrad", "sgd"):
        random = np.random.default_rng(6)
        bags = [bags_of(random, 40, 150), bags_of(random, 40, 300)]
        grads = [random.standard_normal((40, 24)).astype(np.float32) for _ in bags]
        lookups = [np.concatenate(task) for task in bags]
        shared, apart = Table(300, 24, rule, 4), Table(300, 24, rule, 4)
        model = open_model([shared], [0, 0])
        model.step(batch_of(model, bags), np.concatenate(grads, axis=1))  # columns: task 0, task 1
        shared.step(np.concatenate(lookups), np.concatenate([of_lookups(*task) for task in zip(bags, grads)]))
        shared.check()
        model = open_model([apart], [0])
        for task, grad in zip(bags, grads):
            model.step(batch_of(model, [task]), grad)
        both, one = np.intersect1d(*lookups), np.setxor1d(*lookups)
        assert len(both) > 20 and len(one) > 20
        off = np.abs(apart.weight - shared.weight).max(1) / np.abs(shared.weight).max()
        assert off[one].max() < TOLERANCE
        if rule == "sgd":
            assert off[both].max() < TOLERANCE, "steps of a linear rule add up"
        else:
            assert np.median(off[both]) > 1e-3, (rule, np.median(off[both]))


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "joint embeddings"))
