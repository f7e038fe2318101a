#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of drift: what must be small is small, what must be large is large, and the page shows it."""
import json
import os
import subprocess
import sys

import tap

BUILD = os.environ.get("BUILD", "build")
PROGRAM = os.path.join(BUILD, "extras", "studies", "drift", "drift")


def report(folder, text):
    lines = tap.script(folder, "lines", text)
    return subprocess.run([sys.executable, tap.tool("drift.py"), lines, folder], capture_output=True, text=True,
                          check=False)


def test_drift_is_what_it_must_be_and_the_page_shows_it(folder):
    run = subprocess.run([PROGRAM, "20"], capture_output=True, text=True, check=True)
    drift = {(x["rule"], x["variant"], x["steps"]): float(x["drift"]) for x in map(json.loads, run.stdout.splitlines())}
    assert 0 < drift["sgd", "one_by_one", 20] < 1e-4  # a linear rule: only roundings
    assert drift["adam", "one_by_one", 20] > 0.1
    assert drift["adam", "dense", 1] == 0 and drift["adam", "dense", 20] > 0.1  # moments begin at 0
    fp16, bf16, fp8 = (drift["adagrad", f"{t}/fp32 nearest", 20] for t in ("fp16", "bf16", "fp8"))
    assert 0 < 4 * fp16 < bf16 and 4 * bf16 < fp8  # 10 bits of mantissa, 7, 3
    run = report(folder, run.stdout)
    assert run.returncode == 0, run.stderr
    with open(os.path.join(folder, "drift.md"), encoding="utf-8") as page:
        text = page.read()
    assert "Drift after 20 steps" in text and "| adam |" in text and "nan" not in text


def test_bad_input_is_one_line(folder):
    run = report(folder, "no json\n")
    assert run.returncode == 1 and "lines:1: not a line of drift" in run.stderr, run.stderr
    run = subprocess.run([PROGRAM, "0"], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and run.stderr == "usage: drift [STEPS], 1 to 1000000\n"


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "drift"))
