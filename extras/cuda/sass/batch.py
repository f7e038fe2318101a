# SPDX-License-Identifier: MIT
"""The inputs of a kernel over sorted entries, and the results that it must give: drawn batches, and the rules as plain
NumPy in float32. Numbers are hashes of their position, so no release of NumPy draws others."""
import numpy as np

F = np.float32
ROW_LANES = 128  # of the sum of a row's squares: kernels/rules.h

# name: (lookups, rows, bags, exponent of Zipf's law); dynamicemb has the ids of ten features.
POINTS = {f"alpha {alpha:g}": (1023159, 10_000_000, 51200, alpha) for alpha in (0, 0.8, 1.05, 1.2)}
POINTS["dynamicemb"] = (1048570, 16_777_210, 1048570, 1.05)
FEATURES = {"dynamicemb": 10}


def hashed(position):
    """64 bits (splitmix64 of Steele, Lea and Flood 2014)."""
    x = (np.asarray(position, np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def uniform(position):
    return (hashed(position) >> np.uint64(11)) * 2.0**-53


def floats(position):
    """From -1 to 1."""
    return ((hashed(position) >> np.uint64(40)).astype(F) - F(2**23)) * F(2**-23)


def drawn(first, count, rows, alpha):
    u = uniform(np.arange(first, first + count))
    if alpha == 0:
        return (u * rows).astype(np.int64)
    law = np.cumsum(np.arange(1, rows + 1) ** -alpha)
    return np.searchsorted(law, u * law[-1]) * 7368787 % rows


def entries(name):
    """(keys, values) of a point, sorted by key as the suite's radix sort does, stably."""
    lookups, rows, bags, alpha = POINTS[name]
    features = FEATURES.get(name, 1)
    part, own = lookups // features, rows // features
    ids = np.concatenate([drawn(f * part, part, own, alpha) + f * own for f in range(features)])
    order = np.argsort(ids, kind="stable")
    return ids[order].astype(np.uint32), (order * bags // lookups).astype(np.uint32)


class Runs:
    """Runs of equal keys: entries [begin, end) of each."""

    def __init__(self, keys):
        self.keys = keys
        self.begin = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])
        self.end = np.append(self.begin[1:], len(keys))

    def touching(self, first, last):
        """Numbers of the runs with entries in [first, last)."""
        return np.arange(np.searchsorted(self.end, first, "right"), np.searchsorted(self.begin, last))

    def finished(self, first, last, chunk, reach):
        """Those that a block of these entries finishes on its own."""
        which = self.touching(first, last)
        limit = (self.begin[which] // chunk + 1) * chunk + reach
        return which[(self.begin[which] >= first) & (self.end[which] <= limit)]

    def sums(self, which, values, grad):
        """Their sums of gradient rows, entry after entry."""
        begin, length = self.begin[which], (self.end - self.begin)[which]
        total = np.zeros((len(which), grad.shape[1]), F)
        for k in range(max(length, default=0)):
            of = np.flatnonzero(length > k)
            total[of] += grad[values[begin[of] + k]]
        return total


# --- rules: from summed gradients and what rows hold, {array: new values}
def sgd(h, g, held):
    return {"weight": held["weight"] - h["lr"] * g}


def rowwise_adagrad(h, g, held):
    squares, dim = g * g, g.shape[1]
    lanes = np.zeros((len(g), ROW_LANES), F)
    for d in range(0, dim, ROW_LANES):
        lanes[:, :min(ROW_LANES, dim - d)] += squares[:, d:d + ROW_LANES]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    row = held["row"] + lanes / F(dim)
    return {"row": row, "weight": held["weight"] - h["lr"] / (np.sqrt(row) + h["eps"]) * g}


def adagrad(h, g, held):
    s = held["elem0"] + g * g
    return {"elem0": s, "weight": held["weight"] - h["bias0"] * g / (np.sqrt(s) + h["eps"])}


def adam(h, g, held):
    one = F(1)
    m = h["beta1"] * held["elem0"] + (one - h["beta1"]) * g
    v = h["beta2"] * held["elem1"] + (one - h["beta2"]) * (g * g)
    step = h["lr"] * (m * h["bias0"]) / (np.sqrt(v * h["bias1"]) + h["eps"])
    return {"elem0": m, "elem1": v, "weight": held["weight"] - step}


RULES = {f.__name__: f for f in (sgd, rowwise_adagrad, adagrad, adam)}
HELD = "weight", "row", "elem0", "elem1"


class Batch:
    """A point in a machine's memory. arrays: {name: array of the machine}; this class fills them."""

    def __init__(self, point, facts, arrays, dim, rule):
        self.keys, self.values = point
        self.runs, self.facts, self.dim, self.rule = Runs(self.keys), facts, dim, rule
        for name, own in (("key", self.keys), ("value", self.values)):
            arrays[name].view(np.uint32)[:len(own)] = own
        self.grad = arrays["grad"].view(F).reshape(-1, dim)
        self.held = {name: arrays[name].view(F) for name in HELD if name in arrays}
        for name, array in self.held.items():
            self.held[name] = array.reshape(facts.rows, -1)

    def blocks(self, count):
        """That many of all blocks, evenly spread, without the last one, which may be short; None: all of them."""
        every = -(-len(self.keys) // self.facts.entries)
        return np.arange(every) if count is None else np.unique(np.linspace(0, max(every - 2, 0), count).astype(int))

    def range_of(self, block):
        return block * self.facts.entries, min((block + 1) * self.facts.entries, len(self.keys))

    def fill(self, blocks):
        """Gradients, and what the rows hold that these blocks touch."""
        which = np.unique(np.concatenate([self.runs.touching(*self.range_of(b)) for b in blocks]))
        begin, end = self.runs.begin[which], self.runs.end[which]
        used = np.unique(np.concatenate([self.values[b:e] for b, e in zip(begin, end)]))
        columns = np.arange(self.dim)
        self.grad[used] = floats(used[:, None].astype(np.int64) * self.dim + columns)
        for number, (name, array) in enumerate(self.held.items()):
            width, rows = array.shape[1], self.keys[begin].astype(np.int64)
            x = floats(rows[:, None] * width + np.arange(width) + ((number + 1) << 40))
            array[rows] = x if name == "weight" or (self.rule, name) == ("adam", "elem0") else np.abs(x)
        self.done = np.unique(np.concatenate([self.runs.finished(*self.range_of(b), self.facts.chunk, self.facts.reach)
                                              for b in blocks]))
        rows = self.keys[self.runs.begin[self.done]]
        held = {name: array[rows] for name, array in self.held.items()}
        self.expected = RULES[self.rule](self.facts.hyper, self.runs.sums(self.done, self.values, self.grad), held)

    def wrong(self):
        """(rows that the blocks finished, those with a wrong bit, the first wrong one in words)"""
        rows, bad, first = self.keys[self.runs.begin[self.done]], np.zeros(len(self.done), bool), ""
        for name, x in self.expected.items():
            differ = self.held[name][rows].view(np.uint32) != x.view(np.uint32)
            if differ.any() and not first:
                k, c = (int(n[0]) for n in np.nonzero(differ))
                first = f"{name} of row {rows[k]}, column {c}: {self.held[name][rows[k], c]!r}, not {x[k, c]!r}"
            bad |= differ.any(axis=1)
        return len(rows), int(bad.sum()), first

    def lookups_and_rows(self, blocks):
        """Entries of these blocks, and runs that end in them."""
        ranges = [self.range_of(b) for b in blocks]
        ends = sum(int(np.searchsorted(self.runs.end, last, "right") - np.searchsorted(self.runs.end, first, "right"))
                   for first, last in ranges)
        return sum(last - first for first, last in ranges), ends
