# SPDX-License-Identifier: MIT
"""Compares embfuse step with NumPy, on batches that gen wrote and on arrays that NumPy wrote, for every
host kernel and rule of `embfuse list --json`; a rule without a file in tests/rules/ fails. This file computes
the step a third time, in float64, with np.add.at and the rules of tests/rules/*.py; it shares only files
with the suite.
"""
import importlib
import itertools
import json
import os
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    np = None

BUILD = os.environ.get("BUILD", "build")
PROGRAM = os.path.join(BUILD, "embfuse")
WORK = os.path.join(BUILD, "tests", "cli_numpy")
# With a sanitizer a program takes much longer, and values do not concern it: it gets some of the cases.
EVERY = 5 if os.environ.get("SANITIZE") else 1
RULES = {}  # what the program says about each rule, by name


def work(name):
    return os.path.join(WORK, name)


def embfuse(*args):
    """Runs embfuse; returns standard output, or raises an error with its message."""
    run = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, check=False)
    if run.returncode or run.stderr:
        raise ValueError(f"status {run.returncode}: {run.stderr.strip()}")
    return run.stdout


# --- the step in float64 ---------------------------------------------------------------------


def default_rule(name, **given):
    """Hyper-parameters as the program rounds them: to float32."""
    params = RULES[name]["params"] + RULES[name]["shared_params"]
    rule = {p["name"]: p["preset"] for p in params} | {"lr": lr_of(name)} | given
    return {"name": name} | {k: float(np.float32(v)) for k, v in rule.items()}


def lr_of(name):
    """A rate at which every rule moves its weights enough, but not too far."""
    return 5 * RULES[name]["params"][0]["preset"]


def elem_states(name):
    return RULES[name]["elem_states"]


def summed(batch, t):
    """The summed gradient of every row of table t, and which rows are touched."""
    table, bags, offsets = batch["tables"][t], batch["bags"], batch["offsets"]
    grad, touched = np.zeros((table["rows"], table["dim"])), np.zeros(table["rows"], bool)
    column = flat = 0
    for f, feature in enumerate(batch["features"]):
        dim = batch["tables"][feature["table"]]["dim"]
        begin, end = offsets[f * bags], offsets[(f + 1) * bags]
        ids = batch["ids"][begin:end]
        bag = np.repeat(np.arange(bags), np.diff(offsets[f * bags:(f + 1) * bags + 1]))
        if feature["pooling"] == "none":
            rows = batch["grad"].ravel()[flat:flat + len(ids) * dim].reshape(-1, dim)
        else:
            rows = batch["grad"][:, column:column + dim][bag]
        rows = rows.astype(float)
        counts = ids != feature["padding"]
        if batch["weights"] is not None:
            rows = rows * batch["weights"][begin:end, None].astype(float)
        if feature["pooling"] == "mean":
            rows = rows / np.maximum(1, np.bincount(bag[counts], minlength=bags))[bag][:, None]
        if feature["table"] == t:
            np.add.at(grad, ids[counts], rows[counts])
            touched[ids[counts]] = True
        column += dim
        flat += len(ids) * dim
    return grad, touched


def adjust(rule, w, g):
    """Decays the weights in place; returns the gradient that the rule sees."""
    shared = {p["name"]: rule[p["name"]] for p in RULES[rule["name"]]["shared_params"]}
    decay = shared.get("weight_decay", 0)
    g = g * (shared["grad_scale"] or 1) * (-1 if shared["maximize"] else 1)
    if shared["clip_value"]:
        g = np.clip(g, -shared["clip_value"], shared["clip_value"])
    if shared["clip_norm"]:
        norm = np.maximum(np.linalg.norm(g, axis=1, keepdims=True), shared["clip_norm"])
        g = g * shared["clip_norm"] / norm
    g = g * rule.get("factor", 1)
    if decay and shared["decoupled_weight_decay"]:
        w *= 1 - rule["lr"] * decay
    elif decay:
        g = g + decay * w
    return g


def global_norm(batch, before):
    """Over all tables. Clipping comes before any decay of weights."""
    squares = 0
    for t, (table, (w, _, _)) in enumerate(zip(batch["tables"], before)):
        squares += (adjust(table["rule"] | {"weight_decay": 0}, w, summed(batch, t)[0])**2).sum()
    return np.sqrt(squares)


def update(rule, t, w, states, row, g):
    """Updates all given rows in place."""
    g = adjust(rule, w, g)
    importlib.import_module(f"rules.{rule['name']}").update(rule, t, w, states, row, g)


def to_bf16(x):
    """bf16 is the upper half of a float32, to the nearest even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


# The values of fp8 E4M3, by code; 0x7f and 0xff are NaN.
FP8 = np.array([(-1.0)**(c >> 7) * np.ldexp((c & 7) + 8 * (c >> 3 & 15 > 0), max(c >> 3 & 15, 1) - 10)
                for c in range(256)], np.float32)
FP8[[0x7f, 0xff]] = np.nan


def to_fp8(x):
    """The nearest value, of two the even code; larger values become the largest."""
    values = FP8[:0x7f]
    size = np.minimum(np.abs(x), values[-1])
    above = np.clip(np.searchsorted(values, size), 1, 0x7e)
    down, up = size - values[above - 1], values[above] - size
    code = np.where((down < up) | ((down == up) & (above % 2 == 1)), above - 1, above)
    return (code + 128 * np.signbit(x)).astype(np.uint8)


# Of each type: NumPy's type in files, to it, and from it.
TYPES = {"fp32": (np.float32, lambda x: x.astype(np.float32), lambda x: x),
         "fp16": (np.float16, lambda x: x.astype(np.float16), lambda x: x.astype(np.float32)),
         "bf16": (np.uint16, to_bf16, from_bf16),
         "fp8": (np.uint8, to_fp8, lambda x: FP8[x])}
UNIT = {"fp32": 0, "fp16": 2**-10, "bf16": 2**-7, "fp8": 2**-3}  # from a value to its neighbour


def stored(x, type):
    """Elements as a table of that type holds them."""
    return TYPES[type][2](TYPES[type][1](x)).astype(float)


def state_types(table):
    """The type of each state per element."""
    momenta = RULES[table["rule"]["name"]]["momenta"]
    return [table["momentum_type"] if k in momenta else "fp32"
            for k in range(len(RULES[table["rule"]["name"]]["elem"]))]


def expected(batch, before, first, steps, dense):
    """The tables after the steps, and the rows that move."""
    after, moved = [], []
    for t, (table, (w, states, row)) in enumerate(zip(batch["tables"], before)):
        rule = table["rule"]
        grad, touched = summed(batch, t)
        if dense and (not RULES[rule["name"]]["idle_is_identity"] or rule["weight_decay"]):
            touched[:] = True
        w, states = w.astype(float), [s.astype(float) for s in states]
        row = None if row is None else row.astype(float)
        part = [w[touched], [s[touched] for s in states], None if row is None else row[touched]]
        for k in range(steps):
            update(rule, first + k, *part, grad[touched])
            part[0] = stored(part[0], table["weight_type"])
            part[1] = [stored(s, type) for s, type in zip(part[1], state_types(table))]
        w[touched] = part[0]
        for s, p in zip(states, part[1]):
            s[touched] = p
        if row is not None:
            row[touched] = part[2]
        after.append((w, states, row))
        moved.append(touched)
    return after, moved


# --- files -----------------------------------------------------------------------------------


def read_description(prefix):
    """The description in PREFIX.batch, and the arrays beside it."""
    batch = {"tables": [], "features": [], "weighted": "0"}
    with open(prefix + ".batch", encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if not words:
                continue
            pairs = dict(zip(words[1::2], words[2::2]))
            if words[0] == "table":
                table = {"rows": int(pairs.pop("rows")), "dim": int(pairs.pop("dim")),
                         "weight_type": pairs.pop("weight_type", "fp32"),
                         "momentum_type": pairs.pop("momentum_type", "fp32")}
                pairs.pop("rounding", None)
                pairs.pop("row_state", None)  # files do not show it
                rule = default_rule(pairs.pop("rule"), **{k: float(v) for k, v in pairs.items()})
                batch["tables"].append(table | {"rule": rule})
            elif words[0] == "feature":
                batch["features"].append({"table": int(pairs["table"]),
                                          "pooling": pairs.get("pooling", "sum"),
                                          "padding": int(pairs.get("padding", -1))})
            else:
                batch[words[0]] = words[1]
    load = lambda name: np.load(f"{prefix}.{name}.npy", allow_pickle=False)
    grad = TYPES[batch.get("grad_type", "fp32")][2](load("grad"))
    batch |= {"ids": load("ids"), "offsets": load("offsets"), "grad": grad}
    batch["bags"] = (len(batch["offsets"]) - 1) // len(batch["features"])
    batch["weights"] = load("lookup_weights") if batch["weighted"] == "1" else None
    return batch


def initial(rule, what, shape):
    """The states of a new table, per element ("elem") or per row ("row")."""
    return [np.full(shape, rule.get(s.get("initial_param"), s["initial"]), np.float32)
            for s in RULES[rule["name"]][what]]


def initial_row(rule, rows):
    """The row states of a new table: [rows], or [rows][states] if there are several; None without any."""
    states = initial(rule, "row", rows)
    return None if not states else states[0] if len(states) == 1 else np.stack(states, axis=1)


def load_tables(prefix, tables):
    """(weight, [state, ...], row state or None) of each; missing states are those of a new table."""
    loaded = []
    for t, table in enumerate(tables):
        dot = f".{t}" if len(tables) > 1 else ""
        shape = (table["rows"], table["dim"])

        def load(what, type, new=None):
            path = f"{prefix}.{what}.npy"
            if new is not None and not os.path.exists(path):
                return stored(new, type).astype(np.float32)
            x = np.load(path)
            assert x.dtype == TYPES[type][0], f"{path}: {x.dtype} for {type}"
            return TYPES[type][2](x)
        states = [load(f"state{dot}.{k}", type, new) for k, (new, type)
                  in enumerate(zip(initial(table["rule"], "elem", shape), state_types(table)))]
        row = initial_row(table["rule"], table["rows"])
        row = None if row is None else load(f"row_state{dot}", "fp32", row)
        loaded.append((load(f"weight{dot}", table["weight_type"]), states, row))
    return loaded


def difference(tables, got, want, moved, before):
    """'' if they agree; rows that must not move must be equal bit for bit."""
    def flat(table):
        return [a for a in (table[0], *table[1], table[2]) if a is not None]
    for t, (g, w, m, b) in enumerate(zip(got, want, moved, before)):
        for i, (x, y, old) in enumerate(zip(flat(g), flat(w), flat(b), strict=True)):
            if x.dtype != np.float32 or x.shape != y.shape:
                return f"table {t}, array {i}: {x.dtype} {x.shape}, not float32 {y.shape}"
            if x[~m].tobytes() != old[~m].tobytes():
                return f"table {t}, array {i}: an untouched row has moved"
            # Three steps may end three neighbours away, and a state may come from a weight.
            types = [tables[t]["weight_type"], *state_types(tables[t]), "fp32"]
            rtol = max(1e-5, 3 * UNIT[types[i]], UNIT[types[0]])
            if not np.allclose(x, y, rtol=rtol, atol=2e-6 * max(1, np.abs(y).max(initial=0))):
                return f"table {t}, array {i}: off by {np.abs(x - y).max():g}"
            if np.array_equal(x, old) and not np.array_equal(y, old):
                return f"table {t}, array {i}: nothing moved"
    return ""


def remove_results():
    for name in os.listdir(WORK):
        if name.startswith("out."):
            os.remove(work(name))


def compare(kernel, batch, before, flags, first=1, steps=1):
    """Runs step; returns what differs."""
    remove_results()
    embfuse("step", "--kernel", kernel["name"], "--first-step", first, "--steps", steps,
            "--out", work("out"), *flags)
    want, moved = expected(batch, before, first, steps, "dense_step" in kernel["traits"])
    return difference(batch["tables"], load_tables(work("out"), batch["tables"]), want, moved, before)


# --- cases: (name, make(), flags...) -----------------------------------------------------------

SPECS = {
    "ragged": "rows 60; dim 5; batch 40; length negbin 3 1.2; alpha 1",
    "mean, weighted, padding": "tables 2; rows 30; dim 8; batch 32; length uniform 0 6; alpha 1;"
                               " pooling mean; weighted 1; padding 0; map identity",
    "sequences": "rows 40; dim 17; batch 16; length uniform 0 5; pooling none; padding 2;"
                 " ids uniform; id_type int32",
    "sequences of several dims": "pooling none; batch 10; table rows 9 dim 1 length fixed 3;"
                                 " table rows 20 dim 33 length uniform 0 4",
    "shared tables": "tables 2; features 3; rows 25; dim 4; batch 20; length uniform 0 4;"
                     " id_type int32; weighted 1",
    "mean of duplicates": "tables 2; rows 9; dim 5; batch 30; length uniform 0 5; duplicates mean; padding 1",
    "bf16": "tables 2; rows 60; dim 7; batch 40; length uniform 0 5; alpha 1; weight_type bf16",
    "fp16": "tables 2; rows 60; dim 9; batch 40; length uniform 0 5; alpha 1; weight_type fp16; grad_type bf16",
    "fp8": "rows 60; dim 7; batch 40; length uniform 0 5; alpha 1; weight_type fp8; momentum_type bf16;"
           " grad_type fp16",
    "states beside": "rows 60; dim 6; batch 40; alpha 1; weight_type bf16; row_state beside",
}


def generated_cases(kernels):
    """gen writes, NumPy reads and step reads."""
    for (what, spec), rule in itertools.product(SPECS.items(), RULES):
        for i, kernel in enumerate(kernels):
            def run(kernel=kernel, spec=spec, rule=rule, steps=1 + i % 3):
                prefix = work("gen")
                mode = "real" if steps > 1 else "exact"
                embfuse("gen", "--spec-text", f"workload w; {spec}; rule {rule}", "--mode", mode,
                        "--batch-number", 1, "--initial-tables", "--out", prefix)
                batch = read_description(prefix)
                before = load_tables(prefix, batch["tables"])
                flags = ["--batch", prefix, "--lr", lr_of(rule)]
                return compare(kernel, batch, before, flags, 4, steps)
            yield f"gen, {what}, {rule}, {kernel['name']}", run


def own_batch(id_type, pooling="sum", padding=-1, weighted=False, rows=11, dim=3, bags=9, seed=7):
    """One table and one feature, made here, with duplicates and an empty bag."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, bags)
    lengths[4] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    grad_rows = n if pooling == "none" else bags
    return {"ids": rng.integers(0, rows, n).astype(id_type), "offsets": offsets, "bags": bags,
            "grad": rng.standard_normal((grad_rows, dim)).astype(np.float32),
            "weights": rng.random(n).astype(np.float32) if weighted else None,
            "tables": [{"rows": rows, "dim": dim, "weight_type": "fp32", "momentum_type": "fp32"}],
            "features": [{"table": 0, "pooling": pooling, "padding": padding}]}


def save(**arrays):
    for name, array in arrays.items():
        np.save(work(f"own.{name}.npy"), array)


def own_flags(batch):
    save(ids=batch["ids"], offsets=batch["offsets"], grad=batch["grad"])
    flags = ["--pooling", batch["features"][0]["pooling"],
             "--padding", batch["features"][0]["padding"]]
    for name in ("ids", "offsets", "grad", "weight"):
        flags += [f"--{name}", work(f"own.{name}.npy")]
    if batch["weights"] is not None:
        save(lookup_weights=batch["weights"])
        flags += ["--lookup-weights", work("own.lookup_weights.npy")]
    return flags


SHARED = [{"grad_scale": 0.5, "clip_value": 1, "weight_decay": 0.1}, {},
          {"maximize": 1, "clip_norm": 1.5}, {"weight_decay": 0.1, "decoupled_weight_decay": 1}]


def own_cases(kernels):
    """NumPy writes, step reads flags: all rules, with and without states."""
    kinds = [("int64", dict()), ("int32", dict(pooling="mean", weighted=True, padding=3)),
             ("int32", dict(pooling="none", weighted=True)), ("int64", dict(padding=0))]
    for kernel, rule, (kind, (id_type, given)) in itertools.product(kernels, RULES, enumerate(kinds)):
        def run(kernel=kernel, rule=rule, kind=kind, id_type=id_type, given=given):
            batch = own_batch(id_type, **given)
            table = batch["tables"][0]
            hyper = {h: v for h, v in (("eps", 1e-4), ("momentum", 0.8), ("beta2", 0.99), ("alpha", 0.9),
                                       ("dampening", 0.25), ("lr_decay", 0.5), ("initial_accumulator", 0.1),
                                       *SHARED[kind].items()) if h in default_rule(rule)}
            flags = [p["name"] for p in RULES[rule]["params"] if p["flag"]]
            hyper |= {name: kind >> k & 1 for k, name in enumerate(flags)}
            table["rule"] = default_rule(rule, **hyper)
            shape, rng = (table["rows"], table["dim"]), np.random.default_rng(8)
            flags = own_flags(batch) + ["--rule", rule, "--lr", lr_of(rule)]
            flags += [x for h, v in hyper.items() for x in (f"--{h}", v)]
            weight = rng.standard_normal(shape).astype(np.float32)
            states = initial(table["rule"], "elem", shape)
            row = initial_row(table["rule"], shape[0])
            save(weight=weight)
            if kind % 2:  # with given states; otherwise they start at zero
                states = [((k == 0) / 10 + rng.random(shape) / (1 + 9 * k)).astype(np.float32)
                          for k in range(len(states))]
                for k, s in enumerate(states):
                    save(**{f"s{k}": s})
                if states:
                    names = [work(f"own.s{k}.npy") for k in range(len(states))]
                    flags += ["--state", ",".join(names)]
                if row is not None:
                    row = rng.random(row.shape).astype(np.float32)
                    save(row=row)
                    flags += ["--row-state", work("own.row.npy")]
            return compare(kernel, batch, [(weight, states, row)], flags, 1 + kind, 2)
        yield f"own arrays {kind}, {rule}, {kernel['name']}", run


DESCRIPTION = """# written by hand
bags 4
weighted 1
table rows 6 dim 2 rule adam lr 0.02 beta1 0.8   # two features
table rows 4 dim 3 rule rowwise_adagrad lr 0.5
table rows 5 dim 1 rule sgd lr 0.25 grad_scale 2 clip_value 0.75 weight_decay 0.1
feature table 1
feature table 0 pooling mean padding 5
feature table 2 pooling mean
feature table 0
"""


def described_cases(kernels):
    """A description by hand: mixed rules, dims and poolings, shared tables, int32 offsets. With gradients
    clipped by their global norm, and with a norm that is below the limit."""
    for kernel, most in itertools.product(kernels, (0, 1.5, 100)):
        def run(kernel=kernel, most=most):
            rng, prefix = np.random.default_rng(9), work("hand")
            with open(prefix + ".batch", "w", encoding="utf-8") as file:
                file.write(DESCRIPTION)
            lengths = rng.integers(0, 5, 16)
            ids = [rng.integers(0, rows, n) for rows, n in
                   zip(np.repeat([4, 6, 5, 6], 4), lengths)]
            n = int(lengths.sum())
            for name, array in {
                    "ids": np.concatenate(ids).astype(np.int32),
                    "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
                    "grad": rng.standard_normal((4, 3 + 2 + 1 + 2)).astype(np.float32),
                    "lookup_weights": rng.random(n).astype(np.float32),
                    "weight.0": rng.standard_normal((6, 2)).astype(np.float32),
                    "weight.1": rng.standard_normal((4, 3)).astype(np.float32),
                    "weight.2": rng.standard_normal((5, 1)).astype(np.float32),
                    "row_state.1": rng.random(4).astype(np.float32)}.items():
                np.save(f"{prefix}.{name}.npy", array)
            batch = read_description(prefix)
            before, flags = load_tables(prefix, batch["tables"]), ["--batch", prefix]
            if most:
                norm = global_norm(batch, before)
                assert (norm > most) == (most < 9), norm
                for table in batch["tables"]:
                    table["rule"]["factor"] = min(1, most / norm)
                flags += ["--clip-global-norm", most]
            return compare(kernel, batch, before, flags, 1, 3)
        yield f"description by hand, global norm {most}, {kernel['name']}", run


def example_cases(kernels):
    """Sample 1 looks up rows 1, 2, 6, sample 2 rows 1, 3, 6."""
    for kernel in kernels:
        def run(kernel=kernel):
            rng = np.random.default_rng(10)
            grad, weight = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4), (7, 4)))
            batch = {"ids": np.array([1, 2, 6, 1, 3, 6]), "offsets": np.array([0, 3, 6]),
                     "grad": grad, "weights": None,
                     "features": [{"table": 0, "pooling": "sum", "padding": -1}]}
            save(weight=weight)
            remove_results()
            embfuse("step", "--kernel", kernel["name"], "--rule", "sgd", "--lr", 1, "--out",
                    work("out"), *own_flags(batch))
            new = np.load(work("out.weight.npy"))
            want = weight.copy()
            for row, g in ((1, grad[0] + grad[1]), (2, grad[0]), (3, grad[1]),
                           (6, grad[0] + grad[1])):
                want[row] -= g
            kept = new[[0, 4, 5]].tobytes() == weight[[0, 4, 5]].tobytes()
            good = np.allclose(new, want, rtol=1e-6, atol=1e-6)
            return "" if kept and good else f"kept {kept}, rows {good}"
        yield f"two samples, {kernel['name']}", run


def chain_cases(kernels):
    """Two runs of one step equal one run of two steps, bit for bit: the record counts the steps."""
    for kernel in (k for k in kernels if "deterministic" in k["traits"]):
        def run(kernel=kernel):
            prefix, args = work("gen"), ["step", "--kernel", kernel["name"], "--batch", work("gen")]
            embfuse("gen", "--spec-text", "workload w; rows 50; dim 6; batch 30; length fixed 3;"
                    "rule adam", "--mode", "real", "--initial-tables", "--out", prefix)
            remove_results()
            embfuse(*args, "--steps", 2, "--out", work("out.two"))
            embfuse(*args, "--out", work("out.one"))
            embfuse(*args, "--tables", work("out.one"), "--out", work("out.one"))
            for name in ("weight", "state.0", "state.1"):
                a, b = (np.load(work(f"out.{n}.{name}.npy")) for n in ("one", "two"))
                if a.tobytes() != b.tobytes():
                    return f"{name} differs"
            return ""
        yield f"one step after another, {kernel['name']}", run


def main():
    if np is None:
        print("ok 1 - embfuse against NumPy # SKIP numpy is missing\n1..1")
        return 0
    os.makedirs(WORK, exist_ok=True)
    known = json.loads(embfuse("list", "--json"))
    kernels = [k for k in known["kernels"] if k["place"] == "host" and k["operation"] == "step"]
    RULES.update({r["name"]: r for r in known["rules"]})
    number = failed = 0
    groups = (example_cases, own_cases, described_cases, chain_cases, generated_cases)
    every_case = itertools.chain.from_iterable(cases(kernels) for cases in groups)
    for what, run in itertools.islice(every_case, 0, None, EVERY):
        number += 1
        try:
            why = run()
        except (OSError, ValueError, KeyError, ImportError, AttributeError) as e:
            why = f"{type(e).__name__}: {e}"
        failed += bool(why)
        print(f"{'not ok' if why else 'ok'} {number} - {what}{': ' if why else ''}{why}")
    print(f"1..{number}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
