#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares embfuse step with torch.optim, for every rule that PyTorch has, on real gradients. A case is three steps.
Each step has a batch of its own with duplicates, and is compared when it is done: weights and states. PyTorch also
sums the gradients of a row, in the backward pass of embedding_bag.

The interpreter is $TORCH_PYTHON, or the one that make peers installs, or the one that runs this file. If it has no
PyTorch, the test is skipped.
"""
import itertools
import json
import os
import sys

import tap

tap.use_torch(__file__)
sys.dont_write_bytecode = True
try:
    import numpy as np
    import torch
    MISSING = None
except ImportError as e:
    MISSING = e
import numpy_oracle as oracle

STEPS, ROWS, DIM, BAGS = 3, 40, 5, 30
# PyTorch computes in float64, so only embfuse rounds: in three steps, each a sum of a few gradients and some ten
# operations. A sum may be much smaller than its gradients, so the scale of an error is the largest value of an array,
# beside the value itself. The largest error seen is four roundings of it.
TOLERANCE = 16 * 2.0**-24

# Epsilons are large and betas small, so that the place of each shows.
HYPER = {"lr": 0.1, "eps": 0.1, "momentum": 0.8, "beta1": 0.7, "beta2": 0.9, "alpha": 0.9}
# Rule, optimizer, options of embfuse, further arguments of the optimizer.
DENSE = [("sgd", "SGD", {}, {}),
         ("momentum", "SGD", {}, {}),
         ("momentum", "SGD", {"dampening": 0.25}, {}),
         ("momentum", "SGD", {"nesterov": 1}, {}),
         ("adagrad", "Adagrad", {}, {}),
         ("adagrad", "Adagrad", {"lr_decay": 0.5, "initial_accumulator": 0.1}, {}),
         ("rmsprop", "RMSprop", {}, {}),
         ("rmsprop_momentum", "RMSprop", {}, {}),
         ("rmsprop_centered", "RMSprop", {}, {"centered": True}),
         ("rmsprop_centered", "RMSprop", {"momentum": 0}, {"centered": True}),
         ("adadelta", "Adadelta", {}, {}),
         ("adam", "Adam", {}, {}),
         ("amsgrad", "Adam", {}, {"amsgrad": True}),
         ("adamax", "Adamax", {}, {})]
# Adjustments that embfuse has for all rules. PyTorch has decoupled weight decay for Adam alone.
SHARED = [{}, {"maximize": 1}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "maximize": 1}]
DECOUPLED = [("adam", "AdamW", {"weight_decay": 0.1, "decoupled_weight_decay": 1}, {}),
             ("adam", "AdamW", {"weight_decay": 0.1, "decoupled_weight_decay": 1, "maximize": 1}, {}),
             ("amsgrad", "AdamW", {"weight_decay": 0.1, "decoupled_weight_decay": 1}, {"amsgrad": True})]
# These optimizers accept a sparse gradient, without weight decay, and leave untouched rows alone. SGD with momentum
# accepts it, too, but moves untouched rows.
SPARSE = [("sgd", "SGD", {}, {}),
          ("adagrad", "Adagrad", {}, {}),
          ("adagrad", "Adagrad", {"lr_decay": 0.5, "initial_accumulator": 0.1}, {}),
          ("adam_epsilon_hat", "SparseAdam", {}, {})]
POOLING = [{"pooling": "sum"}, {"pooling": "mean", "padding": 3}, {"pooling": "sum", "weighted": True},
           {"pooling": "mean"}, {"pooling": "sum", "padding": 0, "weighted": True}]

# Names in PyTorch: of hyper-parameters that have another one, and of states.
ARGUMENTS = {"initial_accumulator": "initial_accumulator_value"}
NO_ARGUMENTS = ("name", "decoupled_weight_decay")  # the optimizer's name says both
STATES = {"momentum_buffer": "b", "sum": "s", "square_avg": "s", "grad_avg": "m", "acc_delta": "d", "exp_avg": "m",
          "exp_avg_sq": "v", "max_exp_avg_sq": "x", "exp_inf": "n"}


def optimizer_of(name, weight, rule, more):
    """The optimizer, with the hyper-parameters of the rule."""
    given = {ARGUMENTS.get(k, k): v for k, v in rule.items() if v and k not in NO_ARGUMENTS}
    if "beta1" in given:
        given["betas"] = (given.pop("beta1"), given.pop("beta2"))
    optimizer = getattr(torch.optim, name)([weight], **given, **more)
    if given.get("dampening"):  # otherwise PyTorch does not dampen its first gradient
        optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return optimizer


def torch_step(optimizer, weight, batch, touched, sparse):
    """A step of PyTorch. touched: the rows that may move. Others that a dense optimizer moves are put back."""
    feature, of = batch["features"][0], lambda x: None if x is None else torch.from_numpy(x)
    ids, offsets, grad, weights = (of(batch[k]) for k in ("ids", "offsets", "grad", "weights"))
    how = {"mode": feature["pooling"], "sparse": sparse,
           "per_sample_weights": None if weights is None else weights.double(),
           "padding_idx": None if feature["padding"] < 0 else feature["padding"]}
    arrays = lambda: {"weight": weight.data} | {k: v for k, v in optimizer.state[weight].items() if k in STATES and v is not None}
    before = {k: v.clone() for k, v in arrays().items()}
    optimizer.zero_grad()
    torch.nn.functional.embedding_bag(ids, weight, offsets[:-1], **how).backward(grad.double())
    assert weight.grad.is_sparse == sparse
    optimizer.step()
    if not sparse:
        for k, v in arrays().items():
            v[~touched] = before[k][~touched] if k in before else 0
    return {STATES.get(k, k): v.numpy() for k, v in arrays().items()}


def own_batch(seed, pooling="sum", padding=-1, weighted=False):
    """One table and one feature with duplicates and an empty bag."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, BAGS)
    lengths[4] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return {"ids": rng.integers(0, ROWS, offsets[-1]), "offsets": offsets, "bags": [BAGS], "grad_type": "fp32", "winners": None,
            "grad": rng.standard_normal((BAGS, DIM)).astype(np.float32),
            "weights": rng.random(offsets[-1]).astype(np.float32) if weighted else None,
            "tables": [{"rows": ROWS, "dim": DIM, "weight_type": "fp32", "momentum_type": "fp32"}],
            "features": [{"table": 0, "pooling": pooling, "padding": padding}]}


def embfuse_step(folder, kernel, t, batch, weight, states):
    """Step t of embfuse. states: the arrays, or () for those of a new table."""
    prefix = os.path.join(folder, "b")
    oracle.write(prefix, batch, [(weight, states, None)])
    tap.good({}, "embfuse", "step", "--kernel", kernel["name"], "--batch", prefix, "--first-step", str(t), "--out", prefix)
    return oracle.load_tables(prefix, batch["tables"])[0][:2]


def close(got, want):
    return np.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE * np.abs(want).max())


def compare(folder, kernel, case, pooling, sparse):
    """Takes the steps with both; raises an error where they differ."""
    name, optimizer, options, more = case
    rule = oracle.rule_of(name, **{k: v for k, v in HYPER.items() if k in oracle.rule_of(name)} | options)
    dense = "dense_step" in kernel["traits"]
    weight, states = np.random.default_rng(5).standard_normal((ROWS, DIM)).astype(np.float32), ()
    parameter = torch.nn.Parameter(torch.from_numpy(weight).double())
    optimizer = optimizer_of(optimizer, parameter, rule, more)
    names = [s["name"] for s in oracle.RULES[name]["elem"]]
    for t in range(1, STEPS + 1):
        batch = own_batch(t, **pooling)
        batch["tables"][0]["rule"] = rule
        touched = oracle.summed(batch, 0)[1] | dense
        assert dense or 0 < touched.sum() < ROWS
        want = torch_step(optimizer, parameter, batch, torch.from_numpy(touched), sparse)
        kept = weight[~touched].tobytes()
        weight, states = embfuse_step(folder, kernel, t, batch, weight, states)
        assert weight[~touched].tobytes() == kept, f"step {t}: an untouched row has moved"
        got = {"weight": weight} | dict(zip(names, states))
        if rule.get("momentum") == 0:
            del got["b"]  # PyTorch keeps no buffer then
        assert got.keys() == want.keys(), f"states {set(got)}, PyTorch {set(want)}"
        for k, x in got.items():
            assert close(x, want[k]), f"step {t}, {k}: off by {np.abs(x - want[k]).max():g}"


def cases(kernels):
    """Kernel, case, pooling, whether the gradient is sparse."""
    dense = [(rule, name, options | shared, more) for shared in SHARED for rule, name, options, more in DENSE]
    sparse = [(rule, name, options | shared, more) for shared in SHARED[:2] for rule, name, options, more in SPARSE]
    every = [(case, False) for case in dense + DECOUPLED] + [(case, True) for case in sparse]
    for i, (case, is_sparse) in enumerate(every):
        yield kernels["cpu_fused"], case, POOLING[i % len(POOLING)], is_sparse
    for kernel, pooling in zip(kernels.values(), itertools.cycle(POOLING[1:])):
        yield kernel, DECOUPLED[0], pooling, False
        yield kernel, SPARSE[1], pooling, True


def title(kernel, case, pooling, sparse):
    rule, name, options, more = case
    words = [f"{k} {v}" for k, v in (more | options | pooling).items()]
    return f"{kernel['name']}, {rule} is {'sparse ' * sparse}{name}, {', '.join(words)}"


def main():
    if MISSING:
        tap.skip_all("torch.optim", f"{MISSING}: make peers installs it, or set TORCH_PYTHON")
    torch.set_num_threads(1)
    known = json.loads(tap.good({}, "embfuse", "list", "--json"))
    oracle.RULES.update({r["name"]: r for r in known["rules"]})
    kernels = {k["name"]: k for k in known["kernels"] if k["place"] == "host" and k["operation"] == "step"}

    def every_rule_of_pytorch_is_compared(_):
        said = {name for name, r in oracle.RULES.items() if "torch.optim." in r["source"]}
        assert said == {case[0] for case in DENSE + SPARSE}, said

    tests = {"test_every_rule_of_pytorch_is_compared": every_rule_of_pytorch_is_compared}
    tests |= {f"test_{title(*case)}": lambda folder, case=case: compare(folder, *case) for case in cases(kernels)}
    return tap.run(tests, "PyTorch")


if __name__ == "__main__":
    sys.exit(main())
