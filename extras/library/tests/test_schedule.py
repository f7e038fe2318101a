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
import libembfuse as embfuse
import make_schedules as made

with open(os.path.join(tap.TESTS, "golden", "schedules.json"), encoding="utf-8") as golden:
    RECORD = json.load(golden)
PRODUCTS = ("step", "multistep", "exponential", "constant")


def schedule_of(words):
    numbers = {name: words.get(name, 0) for name in ("steps", "gamma", "from", "to", "power", "least")}
    given, parts = words.get("milestones", []), [schedule_of(p) for p in words.get("parts", [])]
    arrays = (ctypes.c_int64 * len(given))(*given), (embfuse.struct.schedule * len(parts))(*parts)
    s = embfuse.new("schedule", kind=embfuse.constant["SCHEDULE_" + words["kind"].upper()], num_milestones=len(given),
                    milestones=ctypes.addressof(arrays[0]), parts=ctypes.addressof(arrays[1]), **numbers)
    s.arrays = arrays, parts  # they live as long
    return s


def farthest(words, steps, rates):
    """The largest error in units of the last place of 4 t times the rate, or in sums times their largest term, the
    base; up to 1 is fine."""
    s, worst = schedule_of(words), 0
    for t, want in zip(steps, rates):
        got = embfuse.lib.embfuse_schedule_rate(s, made.BASE, t)
        scale = want if words["kind"] in PRODUCTS else made.BASE
        worst = max(worst, abs(got - want) / (4 * max(t, 1) * math.ulp(scale)))
    return worst


def test_record_has_all_cases(_):
    assert [(c["name"], c["schedule"]) for c in RECORD["cases"]] == made.CASES
    kinds = {name[9:].lower() for name in embfuse.constant if name.startswith("SCHEDULE_")}
    assert {c["schedule"]["kind"] for c in RECORD["cases"]} == kinds


def test_recorded_rates(_):
    for case in RECORD["cases"]:
        worst = farthest(case["schedule"], RECORD["steps"], [float.fromhex(r) for r in case["rates"]])
        assert worst <= 1, (case["name"], worst)


def test_pytorch_here_as_recorded(_):
    if not torch:
        raise tap.Skip("no PyTorch: make peers installs it, or set TORCH_PYTHON")
    for name, words in made.CASES:
        rates = made.rates(torch, words, 1200)
        worst = farthest(words, range(len(rates)), rates)
        assert worst <= 1, (name, worst)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "schedule"))
