#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joint embeddings through libembfuse, against NumPy, on recorded text and on drawn ids.

Word and characters: the row of a word beside the mean of the rows of its characters; two tables of two widths in one
forward and one step (Chen et al. 2015, character-enhanced word embeddings, by concatenation). A word of the Chinese trace
is a pair of neighbours, hashed.

A table shared by two tasks: two features read it, and the rule gets the sum of the gradients of both. One step per
task instead is another function for every rule that is not linear: rows of both tasks differ, all others do not.
"""
import gzip
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


def poems(count):
    with gzip.open(tap.trace("tang_poems"), "rt", encoding="ascii") as file:
        return [list(map(int, next(file).split())) for _ in range(count)]


# --- word and characters

def word_id(characters, rows):
    return hash(tuple(characters)) % rows  # of integers: the same in every process


def words_of_poems():
    return [[p[i:i + 2] for i in range(0, len(p) - 1, 2)] for p in poems(40)], 9534


def drawn_words():
    random = np.random.default_rng(1)
    draw = lambda: random.zipf(1.3, random.integers(1, 8)).clip(max=199).tolist()
    return [[draw() for _ in range(300)] for _ in range(3)], 200


def word_and_characters(poems_, characters, words=5000):
    tables = [Table(words, 32, "adagrad", 1), Table(characters, 16, "rowwise_adagrad", 2)]
    model, random = open_model(tables, [0, 1]), np.random.default_rng(3)
    for poem in poems_:
        if not poem:
            continue
        word, bags = np.array([word_id(w, words) for w in poem]), [np.array(w) for w in poem]
        batch = batch_of(model, [[[w] for w in word], poem])
        output, grad = np.empty((len(poem), 48), np.float32), random.standard_normal((len(poem), 48)).astype(np.float32)
        model.forward(batch, output)
        want = np.concatenate([tables[0].want[word], [tables[1].want[b].mean(0) for b in bags]], axis=1)
        assert np.abs(output - want).max() < 20 * TOLERANCE, np.abs(output - want).max()
        model.step(batch, grad)
        tables[0].step(word, grad[:, :32])
        tables[1].step(np.concatenate(bags), of_lookups(bags, grad[:, 32:]))
    for table in tables:
        table.check()


def test_word_and_mean_of_characters_of_drawn_words(_):
    word_and_characters(*drawn_words())


def test_word_and_mean_of_characters_of_poems(_):
    word_and_characters(*words_of_poems())


# --- one table, two tasks

def two_tasks(bags, rows, rule):
    """bags: of both tasks. Checks one step of the sum, and compares it with a step for each task."""
    random = np.random.default_rng(5)
    grads = [random.standard_normal((len(b), 24)).astype(np.float32) for b in bags]
    lookups = [np.concatenate([np.array(bag, int) for bag in task]) for task in bags]
    values = [of_lookups(*task) for task in zip(bags, grads)]
    shared = Table(rows, 24, rule, 4)
    model = open_model([shared], [0, 0])
    model.step(batch_of(model, bags), np.concatenate(grads, axis=1))  # columns: task 0, task 1
    shared.step(np.concatenate(lookups), np.concatenate(values))
    shared.check()
    apart = Table(rows, 24, rule, 4)
    model = open_model([apart], [0])
    for task, grad in zip(bags, grads):
        model.step(batch_of(model, [task]), grad)
    both = np.intersect1d(*lookups)
    one = np.setxor1d(*lookups)
    assert len(both) > 20 and len(one) > 20
    off = np.abs(apart.weight - shared.weight).max(1) / np.abs(shared.weight).max()
    assert off[one].max() < TOLERANCE
    return off[both]


def merged_and_not(bags, rows):
    for rule in ("adagrad", "rowwise_adagrad"):
        off = two_tasks(bags, rows, rule)
        assert np.median(off) > 1e-3, (rule, np.median(off))
    off = two_tasks(bags, rows, "sgd")
    assert off.max() < TOLERANCE, "steps of a linear rule add up"


def test_a_table_of_two_tasks_with_drawn_ids(_):
    random = np.random.default_rng(6)
    draw = lambda high: [random.integers(0, high, random.integers(1, 6)).tolist() for _ in range(40)]
    merged_and_not([draw(150), draw(300)], 300)


def test_a_table_of_two_tasks_with_the_first_and_second_halves_of_poems(_):
    whole = [p for p in poems(100) if len(p) > 8][:40]
    merged_and_not([[p[:len(p) // 2] for p in whole], [p[len(p) // 2:] for p in whole]], 9534)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "joint embeddings"))
