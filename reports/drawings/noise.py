# SPDX-License-Identifier: MIT
"""The noise floor: how far medians of identical code differ in one run (make noise)."""
import json
import math

from paper import CAUTION_COLOUR, COLUMN, GREY, finish, log_axis, panels, range_of
from program import ResultError
from results import Result
from style import GUEST_COLOURS

DASHES = ("-", "--", ":")


def is_noise(path):
    """Whether a file is one of make noise, not a result."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return False  # results.load() says what is wrong
    return isinstance(data, dict) and "pairs" in data and "benchmarks" not in data


def load(path):
    """A result without rows that has the pairs: {mode: |log ratio| of each}, and the floor {name: |log ratio|}."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    try:
        modes = {}
        for pair in data["pairs"]:
            modes.setdefault(pair["mode"], []).append(abs(math.log(pair["ratio"])))
        floor = {name: float(v) for name, v in data["floor"].items()}
        result = Result(str(path), dict(data["context"]), {}, [], [])
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ResultError(f"{path}: not a file of make noise ({type(e).__name__}: {e}); run make noise") from None
    if not modes or not all(math.isfinite(v) and v > 0 for v in floor.values()):
        raise ResultError(f"{path}: has no pairs or no floor; run make noise")
    result.modes, result.floor = modes, floor
    return result


def pick(result, _mode):
    return {"": result} if hasattr(result, "floor") else {}


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
                  "difference of the two medians, %", "pairs, % (cumulative)", [], spread="")
