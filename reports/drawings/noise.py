# SPDX-License-Identifier: MIT
"""The noise floor: how far medians of identical code differ in one run (make noise)."""
import json
import math
from dataclasses import dataclass

from paper import CAUTION_COLOUR, COLUMN, GREY, finish, log_axis, panels, range_of
from program import ResultError
from results import Result
from style import GUEST_COLOURS

DASHES = ("-", "--", ":")


@dataclass
class Noise(Result):
    """A result without rows."""
    modes: dict  # {mode: |log ratio| of every pair}
    floor: dict  # {name: |log ratio|}


def is_noise(path):
    """Whether a file is one of make noise, not a result."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return False  # results.load() says what is wrong
    return isinstance(data, dict) and "pairs" in data and "benchmarks" not in data


def load(path):
    """Reads a file of make noise; ResultError if it is another one."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    try:
        modes = {}
        for pair in data["pairs"]:
            modes.setdefault(pair["mode"], []).append(abs(math.log(pair["ratio"])))
        floor = {name: float(v) for name, v in data["floor"].items()}
        context = dict(data["context"])
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ResultError(f"{path}: not a file of make noise ({type(e).__name__}: {e}); run make noise") from None
    every = [*floor.values(), *(v for own in modes.values() for v in own)]
    if not modes or not all(map(math.isfinite, every)) or min(floor.values(), default=0) <= 0:
        raise ResultError(f"{path}: has no pairs or no floor; run make noise")
    return Noise(str(path), context, {}, [], [], modes, floor)


def pick(result, _mode):
    return {"": result} if isinstance(result, Noise) else {}


def percent(log_ratio):
    return 100 * math.expm1(log_ratio)


def noise(width, result, _shown):
    """The share of pairs whose medians differ by at most x, with the floor marked."""
    figure, (ax,) = panels(width, 1, (1, 1), 2.0)
    every = [percent(v) for own in result.modes.values() for v in own]
    low, high = range_of([*every, *map(percent, result.floor.values())])
    for (mode, own), shade, dash in zip(result.modes.items(), GUEST_COLOURS, DASHES):
        xs = sorted(percent(v) for v in own)
        ys = [100 * (i + 1) / len(xs) for i in range(len(xs))]
        ax.step([low, *(max(low, x) for x in xs), high], [0, *ys, 100], where="post", color=shade, ls=dash,
                label=f"{mode}, {len(own)} pairs")
    for i, (name, v) in enumerate(result.floor.items()):
        ax.axvline(percent(v), color=CAUTION_COLOUR if i == len(result.floor) - 1 else GREY, lw=0.8,
                   label=f"{name} {percent(v):.2g} %")
    log_axis(ax.xaxis, low, high, room=5 if width == COLUMN else 9)
    ax.set(ylim=(0, 102))
    return finish(figure, [ax], result, [], "Noise floor: A against A', identical code in one run",
                  "difference of the two medians, %", "pairs, % (cumulative)", [], points="")
