# SPDX-License-Identifier: MIT
"""Compares embfuse weight-grad and embfuse step --weight-grad with NumPy, bit by bit in the stated order of
kernels/weight_grad.h, and with autograd of PyTorch where it is installed: per_sample_weights.grad, together with the
rows after the step."""
import itertools
import json
import os
import sys

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except ImportError:
    torch = None

import tap
from test_forward_numpy import case as forward_case, embfuse, run

LANES = 128
LR = 0.5
NUMBERS = [n for n in range(84) if n // 3 % 2]  # those with per-sample weights


def kernels():
    """[(name, whether it is a step)]"""
    return [(k["name"], k["operation"] == "step") for k in json.loads(embfuse("list", "--json"))["kernels"]
            if k["place"] == "host" and (k["operation"] == "weight_grad" or "weight_grad" in k["traits"])]


def case(folder, number):
    """As forward_case, with a gradient of the output; every fourth per-sample weight is 0."""
    (weight, ids, offsets, weights, pooling, padding), flags = forward_case(folder, number)
    count = len(ids) if pooling == "none" else len(offsets) - 1
    grad = np.random.default_rng(number + 2000).standard_normal((count, weight.shape[1])).astype(np.float32)
    weights[::4] = 0
    np.save(os.path.join(folder, "lookup-weights.npy"), weights)
    np.save(os.path.join(folder, "grad.npy"), grad)
    return (weight, grad, ids, offsets, weights, pooling, padding), [*flags, "--grad", os.path.join(folder, "grad.npy")]


def dots(grads, rows):
    """Of two arrays of rows, in float32: LANES lanes, folded by halves."""
    lanes = np.zeros((len(rows), LANES), np.float32)
    for begin in range(0, rows.shape[1], LANES):
        product = grads[:, begin:begin + LANES] * rows[:, begin:begin + LANES]
        lanes[:, :product.shape[1]] += product
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def expected(weight, grad, ids, offsets, _, pooling, padding):
    bags = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    out = dots(grad[np.arange(len(ids)) if pooling == "none" else bags], weight[ids])
    if pooling == "none":
        return out
    counted = ids != padding
    if pooling == "mean":
        count = np.maximum(1, np.bincount(bags[counted], minlength=len(offsets) - 1))
        out = out * (np.float32(1) / count.astype(np.float32))[bags]
    return np.where(counted, out, np.float32(0))


def product(folder, kernel, step, flags, *more):
    """The gradient of the weights, and the rows after the step."""
    out, rows = os.path.join(folder, "r"), None
    path = out + ".weight_grad.npy"
    if os.path.exists(path):
        os.remove(path)
    if step:
        said = embfuse("step", "--kernel", kernel, "--rule", "sgd", "--lr", LR, *flags, *more, "--out", out,
                       "--weight-grad", path)
        rows = np.load(out + ".weight.npy")
    else:
        said = embfuse("weight-grad", "--kernel", kernel, *flags, *more, "--out", out)
    assert "checked: " in said, said
    return np.load(path), rows


def test_gradients_are_those_of_numpy(folder):
    assert {step for _, step in kernels()} == {False, True}
    for number in NUMBERS:
        given, flags = case(folder, number)
        want = expected(*given)
        for (kernel, step), threads in itertools.product(kernels(), (1, 3)):
            got, _ = product(folder, kernel, step, flags, "--threads", threads)
            assert got.dtype == np.float32 and got.shape == want.shape, (number, kernel)
            assert np.array_equal(got, want), (number, kernel, threads, got, want)


def by_pytorch(weight, grad, ids, offsets, weights, pooling, padding):
    """per_sample_weights.grad, and the rows after a step of SGD."""
    table = torch.tensor(weight, requires_grad=True)
    factors = torch.tensor(weights, requires_grad=True)
    at, begins = torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(offsets.astype(np.int64))
    skips = None if padding < 0 else padding
    if pooling == "none":
        out = torch.nn.functional.embedding(at, table, padding_idx=skips) * factors[:, None]
    else:
        out = torch.nn.functional.embedding_bag(at, table, begins, mode="sum", include_last_offset=True,
                                                per_sample_weights=factors, padding_idx=skips)
    if pooling == "mean":  # which PyTorch has only without weights
        counted = np.array([np.sum(ids[a:b] != padding) for a, b in itertools.pairwise(offsets)])
        out = out / torch.from_numpy(np.maximum(1, counted).astype(np.float32))[:, None]
    out.backward(torch.from_numpy(grad))
    return factors.grad.numpy(), weight - LR * table.grad.numpy()


def test_gradients_and_rows_are_those_of_pytorch(folder):
    if torch is None:
        raise tap.Skip("no PyTorch")
    seen = set()
    for number in NUMBERS:
        given, flags = case(folder, number)
        want = by_pytorch(*given)
        for kernel, step in kernels():
            got, rows = product(folder, kernel, step, flags)
            assert np.allclose(got, want[0], rtol=1e-4, atol=2e-5), (number, kernel)
            if step:
                assert np.allclose(rows, want[1], rtol=1e-4, atol=2e-5), (number, kernel)
            seen.add((*given[-2:], step))
    assert len(seen) == 12, seen


def test_batches_that_gen_wrote(folder):
    prefix, out = os.path.join(folder, "b"), os.path.join(folder, "r")
    spec = ("workload w; tables 3; rows 200; dim 16; batch 30; length uniform 0 9; ids zipf; alpha 1; weighted 1; "
            "weight_grad 1; rule adam")
    embfuse("gen", "--spec-text", spec, "--out", prefix, "--initial-tables")
    grad, ids, offsets = (np.load(f"{prefix}.{name}.npy") for name in ("grad", "ids", "offsets"))
    want = []
    for t in range(3):
        own = offsets[30 * t:30 * t + 31]
        want.append(expected(np.load(f"{prefix}.weight.{t}.npy"), grad[:, 16 * t:16 * t + 16],
                             ids[own[0]:own[-1]], own - own[0], None, "sum", -1))
    for kernel, step in kernels():
        name = "step" if step else "weight-grad"
        more = ["--weight-grad", out + ".weight_grad.npy", "--clip-global-norm", "1e-3"] if step else []
        embfuse(name, "--kernel", kernel, "--batch", prefix, "--out", out, *more)
        assert np.array_equal(np.load(out + ".weight_grad.npy"), np.concatenate(want)), kernel


def test_no_lookups(folder):
    arrays = {"ids": np.zeros(0, np.int64), "offsets": np.zeros(3, np.int64), "grad": np.zeros((2, 5), np.float32),
              "weight": np.ones((9, 5), np.float32), "lookup-weights": np.zeros(0, np.float32)}
    flags = []
    for name, array in arrays.items():
        np.save(os.path.join(folder, name + ".npy"), array)
        flags += ["--" + name, os.path.join(folder, name + ".npy")]
    for kernel, step in kernels():
        assert product(folder, kernel, step, flags)[0].shape == (0,), kernel


def test_bad_input_is_one_line(folder):
    _, flags = case(folder, NUMBERS[0])
    out, path = ["--out", os.path.join(folder, "bad")], os.path.join(folder, "bad.npy")
    at = flags.index("--lookup-weights")
    unweighted = flags[:at] + flags[at + 2:]
    step = ["step", "--rule", "sgd", *out, "--weight-grad", path]
    for said, args in {
            "unknown kernel 'cpu_sort'; known: cpu_dot": ["weight-grad", "--kernel", "cpu_sort", *flags, *out],
            "weight-grad: the batch has no per-sample weights": ["weight-grad", "--kernel", "cpu_dot", *unweighted, *out],
            "give --lookup-weights": [*step, "--kernel", "cpu_fused", *unweighted],
            "cpu_hash does not write the gradient": [*step, "--kernel", "cpu_hash", *flags],
            "--weight-grad is of one step": [*step, "--kernel", "cpu_fused", *flags, "--steps", 2],
            "--weight-grad ": [*step[:-1], os.path.join(folder, "no", "such"), "--kernel", "cpu_fused", *flags]}.items():
        done = run(*args)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and said in done.stderr, (said, done.stderr)
    assert not os.path.exists(path) and not os.path.exists(os.path.join(folder, "bad.weight.npy"))


def test_workload_needs_weights(folder):
    done = run("gen", "--spec-text", "workload w; rows 20; dim 4; batch 3; weight_grad 1", "--out",
               os.path.join(folder, "b"))
    assert done.returncode == 1 and "weight_grad without per-sample weights; add weighted 1" in done.stderr, done


if __name__ == "__main__":
    if np is None:
        print("1..0 # SKIP no NumPy")
        sys.exit()
    sys.exit(tap.run(globals(), "weight grad"))
