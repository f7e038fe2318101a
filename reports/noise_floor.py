# SPDX-License-Identifier: MIT
"""The result of `make noise`: identical code, measured twice in turns, as kernels KERNEL@A and KERNEL@B. Of several
comparisons, each is a block of samples."""
import math
import statistics
from dataclasses import dataclass

from program import ResultError
from results import leading_number, load

SIDES = ("A", "B")
SHARE = 0.95  # of the rows differ by less than the floor


@dataclass(frozen=True)
class Pair:
    """A row of one comparison."""
    comparison: int
    key: tuple
    old: list
    new: list

    @property
    def ratio(self):
        return statistics.median(self.new) / statistics.median(self.old)


@dataclass(frozen=True)
class Noise:
    result: object
    samples: int  # of each side in a comparison
    pairs: list

    @property
    def floor(self):
        return floor_of(p.ratio for p in self.pairs)


def floor_of(ratios, share=SHARE):
    """The effect that identical code shows by noise: this quantile of |new / old - 1|, taken on a log scale."""
    far = sorted(abs(math.log(r)) for r in ratios)
    return math.expm1(far[math.ceil(share * len(far)) - 1])


def read(path):
    """The Noise in a file."""
    return of(load(path))


def of(result):
    """The Noise in a result."""
    samples = int(leading_number(result.context.get("emb_noise_samples")) or 0)
    sides = {s.key: s for s in result.series if not s.failed}
    pairs = []
    for (workload, rule, kernel, mode), a in sides.items():
        name, _, side = kernel.rpartition("@")
        b = sides.get((workload, rule, f"{name}@{SIDES[1]}", mode))
        if side == SIDES[0] and b:
            blocks = range(min(len(a.times), len(b.times)) // samples if samples else 0)
            cut = lambda times, i: times[i * samples:(i + 1) * samples]
            pairs += [Pair(i, (workload, rule, name, mode), cut(a.times, i), cut(b.times, i)) for i in blocks]
    if not pairs:
        raise ResultError(f"{result.path}: has no finished comparison of identical code; 'make noise' measures it")
    return Noise(result, samples, pairs)
