# SPDX-License-Identifier: MIT
"""Max pooling from files: a forward, then a step or a gradient that takes its winners, against NumPy, and against the
gradient of PyTorch where it is installed, for every host kernel."""
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
from test_forward_numpy import case, embfuse, largest, run

CASES = 14


def kernels(operation):
    """[(name, traits)]"""
    return [(k["name"], k["traits"]) for k in json.loads(embfuse("list", "--json"))["kernels"]
            if k["place"] == "host" and k["operation"] == operation]


def after_forward(folder, number):
    """A batch whose winners a forward has written: (weight, gradient, ids, offsets, padding, winners), and the flags
    without the weight."""
    (weight, ids, offsets, _, _, padding), flags = case(folder, number, "max")
    winners, grad_path = os.path.join(folder, "winners.npy"), os.path.join(folder, "grad.npy")
    names = [name for name, _ in kernels("forward")]
    embfuse("forward", "--kernel", names[number % len(names)], *flags, "--out", os.path.join(folder, "f"), "--winners",
            winners)
    grad = np.random.default_rng(number + 500).standard_normal((len(offsets) - 1, weight.shape[1])).astype(np.float32)
    np.save(grad_path, grad)
    at = flags.index("--weight")
    flags = flags[:at] + flags[at + 2:] + ["--grad", grad_path, "--winners", winners]
    return (weight, grad, ids, offsets, padding, np.load(winners)), flags


def entries(weight, grad, ids, offsets, padding, winners):
    """Rows and values of all lookups that are not padding."""
    rows, values = [], []
    for b in range(len(offsets) - 1):
        for i in range(offsets[b], offsets[b + 1]):
            if ids[i] != padding:
                rows.append(ids[i])
                values.append(np.where(winners[b] == i - offsets[b], grad[b], 0))
    return np.array(rows, int), np.array(values, np.float64).reshape(len(rows), weight.shape[1])


def summed(given):
    weight = given[0]
    rows, values = entries(*given)
    sums = np.zeros(weight.shape)
    np.add.at(sums, rows, values)
    return rows, values, sums


def stepped(folder, kernel, flags, *more):
    said = embfuse("step", "--kernel", kernel, *flags, "--weight", os.path.join(folder, "weight.npy"), *more, "--out",
                   os.path.join(folder, "r"))
    assert "checked: " in said, said
    return np.load(os.path.join(folder, "r.weight.npy"))


def test_forward_then_step_is_that_of_numpy(folder):
    for number in range(CASES):
        given, flags = after_forward(folder, number)
        weight = given[0]
        assert np.array_equal(given[-1], largest(weight, *given[2:5])[1])
        rows, _, sums = summed(given)
        touched = np.isin(np.arange(len(weight)), rows)
        assert number % 2 or not (sums[touched] != 0).all()
        momentum = np.where(touched[:, None], weight - 0.5 * (sums + 0.25 * weight), weight)
        for kernel, _ in kernels("step"):
            got = stepped(folder, kernel, flags, "--rule", "sgd", "--lr", 0.5)
            assert np.allclose(got, weight - 0.5 * sums, rtol=1e-5, atol=1e-5), (number, kernel)
            if kernel != "cpu_dense":  # it cannot tell gradients of 0 from no gradient
                got = stepped(folder, kernel, flags, "--rule", "sgd", "--lr", 0.5, "--weight_decay", 0.25)
                assert np.allclose(got, momentum, rtol=1e-5, atol=1e-5), (number, kernel)


def test_forward_then_gradient_is_that_of_numpy(folder):
    for number in range(CASES):
        given, flags = after_forward(folder, number)
        rows, values, sums = summed(given)
        shape = ["--rows", given[0].shape[0], "--dim", given[0].shape[1]]
        for kernel, traits in kernels("gradient"):
            embfuse("gradient", "--kernel", kernel, *flags, *shape, "--out", os.path.join(folder, "r"))
            got = [np.load(os.path.join(folder, f"r.{name}.npy")) for name in ("rows", "values")]
            want = (np.unique(rows), sums[np.unique(rows)]) if "merged" in traits else (rows, values)
            assert np.array_equal(got[0], want[0]), (number, kernel)
            assert np.allclose(got[1], want[1], rtol=1e-5, atol=1e-5), (number, kernel)


def test_step_is_that_of_pytorch(folder):
    if torch is None:
        raise tap.Skip("no PyTorch")
    for number in range(CASES):
        (weight, grad, ids, offsets, padding, _), flags = after_forward(folder, number)
        table = torch.nn.Parameter(torch.from_numpy(weight.copy()))
        bag = torch.nn.EmbeddingBag.from_pretrained(table.data, freeze=False, mode="max", include_last_offset=True,
                                                    padding_idx=None if padding < 0 else padding)
        out = bag(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(offsets.astype(np.int64)))
        assert np.array_equal(out.detach().numpy(), np.load(os.path.join(folder, "f.output.npy"))), number
        out.backward(torch.from_numpy(grad))
        torch.optim.SGD(bag.parameters(), lr=0.5).step()
        for kernel, _ in kernels("step"):
            got = stepped(folder, kernel, flags, "--rule", "sgd", "--lr", 0.5)
            assert np.allclose(got, bag.weight.detach().numpy(), rtol=1e-5, atol=1e-5), (number, kernel)


def test_batches_that_gen_wrote(folder):
    prefix = os.path.join(folder, "b")
    embfuse("gen", "--spec-text", "workload w; tables 3; rows 200; dim 16; batch 30; length uniform 0 9; ids zipf; "
            "alpha 1; pooling max; padding 2", "--initial-tables", "--out", prefix)
    drawn = np.load(prefix + ".winners.npy")
    embfuse("step", "--kernel", "cpu_fused", "--batch", prefix, "--out", os.path.join(folder, "d"))
    embfuse("forward", "--kernel", "cpu_lookup", "--batch", prefix, "--out", prefix, "--winners", prefix + ".winners.npy")
    winners = np.load(prefix + ".winners.npy")
    assert drawn.shape == winners.shape == (30, 48) and not np.array_equal(drawn, winners)
    assert np.array_equal(drawn == -1, winners == -1)
    np.save(os.path.join(folder, "wide.npy"), winners.astype(np.int64))
    for more in ([], ["--winners", os.path.join(folder, "wide.npy")]):
        embfuse("step", "--kernel", "cpu_fused", "--batch", prefix, "--out", os.path.join(folder, "r"), *more)
        embfuse("gradient", "--kernel", "cpu_merged", "--batch", prefix, "--out", os.path.join(folder, "r"), *more)
    by_drawn, by_forward = (np.load(os.path.join(folder, f"{name}.weight.0.npy")) for name in "dr")
    assert not np.array_equal(by_drawn, by_forward)


def test_other_poolings_have_no_winners(folder):
    prefix = os.path.join(folder, "b")
    embfuse("gen", "--spec-text", "workload w; tables 2; rows 50; dim 8; batch 20; length fixed 3", "--initial-tables",
            "--out", prefix)
    with open(prefix + ".batch", encoding="utf-8") as file:
        text = file.read()
    with open(prefix + ".batch", "w", encoding="utf-8") as file:
        file.write(text.replace("feature table 1 pooling sum", "feature table 1 pooling max"))
    embfuse("forward", "--kernel", "cpu_lookup", "--batch", prefix, "--out", prefix, "--winners", prefix + ".winners.npy")
    winners = np.load(prefix + ".winners.npy")
    assert (winners[:, :8] == -1).all() and (winners[:, 8:] >= 0).all()
    for kernel, _ in kernels("step"):
        embfuse("step", "--kernel", kernel, "--batch", prefix, "--out", os.path.join(folder, "r"))


def test_bad_winners_are_one_line(folder):
    (*_, winners), flags = after_forward(folder, 2)
    path, good = flags[-1], flags[:-2]
    bag = int((winners[:, 0] >= 0).argmax())
    others = {"far": (bag, 10**6, np.int32), "negative": (bag, -2, np.int32), "none": (bag, -1, np.int64),
              "huge": (bag, 2**31, np.int64)}
    for name, (b, winner, dtype) in others.items():
        bad = winners.astype(dtype)
        bad[b, 0] = winner
        np.save(os.path.join(folder, name + ".npy"), bad)
    np.save(os.path.join(folder, "short.npy"), winners[1:])
    np.save(os.path.join(folder, "real.npy"), winners.astype(np.float32))
    weight = ["--weight", os.path.join(folder, "weight.npy"), "--rule", "sgd"]
    shape = ["--rows", 50, "--dim", winners.shape[1]]
    for said, name in {"winner 1000000, but it must be the number of a lookup in the bag": "far",
                       "winner -2; it is the number": "negative", "winner -1, but it must be": "none",
                       "winner 2147483648; it is the number": "huge", "wanted": "short",
                       "float32, but winners are int32 or int64": "real", "--winners is missing": None}.items():
        given = ["--winners", os.path.join(folder, name + ".npy")] if name else []
        for args in (["step", "--kernel", "cpu_sort", *weight], ["gradient", "--kernel", "cpu_merged", *shape]):
            done = run(*args, *good, *given, "--out", os.path.join(folder, "bad"))
            assert done.returncode == 1 and done.stderr.count("\n") == 1 and said in done.stderr, (said, done.stderr)
    assert os.path.exists(path) and not [n for n in os.listdir(folder) if n.startswith("bad.")]


if __name__ == "__main__":
    if np is None:
        print("1..0 # SKIP no NumPy")
        sys.exit()
    sys.exit(tap.run(globals(), "max"))
