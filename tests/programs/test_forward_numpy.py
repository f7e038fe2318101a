# SPDX-License-Identifier: MIT
"""Compares embfuse forward with NumPy, and with PyTorch where it is installed, for every host kernel. NumPy computes
the outputs twice: in float32, one lookup after another, for the same bits; and in float64."""
import itertools
import json
import os
import subprocess
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

BUILD = os.environ.get("BUILD", "build")
PROGRAM = os.path.join(BUILD, "embfuse")


def run(*args):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, check=False)


def embfuse(*args):
    done = run(*args)
    assert done.returncode == 0 and not done.stderr, (args, done.returncode, done.stderr[:300])
    return done.stdout


def kernels():
    return [k["name"] for k in json.loads(embfuse("list", "--json"))["kernels"]
            if k["place"] == "host" and k["operation"] == "forward"]


def pooled(weight, ids, offsets, weights, pooling, padding, dtype):
    """The output of one feature, in that type."""
    if pooling == "max":
        return largest(weight, ids, offsets, padding)[0].astype(dtype)
    if pooling == "none":
        rows = weight[ids].astype(dtype)
        return rows if weights is None else rows * weights[:, None].astype(dtype)
    out = np.zeros((len(offsets) - 1, weight.shape[1]), dtype)
    for b, (begin, end) in enumerate(itertools.pairwise(offsets)):
        counts = [i for i in range(begin, end) if ids[i] != padding]
        for i in counts:
            row = weight[ids[i]].astype(dtype)
            out[b] += row if weights is None else dtype(weights[i]) * row
        if pooling == "mean" and counts:
            out[b] /= dtype(len(counts))
    return out


def largest(weight, ids, offsets, padding):
    """The maximum of each bag and column, and the number of its lookup in the bag, the first of equals; 0 and -1 where
    no lookup counts. Not for NaN: argmax would take a later one."""
    out = np.zeros((len(offsets) - 1, weight.shape[1]), weight.dtype)
    winners = np.full(out.shape, -1, np.int32)
    for b, (begin, end) in enumerate(itertools.pairwise(offsets)):
        counts = np.array([i for i in range(begin, end) if ids[i] != padding], int)
        if len(counts):
            first = weight[ids[counts]].argmax(0)
            out[b] = weight[ids[counts[first]], np.arange(weight.shape[1])]
            winners[b] = counts[first] - begin
    return out, winners


def case(folder, number, pooling=None):
    """Files of a random batch; returns what is in them, and the flags."""
    rng = np.random.default_rng(number)
    pooling = pooling or ("sum", "mean", "none")[number % 3]
    dim = (1, 3, 8, 16, 31, 64, 130)[number % 7]
    lengths = rng.integers(0, 9, 40) * (rng.random(40) < 0.8)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype((np.int32, np.int64)[number % 2])
    ids = rng.integers(0, 50, offsets[-1]).astype((np.int64, np.int32)[number // 2 % 2])
    weight = rng.standard_normal((50, dim)).astype(np.float32)
    if pooling == "max":
        weight = weight.round(number % 2)  # with equal elements in a bag
    weighted = number // 3 % 2 and pooling != "max"
    weights = rng.standard_normal(len(ids)).astype(np.float32) if weighted else None
    padding = 7 if number // 6 % 2 else -1
    arrays = {"ids": ids, "offsets": offsets, "weight": weight}
    if weights is not None:
        arrays["lookup-weights"] = weights
    flags = ["--pooling", pooling, *(["--padding", padding] if padding >= 0 else [])]
    for name, array in arrays.items():
        path = os.path.join(folder, name + ".npy")
        np.save(path, array)
        flags += ["--" + name, path]
    return (weight, ids, offsets, weights, pooling, padding), flags


def test_outputs_are_those_of_numpy(folder):
    for number in range(42):
        given, flags = case(folder, number)
        for kernel, threads in itertools.product(kernels(), (1, 3)):
            said = embfuse("forward", "--kernel", kernel, "--threads", threads, *flags, "--out",
                           os.path.join(folder, "r"))
            assert "checked: exact" in said, said
            out = np.load(os.path.join(folder, "r.output.npy"))
            want = pooled(*given, np.float32)
            assert out.dtype == np.float32 and np.array_equal(out, want), (number, kernel)
            assert np.allclose(out, pooled(*given, np.float64), rtol=1e-4, atol=1e-5), (number, kernel)


def test_maxima_are_those_of_numpy(folder):
    path = os.path.join(folder, "winners.npy")
    for number in range(28):
        (weight, ids, offsets, _, _, padding), flags = case(folder, number, "max")
        want, winners = largest(weight, ids, offsets, padding)
        for kernel, threads in itertools.product(kernels(), (1, 3)):
            embfuse("forward", "--kernel", kernel, "--threads", threads, *flags, "--out", os.path.join(folder, "r"),
                    "--winners", path)
            got, got_winners = np.load(os.path.join(folder, "r.output.npy")), np.load(path)
            assert np.array_equal(got, want) and np.array_equal(np.signbit(got), np.signbit(want)), (number, kernel)
            assert got_winners.dtype == np.int32 and np.array_equal(got_winners, winners), (number, kernel)
            os.remove(path)


def test_outputs_are_those_of_pytorch(folder):
    if torch is None:
        raise tap.Skip("no PyTorch")
    for number in range(56):
        given, flags = case(folder, number, "max" if number >= 42 else None)
        weight, ids, offsets, weights, pooling, padding = given
        rows, at = torch.from_numpy(weight), torch.from_numpy(ids.astype(np.int64))
        if pooling == "none" and weights is None:
            want = torch.nn.functional.embedding(at, rows)
        elif pooling == "none" or (weights is not None and pooling != "sum"):
            continue  # PyTorch has no such function
        else:
            want = torch.nn.functional.embedding_bag(
                at, rows, torch.from_numpy(offsets.astype(np.int64)), mode=pooling, include_last_offset=True,
                per_sample_weights=None if weights is None else torch.from_numpy(weights),
                padding_idx=None if padding < 0 else padding)
        embfuse("forward", "--kernel", kernels()[0], *flags, "--out", os.path.join(folder, "r"))
        out = np.load(os.path.join(folder, "r.output.npy"))
        assert np.allclose(out, want.numpy(), rtol=1e-5, atol=1e-6), number


def test_batches_that_gen_wrote(folder):
    prefix = os.path.join(folder, "b")
    spec = ("workload w; tables 3; rows 200; dim 16; batch 30; length uniform 0 9; ids zipf; alpha 1; "
            "weight_type fp16; grad_type fp16")
    embfuse("gen", "--spec-text", spec, "--initial-tables", "--out", prefix)
    for kernel in kernels():
        embfuse("forward", "--kernel", kernel, "--batch", prefix, "--out", prefix)
        out = np.load(prefix + ".output.npy")
        assert out.dtype == np.float16 and out.shape == np.load(prefix + ".grad.npy").shape
    weight = np.load(prefix + ".weight.1.npy")
    ids, offsets = np.load(prefix + ".ids.npy"), np.load(prefix + ".offsets.npy")
    want = pooled(weight, ids, offsets[30:61], None, "sum", -1, np.float32)
    assert np.array_equal(out[:, 16:32], want.astype(np.float16))


def test_bad_input_is_one_line(folder):
    _, flags = case(folder, 0)
    out = ["--out", os.path.join(folder, "bad")]
    np.save(os.path.join(folder, "high.npy"), np.array([0, 50], np.int64))
    np.save(os.path.join(folder, "two.npy"), np.array([0, 2], np.int64))
    own = ["--weight", os.path.join(folder, "weight.npy"), "--offsets", os.path.join(folder, "two.npy")]
    for said, args in {
            "unknown kernel 'cpu_fused'; known: cpu_lookup": ["--kernel", "cpu_fused", *flags, *out],
            "--out": ["--kernel", kernels()[0], *flags],
            "--kernel": [*flags, *out],
            "give --batch, or --ids, --offsets": ["--kernel", kernels()[0], *out],
            "high.npy": ["--kernel", kernels()[0], "--ids", os.path.join(folder, "high.npy"), *own, *out],
            "--grad": ["--kernel", kernels()[0], "--grad", "x", *flags, *out],
            "--winners: no feature has pooling max": ["--kernel", kernels()[0], "--winners", "w", *flags, *out],
            "the output goes there": ["--kernel", kernels()[0], *flags[2:], "--pooling", "max", *out, "--winners",
                                      out[1] + ".output.npy"],
            "cannot write there": ["--kernel", kernels()[0], *flags[2:], "--pooling", "max", *out, "--winners",
                                   os.path.join(folder, "no", "w.npy")],
            "--lookup-weights: pooling max takes none": [
                "--kernel", kernels()[0], *flags[2:], "--pooling", "max", *out, "--lookup-weights", "w.npy"]}.items():
        done = run("forward", *args)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and said in done.stderr, (said, done.stderr)
    assert not os.path.exists(os.path.join(folder, "bad.output.npy"))


if __name__ == "__main__":
    if np is None:
        print("1..0 # SKIP no NumPy")
        sys.exit()
    sys.exit(tap.run(globals(), "forward"))
