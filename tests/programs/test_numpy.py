#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every operation of embfuse against NumPy (tests/support/numpy_oracle.py), and that against PyTorch where it is
installed, for every host kernel and rule of embfuse list --json; a rule without a file in tests/rules/ fails. Batches
are drawn: SEED=n draws others."""
import itertools
import json
import os
import sys

import tap

tap.use_torch(__file__)
sys.dont_write_bytecode = True
try:
    import numpy as np
except ImportError:
    tap.skip_all("NumPy", "numpy is missing: Debian's python3-numpy")
import numpy_oracle as oracle
from numpy_oracle import RULES, SMALLEST, TYPES, UNIT

SEED = int(os.environ.get("SEED", "1"))
# With a sanitizer a program takes much longer, and values do not concern it.
DRAWS = 2 if os.environ.get("SANITIZE") else 8
KNOWN = json.loads(tap.good({}, "embfuse", "list", "--json"))
KERNELS = [k for k in KNOWN["kernels"] if k["place"] == "host"]
RULES.update({r["name"]: r for r in KNOWN["rules"]})
VALUES = {"eps": 0.02, "momentum": 0.8, "beta2": 0.99, "alpha": 0.9, "dampening": 0.25, "lr_decay": 0.5, "l1": 0.01,
          "l2": 0.1, "initial_accumulator": 0.1, "grad_scale": 0.5, "clip_value": 1, "clip_norm": 1.5,
          "weight_decay": 0.1, "decoupled_weight_decay": 1, "maximize": 1, "eps_inside": 1, "nesterov": 1}


def embfuse(*args):
    """What it prints; it must succeed, and say nothing else."""
    done = tap.call({}, "embfuse", *map(str, args))
    assert done.returncode == 0 and not done.stderr, (args, done.returncode, done.stderr[:300])
    return done.stdout


def kernels(operation):
    return [k for k in KERNELS if k["operation"] == operation]


# --- drawn batches
def drawn_table(rng, rule, narrow):
    types = (rng.choice(["fp32", *TYPES]), rng.choice(["fp32", "bf16"])) if narrow else ("fp32", "fp32")
    given = {h: v for h, v in VALUES.items() if h in oracle.rule_of(rule) and rng.random() < 0.6}
    return {"rows": int(rng.integers(2, 40)), "dim": int(rng.choice([1, 3, 5, 8, 16, 17, 31, 64, 130])),
            "weight_type": types[0], "momentum_type": types[1], "rule": oracle.rule_of(rule, **given)}


def drawn(rng, rules, weighted=False):
    """A batch of a table for each rule, with duplicates and empty bags, and what its tables hold. Of one rule it may
    be given by flags: it has one feature, and no type but float32."""
    alone, sequence = len(rules) == 1, rng.random() < 0.25
    has_weights = weighted or rng.random() < 0.5
    tables = [drawn_table(rng, rule, not alone) for rule in rules]
    pools = ["none"] if sequence else ["sum", "mean"] if has_weights else ["sum", "mean", "max"]
    use = rng.permutation(len(tables) if alone else [*range(len(tables)), *rng.integers(0, len(tables), 2)])
    features = [{"table": int(t), "pooling": str(rng.choice(pools)),
                 "padding": int(rng.integers(-1, tables[t]["rows"]))} for t in use]
    bags = [int(rng.integers(1, 30))] * len(use)
    if not alone and rng.random() < 0.4:
        bags = [*map(int, rng.integers(0, 30, len(use) - 1)), 1]
    lengths = [rng.integers(0, 6, n) * (rng.random(n) < 0.8) for n in bags]
    ids = [(tables[t]["rows"] * rng.random(own.sum())**2).astype(int) for t, own in zip(use, lengths)]
    offsets, ids = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]), np.concatenate(ids)
    dims = [tables[t]["dim"] for t in use]
    shape = (bags[0], sum(dims))
    if sequence or len(set(bags)) > 1:
        rows = [own.sum() if sequence else len(own) for own in lengths]
        shape = (sum(rows), dims[0]) if len(set(dims)) == 1 else (np.dot(dims, rows),)
    grad_type = "fp32" if alone else str(rng.choice(["fp32", "fp16", "bf16"]))
    # Of one sign: a sum that nearly cancels has few digits, and so has the step of some rules.
    grad = (0.1 + np.abs(rng.standard_normal(shape))) * rng.choice([-1, 1])
    weights = rng.random(len(ids)).astype(np.float32) if has_weights else None
    if weighted:  # a step is not defined where a sum of gradients is nearly 0
        weights[::4] = 0
    batch = {"bags": bags, "tables": tables, "features": features, "ids": ids.astype(rng.choice([np.int32, np.int64])),
             "offsets": offsets.astype(rng.choice([np.int32, np.int64])), "weights": weights, "winners": None,
             "grad_type": grad_type, "grad": oracle.stored(grad, grad_type)}
    held = []
    for table in tables:
        states, row = oracle.new_states(table)
        if rng.random() < 0.5:
            states = [oracle.stored(((0.1 + rng.random(s.shape)) / (1 + 9 * k)).astype(np.float32), type)
                      for k, (s, type) in enumerate(zip(states, oracle.state_types(table)))]
            row = None if row is None else rng.random(row.shape).astype(np.float32)
        weight = rng.standard_normal((table["rows"], table["dim"])).round(rng.choice([1, 9]))  # 1: equal maxima
        held.append((oracle.stored(weight, table["weight_type"]), states, row))
    if any(f["pooling"] == "max" for f in features):
        batch["winners"] = oracle.forward(batch, held)[1]
    return batch, held


def by_flags(prefix, batch, what):
    """The arrays of a batch of one table and one feature, as flags."""
    feature, table, rule = batch["features"][0], batch["tables"][0], batch["tables"][0]["rule"]
    flags = ["--pooling", feature["pooling"], "--padding", feature["padding"]]
    files = ["ids", "offsets"] + ["grad"] * (what != "forward") + ["weight"] * (what != "gradient")
    files += ["lookup_weights"] * (batch["weights"] is not None)
    files += ["winners"] * (what in ("step", "gradient") and batch["winners"] is not None)
    if what == "gradient":
        flags += ["--rows", table["rows"], "--dim", table["dim"]]
    if what == "step":
        flags += [x for h, v in rule.items() for x in ("--rule" if h == "name" else f"--{h}", v)]
        files += ["row_state"] * bool(RULES[rule["name"]]["row"])
        states = [f"{prefix}.state.{k}.npy" for k in range(len(RULES[rule["name"]]["elem"]))]
        flags += ["--state", ",".join(states)] * bool(states)
    return flags + [x for f in files for x in (f"--{f.replace('_', '-')}", f"{prefix}.{f}.npy")]


def cases(folder, seed, weighted=False, rules=None):
    """(what to print of a failure, draws, batch, tables, start of file names, number of the first step or 0 if any will
    do): drawn batches of many tables and of one, which NumPy writes; and those that gen writes."""
    prefix = os.path.join(folder, "b")
    for n in range(DRAWS):
        rng = np.random.default_rng([SEED, seed, n])
        own = rules or list(rng.choice(list(RULES), 1 if n % 2 else 3))
        batch, tables = drawn(rng, own, weighted)
        oracle.write(prefix, batch, tables)
        yield f"SEED={SEED}, draw {seed}.{n}", rng, batch, tables, prefix, 0
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
    for text in () if rules and len(rules) == 1 else SPECS:
        if weighted and "weighted 1" not in text:
            continue
        rng = np.random.default_rng([SEED, seed, len(text)])
        text = f"workload w; {'batch 30; ' * ('batch' not in text)}rule {rng.choice(list(RULES))}; {text}"
        embfuse("gen", "--spec-text", text, "--mode", "exact", "--batch-number", 1, "--initial-tables", "--out", prefix)
        batch = oracle.read(prefix)
        yield text, rng, batch, oracle.load_tables(prefix, batch["tables"]), prefix, 4
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))


SPECS = ["tables 2; rows 30; dim 8; length uniform 0 6; alpha 1; pooling mean; weighted 1; padding 0; map identity",
         "pooling none; table rows 9 dim 1 length fixed 3; table rows 20 dim 33 length uniform 0 4",
         "batch 30+9; tables 2; features 3; rows 25; dim 4; length uniform 0 4; id_type int32; weighted 1",
         "tables 2; rows 9; dim 5; length uniform 0 5; duplicates mean; padding 1; row_state beside; weight_type bf16",
         "tables 2; rows 60; dim 9; length negbin 3 1.2; alpha 1; weight_type fp8; momentum_type bf16; grad_type fp16",
         "batch 30+7+2; tables 3; rows 200; dim 16; length uniform 0 9; pooling max; padding 2; weight_type fp16; grad_type bf16"]


# --- the operations
def near(got, want, rtol=1e-4, atol=1e-5):
    return got.shape == want.shape and np.allclose(got, want, rtol=rtol, atol=atol)


def difference(tables, got, want, moved, before):
    """'' if they agree; rows that must not move must be equal bit for bit."""
    flat = lambda table: [a for a in (table[0], *table[1], table[2]) if a is not None]
    for t, (g, w, m, b) in enumerate(zip(got, want, moved, before)):
        for i, (x, y, old) in enumerate(zip(flat(g), flat(w), flat(b), strict=True)):
            if x[~m].tobytes() != old[~m].tobytes():
                return f"table {t}, array {i}: an untouched row has moved"
            # Three steps may end three neighbours away, and a state may come from a weight, a step from a momentum.
            types = [tables[t]["weight_type"], *oracle.state_types(tables[t]), "fp32"]
            most = (max(1e-5, 3 * UNIT[types[i]], UNIT[types[0]]) * np.maximum(np.abs(y), np.abs(old)) +
                    3 * max(UNIT[k] for k in types[1:]) * np.abs(y - old).max(initial=0) +
                    2e-6 * max(1, np.abs(y).max(initial=0)) + 3 * SMALLEST[types[i]])
            if x.dtype != np.float32 or not (np.abs(x - y) <= most).all():
                return f"table {t}, array {i}, {tables[t]}: {x.dtype}, off by {np.abs(x - y).max()}"
            if np.array_equal(x, old) and not np.array_equal(y, old):
                return f"table {t}, array {i}: nothing moved"
    return ""


def stepped(folder, case, kernel, flags):
    """Compares one run of step."""
    what, rng, batch, before, _, first = case
    steps, first, out = int(rng.integers(1, 4)), first or int(rng.integers(1, 6)), os.path.join(folder, "out")
    most = float(rng.choice([0, 1.5, 100]))
    if most:
        factor = most / max(most, oracle.global_norm(batch, before))
        batch = batch | {"tables": [t | {"rule": t["rule"] | {"factor": factor}} for t in batch["tables"]]}
        flags = [*flags, "--clip-global-norm", most]
    said = embfuse("step", "--kernel", kernel["name"], "--first-step", first, "--steps", steps, "--out", out,
                   "--threads", rng.integers(1, 4), *flags)
    assert "checked: " in said, said
    want, moved = oracle.step(batch, before, first, steps, "dense_step" in kernel["traits"])
    why = difference(batch["tables"], oracle.load_tables(out, batch["tables"]), want, moved, before)
    assert not why, (what, kernel["name"], why)


def test_step(folder):
    """Every rule beside all others with every kernel, and alone, by flags, with one kernel after the other."""
    for case in cases(folder, 0, rules=list(RULES)):
        for kernel in kernels("step"):
            lr = ["--lr", case[2]["tables"][0]["rule"]["lr"]] if case[5] else []  # gen leaves it to the rule
            stepped(folder, case, kernel, ["--batch", case[4], *lr])
    for n, (rule, kernel) in enumerate(zip(RULES, itertools.cycle(kernels("step")))):
        for case in itertools.islice(cases(folder, 1 + n, rules=[rule]), 2):
            stepped(folder, case, kernel, by_flags(case[4], case[2], "step"))


def products(folder, operation, weighted=False):
    """Runs an operation without tables of its own on every case: (case, batch, tables, kernel, start of its files)."""
    out = os.path.join(folder, "out")
    for case in cases(folder, 100, weighted):
        what, rng, batch, tables, prefix, _ = case
        flags = by_flags(prefix, batch, operation) if len(tables) == 1 else ["--batch", prefix]
        if operation == "forward" and batch["winners"] is not None:
            flags += ["--winners", out + ".winners.npy"]
        for kernel in kernels(operation):
            said = embfuse(operation.replace("_", "-"), "--kernel", kernel["name"], "--threads", rng.integers(1, 4),
                           *flags, "--out", out)
            assert "checked: " in said, said
            yield (what, kernel["name"]), batch, tables, kernel, out


def test_forward(folder):
    for where, batch, tables, _, out in products(folder, "forward"):
        (want, winners), (_, to, decoded) = oracle.forward(batch, tables), TYPES[batch["grad_type"]]
        got = np.load(out + ".output.npy")
        assert got.dtype == to(want).dtype and np.array_equal(decoded(got), decoded(to(want))), where
        exact = oracle.forward(batch, tables, np.float64)[0]
        assert near(decoded(got), exact, max(1e-4, UNIT[batch["grad_type"]])), where
        if batch["winners"] is not None:
            got = np.load(out + ".winners.npy")
            assert got.dtype == np.int32 and np.array_equal(got, winners), where


def test_gradient(folder):
    for where, batch, _, kernel, out in products(folder, "gradient"):
        for t, path in enumerate(oracle.names(out, batch["tables"])):
            want = oracle.entries(batch, t)
            rows, values = oracle.merged(*want) if "merged" in kernel["traits"] else want
            got = np.load(path("rows")), np.load(path("values"))
            assert got[0].dtype == np.int64 and np.array_equal(got[0], rows), where
            assert got[1].dtype == np.float32 and near(got[1], values), where


def test_a_gradient_takes_memory_by_lookups(folder):
    rows, dim = 2 ** 31, 64  # a table of 512 GiB
    at = lambda name: os.path.join(folder, name)
    for name, values in (("ids", [1, rows - 1, 1]), ("offsets", [0, 2, 3]), ("grad", np.ones((2, dim), np.float32))):
        np.save(at(name), np.asarray(values))
    embfuse("gradient", "--kernel", "cpu_merged", "--rows", rows, "--dim", dim, "--out", at("out"),
            *(word for name in ("ids", "offsets", "grad") for word in (f"--{name}", at(f"{name}.npy"))))
    assert np.array_equal(np.load(at("out.rows.npy")), [1, rows - 1])
    assert np.array_equal(np.load(at("out.values.npy")), [[2.0] * dim, [1.0] * dim])


def test_weight_grad(folder):
    for where, batch, tables, _, out in products(folder, "weight_grad", weighted=True):
        got, want = np.load(out + ".weight_grad.npy"), oracle.weight_grad(batch, tables)
        assert got.dtype == np.float32 and np.array_equal(got, want), where


# --- the oracle itself
def test_pytorch_agrees(_):
    """Its embedding_bag and autograd: output, sparse gradient, and gradient of the per-sample weights."""
    try:
        import torch
    except ImportError as e:
        raise tap.Skip(f"{e}: make peers installs it, or set TORCH_PYTHON") from None
    of, seen = lambda x: None if x is None else torch.from_numpy(x), set()
    for n in range(200):
        batch, tables = drawn(np.random.default_rng([SEED, 200, n]), ["sgd"])
        feature, ids, weights = batch["features"][0], of(batch["ids"].astype(np.int64)), of(batch["weights"])
        table = torch.tensor(tables[0][0], requires_grad=True)
        weights = None if weights is None else weights.requires_grad_()
        if feature["pooling"] == "mean" and weights is not None:
            continue  # PyTorch has no such function
        padding = {"padding_idx": None if feature["padding"] < 0 else feature["padding"]}
        if feature["pooling"] == "none":
            out = torch.nn.functional.embedding(ids, table, **padding) * (1 if weights is None else weights[:, None])
        else:
            out = torch.nn.functional.embedding_bag(
                ids, table, of(batch["offsets"].astype(np.int64)), mode=feature["pooling"], include_last_offset=True,
                per_sample_weights=weights, **padding)
        out.backward(of(batch["grad"]))
        assert near(oracle.forward(batch, tables)[0], out.detach().numpy()), (SEED, n)
        assert near(oracle.summed(batch, 0)[0], table.grad.numpy()), (SEED, n)
        if weights is not None:
            assert near(oracle.weight_grad(batch, tables), weights.grad.numpy(), atol=2e-5), (SEED, n)
        seen.add((feature["pooling"], weights is not None))
    assert seen == {("none", False), ("none", True), ("sum", False), ("sum", True), ("mean", False), ("max", False)}, seen


if __name__ == "__main__":
    sys.exit(tap.run(globals(), f"NumPy, SEED={SEED}"))
