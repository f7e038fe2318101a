#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/golden/schedules.json: learning rates of PyTorch's schedulers over many steps, as `step()` really
computes them. A case is a schedule in the words of embfuse.h, the base rate, and the rates as exact hexadecimal
doubles; the steps are 0 .. dense-1, and those in `sparse`. Usage: make_schedules.py > schedules.json, with PyTorch."""
import json
import sys
import warnings

BASE, DENSE = 0.1, 24
SPARSE = [25, 30, 31, 39, 40, 41, 42, 60, 61, 79, 80, 81, 99, 100, 101, 199, 250, 499, 500, 501, 999, 1000, 1500, 1999,
          2000, 2001, 3000, 5000, 7001, 9999, 10000]

# Name, schedule.
CASES = [
    ("step", {"kind": "step", "steps": 7, "gamma": 0.5}),
    ("step of one", {"kind": "step", "steps": 1, "gamma": 0.999}),
    ("milestones", {"kind": "multistep", "milestones": [3, 10, 500], "gamma": 0.1}),
    ("repeated milestones", {"kind": "multistep", "milestones": [0, 5, 5, 30, 30, 30, 60], "gamma": 0.3}),
    ("exponential", {"kind": "exponential", "gamma": 0.999}),
    ("exponential to almost 0", {"kind": "exponential", "gamma": 0.95}),
    ("constant", {"kind": "constant", "steps": 4, "from": 1 / 3}),
    ("linear", {"kind": "linear", "steps": 5, "from": 1 / 3, "to": 1.0}),
    ("long warm-up", {"kind": "linear", "steps": 2000, "from": 0.001, "to": 1.0}),
    ("falling", {"kind": "linear", "steps": 500, "from": 1.0, "to": 0.1}),
    ("polynomial", {"kind": "polynomial", "steps": 20, "power": 2.0}),
    ("long polynomial", {"kind": "polynomial", "steps": 10000, "power": 0.9}),
    ("cosine", {"kind": "cosine", "steps": 20, "least": 0.001}),
    ("cosine to 0", {"kind": "cosine", "steps": 40, "least": 0.0}),
    ("cosine of one step", {"kind": "cosine", "steps": 1, "least": 0.01}),
    ("long cosine", {"kind": "cosine", "steps": 1000, "least": 0.0001}),
    ("warm-up, then exponential", {"kind": "sequence", "milestones": [4], "parts": [
        {"kind": "linear", "steps": 4, "from": 0.1, "to": 1.0}, {"kind": "exponential", "gamma": 0.9}]}),
    ("warm-up that is cut, then cosine", {"kind": "sequence", "milestones": [6], "parts": [
        {"kind": "linear", "steps": 10, "from": 0.05, "to": 1.0}, {"kind": "cosine", "steps": 50, "least": 0.002}]}),
    ("warm-up, constant, polynomial", {"kind": "sequence", "milestones": [10, 40], "parts": [
        {"kind": "linear", "steps": 10, "from": 0.01, "to": 1.0}, {"kind": "constant", "steps": 20, "from": 1.0},
        {"kind": "polynomial", "steps": 60, "power": 2.0}]}),
    ("steps, then milestones", {"kind": "sequence", "milestones": [9], "parts": [
        {"kind": "step", "steps": 2, "gamma": 0.7}, {"kind": "multistep", "milestones": [5, 5, 90], "gamma": 0.2}]}),
]


def scheduler_of(torch, schedule, optimizer):
    """PyTorch's scheduler."""
    s, lr = schedule, torch.optim.lr_scheduler
    return {"step": lambda: lr.StepLR(optimizer, s["steps"], s["gamma"]),
            "multistep": lambda: lr.MultiStepLR(optimizer, s["milestones"], s["gamma"]),
            "exponential": lambda: lr.ExponentialLR(optimizer, s["gamma"]),
            "constant": lambda: lr.ConstantLR(optimizer, s["from"], s["steps"]),
            "linear": lambda: lr.LinearLR(optimizer, s["from"], s["to"], s["steps"]),
            "polynomial": lambda: lr.PolynomialLR(optimizer, s["steps"], s["power"]),
            "cosine": lambda: lr.CosineAnnealingLR(optimizer, s["steps"], s["least"]),
            "sequence": lambda: lr.SequentialLR(optimizer, [scheduler_of(torch, p, optimizer) for p in s["parts"]],
                                                s["milestones"])}[s["kind"]]()


def rates(torch, schedule, steps):
    """The learning rate of each step: optimizer.step(), then scheduler.step()."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # step(0) of SequentialLR warns of itself
        scheduler, out = scheduler_of(torch, schedule, optimizer), []
        for _ in range(steps):
            out.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return out


def record(torch):
    steps = [*range(DENSE), *SPARSE]
    cases = []
    for name, schedule in CASES:
        all_rates = rates(torch, schedule, steps[-1] + 1)
        cases.append({"name": name, "schedule": schedule, "rates": [float(all_rates[t]).hex() for t in steps]})
    version = {"torch": torch.__version__, "python": sys.version.split()[0]}
    return {"versions": version, "base": BASE, "steps": steps, "cases": cases}


if __name__ == "__main__":
    import torch as pytorch
    whole = record(pytorch)
    lines = ",\n".join(json.dumps(case) for case in whole.pop("cases"))
    print(f"{json.dumps(whole)[:-1]}, \"cases\": [\n{lines}]}}")
