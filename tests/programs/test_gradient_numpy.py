# SPDX-License-Identifier: MIT
"""Compares embfuse gradient with NumPy, and with the sparse gradients of PyTorch where it is installed: uncoalesced
with the unmerged form, coalesce() with the merged one."""
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


def kernels():
    """[(name, merged)]"""
    return [(k["name"], "merged" in k["traits"]) for k in json.loads(embfuse("list", "--json"))["kernels"]
            if k["place"] == "host" and k["operation"] == "gradient"]


def case(folder, number):
    """As forward_case, with a gradient of the output in place of the weights: (shape of the table, gradient, ids,
    offsets, lookup weights, pooling, padding), and the flags."""
    (weight, ids, offsets, *rest), flags = forward_case(folder, number)
    at = flags.index("--weight")
    count = len(ids) if rest[1] == "none" else len(offsets) - 1
    grad = np.random.default_rng(number + 1000).standard_normal((count, weight.shape[1])).astype(np.float32)
    path = os.path.join(folder, "grad.npy")
    np.save(path, grad)
    flags[at:at + 2] = ["--grad", path, "--rows", weight.shape[0], "--dim", weight.shape[1]]
    return (weight.shape, grad, ids, offsets, *rest), flags


def entries(_, grad, ids, offsets, weights, pooling, padding):
    """Rows and values of all lookups that are not padding, in float64."""
    bags = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    counted = ids != padding
    values = grad.astype(np.float64)[np.arange(len(ids)) if pooling == "none" else bags]
    if weights is not None:
        values = values * weights[:, None]
    if pooling == "mean":
        values = values / np.maximum(1, np.bincount(bags[counted], minlength=len(offsets)))[bags][:, None]
    return ids[counted].astype(np.int64), values[counted]


def merge(rows, values):
    unique, which = np.unique(rows, return_inverse=True)
    sums = np.zeros((len(unique), values.shape[1]))
    np.add.at(sums, which, values)
    return unique, sums


def product(folder, kernel, flags, *more):
    out = os.path.join(folder, "r")
    said = embfuse("gradient", "--kernel", kernel, *flags, *more, "--out", out)
    assert "checked: " in said, said
    return np.load(out + ".rows.npy"), np.load(out + ".values.npy")


def same(got, want):
    return (got[0].dtype == np.int64 and np.array_equal(got[0], want[0]) and got[1].dtype == np.float32 and
            got[1].shape == want[1].shape and np.allclose(got[1], want[1], rtol=1e-4, atol=1e-5))


def test_gradients_are_those_of_numpy(folder):
    for number in range(42):
        given, flags = case(folder, number)
        each = entries(*given)
        for (kernel, merged), threads in itertools.product(kernels(), (1, 3)):
            got = product(folder, kernel, flags, "--threads", threads)
            assert same(got, merge(*each) if merged else each), (number, kernel, threads)


def test_gradients_are_those_of_pytorch(folder):
    if torch is None:
        raise tap.Skip("no PyTorch")
    seen = set()
    for number in range(42):
        (shape, grad, ids, offsets, weights, pooling, padding), flags = case(folder, number)
        table = torch.zeros(shape, requires_grad=True)
        at = torch.from_numpy(ids.astype(np.int64))
        skips = None if padding < 0 else padding
        if pooling == "none" and weights is None:
            out = torch.nn.functional.embedding(at, table, padding_idx=skips, sparse=True)
        elif pooling == "none" or (weights is not None and pooling != "sum"):
            continue  # PyTorch has no such function
        else:
            out = torch.nn.functional.embedding_bag(
                at, table, torch.from_numpy(offsets.astype(np.int64)), mode=pooling, include_last_offset=True,
                sparse=True, per_sample_weights=None if weights is None else torch.from_numpy(weights),
                padding_idx=skips)
        out.backward(torch.from_numpy(grad))
        for kernel, merged in kernels():
            want = table.grad.coalesce() if merged else table.grad
            want = want._indices()[0].numpy(), want._values().numpy()
            assert same(product(folder, kernel, flags), want), (number, kernel)
            seen.add((pooling, merged, padding >= 0))
    assert len(seen) == 12, seen


def test_batches_that_gen_wrote(folder):
    prefix = os.path.join(folder, "b")
    spec = ("workload w; tables 3; rows 200; dim 16; batch 30; length uniform 0 9; ids zipf; alpha 1; "
            "grad_type fp16")
    embfuse("gen", "--spec-text", spec, "--out", prefix)
    grad, ids, offsets = (np.load(f"{prefix}.{name}.npy") for name in ("grad", "ids", "offsets"))
    for kernel, merged in kernels():
        embfuse("gradient", "--kernel", kernel, "--batch", prefix, "--out", prefix)
        for t in range(3):
            own = offsets[30 * t:30 * t + 31]
            each = entries(None, grad[:, 16 * t:16 * t + 16], ids[own[0]:own[-1]], own - own[0], None, "sum", -1)
            got = np.load(f"{prefix}.rows.{t}.npy"), np.load(f"{prefix}.values.{t}.npy")
            assert same(got, merge(*each) if merged else each), (kernel, t)


def test_no_lookups(folder):
    np.save(os.path.join(folder, "none.npy"), np.zeros(0, np.int64))
    np.save(os.path.join(folder, "zero.npy"), np.zeros(3, np.int64))
    np.save(os.path.join(folder, "two.npy"), np.zeros((2, 5), np.float32))
    flags = ["--ids", os.path.join(folder, "none.npy"), "--offsets", os.path.join(folder, "zero.npy"), "--grad",
             os.path.join(folder, "two.npy"), "--rows", 9, "--dim", 5]
    for kernel, _ in kernels():
        assert same(product(folder, kernel, flags), (np.zeros(0, np.int64), np.zeros((0, 5)))), kernel


def test_bad_input_is_one_line(folder):
    _, flags = case(folder, 0)
    name = kernels()[0][0]
    out = ["--out", os.path.join(folder, "bad")]
    at = flags.index("--rows")
    for said, args in {
            "unknown kernel 'cpu_sort'; known: cpu_merged": ["--kernel", "cpu_sort", *flags, *out],
            "--out": ["--kernel", name, *flags],
            "--rows": ["--kernel", name, *flags[:at], *flags[at + 2:], *out],
            "--rows: ": ["--kernel", name, *flags[:at], "--rows", 0, *flags[at + 2:], *out],
            "grad.npy": ["--kernel", name, *flags[:at], "--rows", 50, "--dim", 77, *flags[at + 4:], *out],
            "excludes --ids, --offsets, --grad, --rows": ["--kernel", name, "--batch", "b", *flags, *out],
            "give --batch, or --ids, --offsets, --grad": ["--kernel", name, *out]}.items():
        done = run("gradient", *args)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and said in done.stderr, (said, done.stderr)
    assert not os.path.exists(os.path.join(folder, "bad.rows.npy"))


if __name__ == "__main__":
    if np is None:
        print("1..0 # SKIP no NumPy")
        sys.exit()
    sys.exit(tap.run(globals(), "gradient"))
