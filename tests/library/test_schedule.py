#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares embfuse_schedule_rate with PyTorch's schedulers: with recorded rates (tests/golden/schedules.json), and with
PyTorch itself where it is installed. PyTorch computes a rate from the one before, so the error may grow with t."""
import ctypes
import json
import math
import os
import sys

import tap

tap.use_torch(__file__)
try:
    import torch
except ImportError:
    torch = None
import embfuse
import make_schedules as made

with open(os.path.join(tap.TESTS, "golden", "schedules.json"), encoding="utf-8") as golden:
    RECORD = json.load(golden)
# The error of products is relative to the rate; in sums it is relative to their largest term, the base.
PRODUCTS = ("step", "multistep", "exponential", "constant")


def schedule_of(words):
    numbers = {name: words.get(name, 0) for name in ("steps", "gamma", "from", "to", "power", "least")}
    given, parts = words.get("milestones", []), [schedule_of(p) for p in words.get("parts", [])]
    arrays = (ctypes.c_int64 * len(given))(*given), (embfuse.struct.schedule * len(parts))(*parts)
    s = embfuse.new("schedule", kind=embfuse.constant["SCHEDULE_" + words["kind"].upper()], num_milestones=len(given),
                    milestones=ctypes.addressof(arrays[0]), parts=ctypes.addressof(arrays[1]), **numbers)
    s.arrays = arrays, parts  # they live as long
    return s


def scale(words, want):
    return want if words["kind"] in PRODUCTS else made.BASE


def farthest(words, steps, rates, shift=0):
    """The largest error in units of the last place of 4 t times the scale; up to 1 is fine."""
    s, worst = schedule_of(words), 0
    for t, want in zip(steps, rates):
        got = embfuse.lib.embfuse_schedule_rate(s, made.BASE, t + shift)
        worst = max(worst, abs(got - want) / (4 * max(t, 1) * math.ulp(scale(words, want))))
    return worst


def recorded():
    return [(c["name"], c["schedule"], [float.fromhex(r) for r in c["rates"]]) for c in RECORD["cases"]]


def test_record_has_all_cases(_):
    assert [(c["name"], c["schedule"]) for c in RECORD["cases"]] == made.CASES
    kinds = {name[9:].lower() for name in embfuse.constant if name.startswith("SCHEDULE_")}
    assert {c["schedule"]["kind"] for c in RECORD["cases"]} == kinds


def test_recorded_rates(_):
    for name, words, rates in recorded():
        worst = farthest(words, RECORD["steps"], rates)
        assert worst <= 1, (name, worst)


def test_another_step_is_noticed(_):
    """A rate of a neighbouring step does not pass."""
    for name, words, rates in recorded():
        for shift in (-1, 1):
            worst = farthest(words, RECORD["steps"][1:], rates[1:], shift)
            assert worst > 1e6, (name, shift, worst)


def test_pytorch_here_as_recorded(_):
    if not torch:
        raise tap.Skip("no PyTorch: make peers installs it, or set TORCH_PYTHON")
    for name, words in made.CASES:
        rates = made.rates(torch, words, 1200)
        worst = farthest(words, range(len(rates)), rates)
        assert worst <= 1, (name, worst)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "schedule"))
