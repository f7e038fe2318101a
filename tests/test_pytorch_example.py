#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of examples/pytorch: the drop-in EmbeddingBag beside PyTorch's own. The interpreter is found as in
test_torch_optim.py; without PyTorch everything is skipped."""
import gc
import os
import sys
import threading

import tap

VENV = os.path.join(tap.ROOT, "build", "peers", "venv")
PYTHON = os.environ.get("TORCH_PYTHON")
if not PYTHON and os.path.exists(os.path.join(VENV, "complete")):
    PYTHON = os.path.join(VENV, "bin", "python")
if PYTHON and sys.argv[1:] != ["here"]:
    os.execv(PYTHON, [PYTHON, "-W", "ignore", __file__, "here"])
sys.dont_write_bytecode = True
EXAMPLE = os.path.join(tap.ROOT, "examples", "pytorch")
LIBRARY = os.path.join(tap.ROOT, os.environ.get("BUILD", "build"), "libembfuse.so")
TRACE = os.path.join(tap.ROOT, "..", "shared", "traces", "retail_items.txt.gz")
sys.path.insert(0, EXAMPLE)
os.environ["EMBFUSE_LIBRARY"] = LIBRARY
try:
    import torch
    import embfuse
    import train
    from embedding_bag import EmbeddingBag
    MISSING = None if os.path.exists(LIBRARY) else "no libembfuse.so in this build"
except ImportError as e:
    MISSING = e

# Sums of a row in another order than PyTorch's, over 200 steps of a model that learns. An element whose gradient is
# almost 0 takes a whole step of Adagrad or Adam in a direction that a rounding decides: so not the largest difference of
# weights counts, but how many differ.
LOSS, WEIGHT, SHARE = 2e-6, 1e-5, 0.02


def need_torch():
    if MISSING:
        raise tap.Skip(str(MISSING))


def same_training(path):
    lines = train.lines_of(path)
    for rule in train.OPTIMIZERS:
        log, theirs, ours = train.train(lines, rule, 200, 2)
        worst = max(abs(a - b) for a, b, _, _ in log)
        assert worst < LOSS, (rule, worst)
        share = ((theirs - ours).abs() > WEIGHT).double().mean().item()
        print(f"# {rule}: losses differ by up to {worst:.1e}, {100 * share:.2g} % of the weights by over {WEIGHT}")
        assert share < SHARE, (rule, share)
        assert min(b for _, b, _, _ in log[100:]) < log[0][1], f"{rule}: nothing was learnt"


def test_the_same_losses_as_torch_for_200_steps_of_drawn_ids(_):
    need_torch()
    same_training(None)


def test_the_same_losses_as_torch_for_200_steps_of_a_trace(_):
    need_torch()
    if not os.path.exists(TRACE):
        raise tap.Skip("no traces")
    same_training(TRACE)


def pair(mode, padding=None, rows=30, dim=5, **more):
    torch.manual_seed(3)
    weight = torch.randn(rows, dim)
    theirs = torch.nn.EmbeddingBag(rows, dim, mode=mode, padding_idx=padding, _weight=weight.clone())
    return theirs, EmbeddingBag(rows, dim, mode=mode, padding_idx=padding, weight=weight.clone(), optimizer="sgd", lr=1.0,
                                **more)


def compare(theirs, ours, input, offsets=None, weights=None, loss=lambda out: (out * out).sum()):
    """One iteration of both: outputs, gradients of the per-sample weights, and tables."""
    own = [w.clone().requires_grad_() if w is not None else None for w in (weights, weights)]
    out = theirs(input, offsets, own[0]), ours(input, offsets, own[1])
    torch.testing.assert_close(out[1], out[0])
    for x in out:
        loss(x).backward()
    if weights is not None:
        torch.testing.assert_close(own[1].grad, own[0].grad)
    torch.testing.assert_close(ours.weight, (theirs.weight - theirs.weight.grad).detach())


def test_all_modes_with_padding_and_empty_bags(_):
    need_torch()
    input, offsets = torch.tensor([1, 2, 2, 7, 7, 29, 0, 7]), torch.tensor([0, 3, 3, 5, 7])
    for mode in ("sum", "mean", "max"):
        for padding in (None, 7, -1):
            for ids in (input, input.int()):
                compare(*pair(mode, padding), ids, offsets.to(ids.dtype))


def test_two_dimensional_input_and_last_offset(_):
    need_torch()
    compare(*pair("mean"), torch.tensor([[1, 2, 3], [3, 3, 4]]))
    theirs, ours = pair("sum")
    torch.testing.assert_close(EmbeddingBag(30, 5, mode="sum", weight=ours.weight, include_last_offset=True)(
        torch.tensor([1, 2, 3]), torch.tensor([0, 2, 3])), theirs(torch.tensor([1, 2, 3]), torch.tensor([0, 2])))


def test_gradient_of_per_sample_weights(_):
    need_torch()
    compare(*pair("sum"), torch.tensor([1, 2, 2, 9]), torch.tensor([0, 3]), torch.tensor([0.5, 0.0, 2.0, -1.0]))


def test_gradients_that_are_expanded_or_not_contiguous(_):
    need_torch()
    input, offsets = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 1, 3])
    compare(*pair("sum"), input, offsets, loss=lambda out: out.sum())
    compare(*pair("sum"), input, offsets, loss=lambda out: (out.t() @ torch.ones(3)).pow(2).sum())
    compare(*pair("sum"), input, offsets, loss=lambda out: out[::2, 1:].sum())


def test_a_batch_without_bags_or_without_lookups(_):
    need_torch()
    _, ours = pair("sum")
    assert ours(torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64)).shape == (0, 5)
    before = ours.weight.clone()
    out = ours(torch.tensor([], dtype=torch.int64), torch.tensor([0, 0]))
    assert out.shape == (2, 5) and out.abs().max() == 0
    out.sum().backward()
    assert torch.equal(before, ours.weight)


def test_wrong_arguments_are_errors(_):
    need_torch()
    _, ours = pair("sum")
    offsets = torch.tensor([0])
    wrong = [(TypeError, lambda: ours(torch.tensor([1.0]), offsets)), (ValueError, lambda: ours(torch.tensor([1]))),
             (embfuse.Error, lambda: ours(torch.tensor([30]), offsets)),
             (embfuse.Error, lambda: ours(torch.tensor([1]), torch.tensor([0, 5]))),
             (ValueError, lambda: ours(torch.tensor([1]), offsets, torch.ones(2))),
             (TypeError, lambda: ours(torch.tensor([1]), offsets, torch.ones(1).double())),
             (ValueError, lambda: ours(torch.tensor([[1]]), offsets)),
             (ValueError, lambda: EmbeddingBag(3, 2, weight=torch.ones(2, 3).t())),
             (ValueError, lambda: EmbeddingBag(3, 2, weight=torch.ones(2, 2))),
             (TypeError, lambda: EmbeddingBag(3, 2, weight=torch.ones(3, 2).double())),
             (ValueError, lambda: EmbeddingBag(3, 2, weight=torch.ones(3, 2, device="meta"))),
             (embfuse.Error, lambda: EmbeddingBag(3, 2, optimizer="magic")),
             (embfuse.Error, lambda: EmbeddingBag(3, 2, optimizer="sgd", beta1=0.9))]
    for number, (error, call) in enumerate(wrong):
        try:
            call()
        except error as e:
            assert str(e), number
        else:
            raise AssertionError(f"case {number} is no {error.__name__}")


def test_narrow_weights(_):
    need_torch()
    torch.manual_seed(5)
    weight = torch.randn(30, 8)
    fp32 = EmbeddingBag(30, 8, mode="sum", weight=weight.clone(), optimizer="sgd", lr=0.1)
    bf16 = EmbeddingBag(30, 8, mode="sum", weight=weight.bfloat16(), optimizer="sgd", lr=0.1)
    for bag in (fp32, bf16):
        bag(torch.tensor([1, 2, 2]), torch.tensor([0])).sum().backward()
    torch.testing.assert_close(bf16.weight.float(), fp32.weight, rtol=2**-7, atol=2**-7)
    assert bf16.weight.dtype == torch.bfloat16


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_no_leak_over_ten_thousand_calls(_):
    need_torch()
    _, ours = pair("sum", threads=1)
    input, offsets = torch.arange(20), torch.arange(0, 20, 2)
    sizes = []
    for n in range(12):
        for _ in range(1000):
            ours(input, offsets).sum().backward()
        gc.collect()
        sizes.append(resident())
    assert sizes[-1] - sizes[1] < 4 << 20, sizes


def test_two_threads_on_two_modules(_):
    need_torch()
    input, offsets = torch.arange(20), torch.arange(0, 20, 2)
    bags = [pair("sum", threads=1)[1] for _ in range(3)]

    def run(bag):
        for _ in range(300):
            bag(input, offsets).sum().backward()

    run(bags[2])
    threads = [threading.Thread(target=run, args=(b,)) for b in bags[:2]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert torch.equal(bags[0].weight, bags[2].weight) and torch.equal(bags[1].weight, bags[2].weight)


def test_train_py_prints_its_table(_):
    need_torch()
    import subprocess
    out = subprocess.run([sys.executable, "-W", "ignore", os.path.join(EXAMPLE, "train.py"), "--steps", "3"], text=True,
                         capture_output=True, check=True).stdout
    assert out.count("\n| ") == len(train.OPTIMIZERS) + 2, out


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "pytorch example"))
