#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/pytorch/state_dict.py: a training goes on as well on the other side. The interpreter is found as
in test_torch_optim.py; without PyTorch everything is skipped."""
import os
import sys

import tap

tap.use_torch(__file__)
sys.dont_write_bytecode = True
try:
    import torch
except ImportError as e:
    tap.skip_all("state_dict", f"{e}: make peers installs it, or set TORCH_PYTHON")
import state_dict

ROWS, DIM = (7, 5), (3, 8)
# Arguments of the optimizer, of either side.
CASES = {"SGD": {"lr": 0.1}, "SGD weight decay": {"lr": 0.1, "weight_decay": 0.01, "maximize": True},
         "SGD momentum": {"lr": 0.1, "momentum": 0.8, "nesterov": True},
         "Adagrad": {"lr": 0.1, "lr_decay": 0.01, "eps": 1e-6, "initial_accumulator_value": 0.1},
         "Adam": {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-6}, "AdamW": {"lr": 0.01, "weight_decay": 0.1},
         "Adam amsgrad": {"lr": 0.01, "amsgrad": True}, "SparseAdam": {"lr": 0.01, "betas": (0.7, 0.95)}}


def gradients(steps, first=0):
    """[step][table]: every row has one, so that lazy rules are the dense ones."""
    drawn = torch.Generator().manual_seed(11)
    return [[torch.randn(r, d, generator=drawn) for r, d in zip(ROWS, DIM)] for _ in range(first + steps)][first:]


def start(case):
    drawn = torch.Generator().manual_seed(5)
    weights = [torch.nn.Parameter(torch.randn(r, d, generator=drawn)) for r, d in zip(ROWS, DIM)]
    return weights, getattr(torch.optim, case.split()[0])(weights, **CASES[case])


def torch_steps(optimizer, weights, grads):
    for grad in grads:
        for w, g in zip(weights, grad):
            sparse = isinstance(optimizer, torch.optim.SparseAdam)
            w.grad = torch.sparse_coo_tensor(torch.arange(len(g))[None], g, g.shape) if sparse else g.clone()
        optimizer.step()


def our_steps(model, grads):
    """Bag r of each table is its row r; the tables have different numbers of rows, so the others' bags are empty."""
    bags = max(ROWS)
    ids = torch.cat([torch.arange(r) for r in ROWS])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), *(
        base + torch.arange(1, bags + 1).clamp(max=r) for base, r in zip((0, ROWS[0]), ROWS))])
    for grad in grads:
        padded = [torch.nn.functional.pad(g, (0, 0, 0, bags - len(g))) for g in grad]
        model.step(model.batch(ids, offsets), torch.cat(padded, 1))


def resumed(path):
    model, arrays = state_dict.model_of(state_dict.tables_of(path))
    model.call("load", os.fsencode(path))
    return model, arrays


def saved(case, path, steps=3):
    """A training of PyTorch after some steps, and the same in a file."""
    weights, optimizer = start(case)
    torch_steps(optimizer, weights, gradients(steps))
    state_dict.from_torch(case.split()[0], [w.detach() for w in weights], optimizer.state_dict(), path)
    return weights, optimizer


def same(ours, theirs, what):
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b.detach(), rtol=2e-6, atol=2e-6, msg=lambda m: f"{what}: {m}")


def test_a_training_of_pytorch_goes_on_here(temporary):
    for number, case in enumerate(CASES):
        for steps in (0, 3):
            path = os.path.join(temporary, f"in{number}-{steps}")
            weights, optimizer = saved(case, path, steps)
            model, arrays = resumed(path)
            torch_steps(optimizer, weights, gradients(4, steps))
            our_steps(model, gradients(4, steps))
            same([a[0] for a in arrays], weights, f"{case} after {steps}")
            assert [model.get_steps(t) for t in (0, 1)] == [4 + (0 if case.startswith("SGD") else steps)] * 2, case


def test_a_training_from_here_goes_on_in_pytorch(temporary):
    for number, case in enumerate(CASES):
        path = os.path.join(temporary, f"out{number}")
        saved(case, path, 0)
        model, arrays = resumed(path)
        our_steps(model, gradients(3))
        model.call("save", os.fsencode(path))
        kind, found, state = state_dict.to_torch(path)
        assert kind == case.split()[0], (kind, case)
        weights, optimizer = start(case)
        optimizer.load_state_dict(state)
        with torch.no_grad():
            for w, f in zip(weights, found):
                w.copy_(f)
        torch_steps(optimizer, weights, gradients(4, 3))
        our_steps(model, gradients(4, 3))
        same([a[0] for a in arrays], weights, case)


def test_what_has_no_equal_is_refused(temporary):
    weights, optimizer = start("Adam")
    torch_steps(optimizer, weights, gradients(1))
    plain, state = [w.detach() for w in weights], optimizer.state_dict()
    dampened = torch.optim.SGD(weights, 1, 0.9, dampening=0.5).state_dict()
    kept = os.path.join(temporary, "kept")
    state_dict.model_of([{"rows": 3, "dim": 2, "rule": "rowwise_adagrad"}])[0].call("save", os.fsencode(kept))
    text, refused = os.path.join(temporary, "text"), os.path.join(temporary, "refused")
    with open(text, "w", encoding="ascii") as file:
        file.write("no state of anything")
    for function, *args in ((state_dict.from_torch, "Rprop", plain, state, refused),
                            (state_dict.from_torch, "SGD", plain, dampened, refused),
                            (state_dict.from_torch, "Adam", plain[:1], state, refused),
                            (state_dict.from_torch, "Adam", [plain[0], plain[1].double()], state, refused),
                            (state_dict.to_torch, kept), (state_dict.to_torch, text)):
        try:
            function(*args)
        except state_dict.Refused:
            assert not os.path.exists(refused)
        else:
            raise AssertionError(f"no error: {args[0]}")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "state_dict"))
