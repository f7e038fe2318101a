#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of examples/pytorch/state_dict.py: a training goes on as well on the other side. The interpreter is found as
in test_torch_optim.py; without PyTorch everything is skipped."""
import os
import subprocess
import sys

import tap

EXAMPLE = os.path.join(tap.ROOT, "examples", "pytorch")
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


def resumed(directory):
    model, arrays = state_dict.model_of(state_dict.tables_of(directory))
    model.call("load", os.fsencode(directory), None)
    return model, arrays


def saved(case, directory, steps=3):
    """A training of PyTorch after some steps, and the same in a directory."""
    weights, optimizer = start(case)
    torch_steps(optimizer, weights, gradients(steps))
    state_dict.from_torch(case.split()[0], [w.detach() for w in weights], optimizer.state_dict(), directory)
    return weights, optimizer


def same(ours, theirs, what):
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b.detach(), rtol=2e-6, atol=2e-6, msg=lambda m: f"{what}: {m}")


def test_a_training_of_pytorch_goes_on_here(temporary):
    for number, case in enumerate(CASES):
        for steps in (0, 3):
            directory = os.path.join(temporary, f"in{number}-{steps}")
            weights, optimizer = saved(case, directory, steps)
            model, arrays = resumed(directory)
            torch_steps(optimizer, weights, gradients(4, steps))
            our_steps(model, gradients(4, steps))
            same([a[0] for a in arrays], weights, f"{case} after {steps}")
            assert [model.get_steps(t) for t in (0, 1)] == [4 + (0 if case.startswith("SGD") else steps)] * 2, case


def test_a_training_from_here_goes_on_in_pytorch(temporary):
    for number, case in enumerate(CASES):
        for steps in (0, 3):
            directory = os.path.join(temporary, f"out{number}-{steps}")
            saved(case, directory, 0)
            model, arrays = resumed(directory)
            our_steps(model, gradients(steps))
            model.call("save", os.fsencode(directory))
            kind, found, state = state_dict.to_torch(directory)
            assert kind == case.split()[0], (kind, case)
            weights, optimizer = start(case)
            optimizer.load_state_dict(state)
            with torch.no_grad():
                for w, f in zip(weights, found):
                    w.copy_(f)
            torch_steps(optimizer, weights, gradients(4, steps))
            our_steps(model, gradients(4, steps))
            same([a[0] for a in arrays], weights, f"{case} after {steps}")


def files_of(directory):
    state = os.path.join(directory, max(x for x in os.listdir(directory) if x.startswith("state-")))
    found = {}
    for name in sorted(os.listdir(state)):
        with open(os.path.join(state, name), "rb") as file:
            found[name] = file.read()
    return found


def test_there_and_back_has_the_same_bits(temporary):
    for number, case in enumerate(CASES):
        first, second = (os.path.join(temporary, f"{x}{number}") for x in ("there", "back"))
        saved(case, first)
        kind, weights, state = state_dict.to_torch(first)
        state_dict.from_torch(kind, weights, state, second)
        assert files_of(first) == files_of(second), case


def test_hyper_parameters_of_each_table(temporary):
    weights, _ = start("SparseAdam")
    optimizer = torch.optim.SparseAdam([{"params": weights[:1], "lr": 0.5}, {"params": weights[1:], "lr": 0.25}])
    directory = os.path.join(temporary, "groups")
    state_dict.from_torch("SparseAdam", [w.detach() for w in weights], optimizer.state_dict(), directory)
    model, _ = resumed(directory)
    assert [model.get("lr", t) for t in (0, 1)] == [0.5, 0.25]
    _, _, found = state_dict.to_torch(directory)
    assert [g["lr"] for g in found["param_groups"]] == [0.5, 0.25]


def test_narrow_weights(temporary):
    weights = [torch.randn(4, 3).bfloat16()]
    directory = os.path.join(temporary, "narrow")
    optimizer = torch.optim.SGD([torch.nn.Parameter(weights[0])], lr=0.1)
    state_dict.from_torch("SGD", weights, optimizer.state_dict(), directory, rounding="stochastic", seed=9)
    _, found, _ = state_dict.to_torch(directory)
    assert found[0].dtype == torch.bfloat16 and torch.equal(found[0], weights[0])
    assert b"rounding_seed 9" in files_of(directory)["manifest"]


def test_what_has_no_equal_is_refused(temporary):
    weights, optimizer = start("Adam")
    torch_steps(optimizer, weights, gradients(1))
    plain, state = [w.detach() for w in weights], optimizer.state_dict()
    broken = {**state, "state": {**state["state"], 1: {**state["state"][1], "exp_avg": torch.zeros(2, 2)}}}
    missing = {**state, "state": {**state["state"], 1: {"step": 3}}}
    for number, wrong in enumerate([
            lambda d: state_dict.from_torch("Rprop", plain, state, d),
            lambda d: state_dict.from_torch("SGD", plain, torch.optim.SGD(weights, 1, 0.9, dampening=0.5).state_dict(), d),
            lambda d: state_dict.from_torch("Adam", plain[:1], state, d),
            lambda d: state_dict.from_torch("Adam", [plain[0], plain[1].double()], state, d),
            lambda d: state_dict.from_torch("Adam", plain, broken, d),
            lambda d: state_dict.from_torch("Adam", plain, missing, d)]):
        directory = os.path.join(temporary, f"refused{number}")
        try:
            wrong(directory)
        except state_dict.Refused as e:
            assert str(e), number
        else:
            raise AssertionError(number)
        assert not os.path.exists(directory), number
    for number, (rule, hyper) in enumerate([("rowwise_adagrad", {}), ("adam", {"clip_value": 1.0}),
                                            ("adagrad", {"eps_inside": 1.0}), ("adam", {"steps": 2**24 + 1})]):
        directory = os.path.join(temporary, f"kept{number}")
        model, _ = state_dict.model_of([{"rows": 3, "dim": 2, "rule": rule}])
        for name, value in hyper.items():
            model.set_steps(value) if name == "steps" else model.set(name, value)
        model.call("save", os.fsencode(directory))
        try:
            state_dict.to_torch(directory)
        except state_dict.Refused as e:
            assert next(iter(hyper), rule) in str(e), e
        else:
            raise AssertionError(rule)


def test_the_program(temporary):
    weights, optimizer = start("SparseAdam")
    torch_steps(optimizer, weights, gradients(2))
    first, second, third = (os.path.join(temporary, x) for x in ("first.pt", "program", "second.pt"))
    torch.save({"model": {f"x.{i}": w.detach() for i, w in enumerate(weights)}, "optimizer": optimizer.state_dict()}, first)
    script = os.path.join(EXAMPLE, "state_dict.py")
    for arguments in (["from-torch", first, second, "--optimizer", "SparseAdam"], ["to-torch", second, third]):
        subprocess.run([sys.executable, "-W", "ignore", script, *arguments], check=True, stdout=subprocess.DEVNULL)
    there = torch.load(third)
    assert list(there["model"]) == ["embeddings.0.weight", "embeddings.1.weight"]
    for t, w in enumerate(weights):
        assert torch.equal(there["model"][f"embeddings.{t}.weight"], w)
        for name, value in optimizer.state_dict()["state"][t].items():
            assert torch.equal(torch.as_tensor(there["optimizer"]["state"][t][name]), torch.as_tensor(value)), name
    wrong = subprocess.run([sys.executable, "-W", "ignore", script, "to-torch", os.path.join(temporary, "none"), third],
                           capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and wrong.stderr.count("\n") == 1 and "none" in wrong.stderr, wrong.stderr


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "state_dict"))
