# SPDX-License-Identifier: MIT
"""What the suite computes, computed a third time: with NumPy, in float64, with np.add.at and the rules of
tests/rules/*.py. It shares only files with the suite. A batch is a dictionary: bags, tables, features, grad_type, and
the arrays ids, offsets, grad, weights (per sample) and winners, the last two None if there are none. What tables
hold is a list of (weight, [state, ...], row state or None)."""
import importlib
import os

import numpy as np

LANES = 128  # kernels/weight_grad.h states this order of additions
RULES = {}   # what embfuse list --json says about each rule, by name


# --- types: of each NumPy's type in files, to it, and from it
def to_bf16(x):
    """bf16 is the upper half of a float32, to the nearest even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


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


TYPES = {"fp32": (np.float32, lambda x: x.astype(np.float32), lambda x: x),
         "fp16": (np.float16, lambda x: x.astype(np.float16), lambda x: x.astype(np.float32)),
         "bf16": (np.uint16, to_bf16, lambda x: (x.astype(np.uint32) << 16).view(np.float32)),
         "fp8": (np.uint8, to_fp8, lambda x: FP8[x])}
UNIT = {"fp32": 0, "fp16": 2**-10, "bf16": 2**-7, "fp8": 2**-3}  # from a value to its neighbour
SMALLEST = {"fp32": 0, "fp16": 2**-24, "bf16": 0, "fp8": 2**-9}  # the same where values are subnormal


def stored(x, type):
    """Elements as a table of that type holds them."""
    return TYPES[type][2](TYPES[type][1](x))


# --- rules
def lr_of(name):
    """A rate at which every rule moves its weights enough, but not too far."""
    return 5 * RULES[name]["params"][0]["preset"]


def rule_of(name, **given):
    """Hyper-parameters as the program rounds them: to float32."""
    params = RULES[name]["params"] + RULES[name]["shared_params"]
    rule = {p["name"]: p["preset"] for p in params} | {"lr": lr_of(name)} | given
    return {"name": name} | {k: float(np.float32(v)) for k, v in rule.items()}


def state_types(table):
    """The type of each state per element."""
    rule = RULES[table["rule"]["name"]]
    return [table["momentum_type"] if k in rule["momenta"] else "fp32" for k in range(len(rule["elem"]))]


def new_states(table):
    """([state, ...], row state or None) of a new table; several row states are [rows][states]."""
    rule, shape = table["rule"], (table["rows"], table["dim"])
    full = lambda what, shape: [np.full(shape, rule.get(s.get("initial_param"), s["initial"]), np.float32)
                                for s in RULES[rule["name"]][what]]
    row = full("row", shape[0])
    return ([stored(s, type) for s, type in zip(full("elem", shape), state_types(table))],
            None if not row else row[0] if len(row) == 1 else np.stack(row, axis=1))


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


# --- lookups
def parts(batch):
    """Of every feature: itself, its table, the range of its lookups, the number of their bag, whether they count, and
    a function that gives its rows in grad and in outputs: columns of a matrix, or a range if pooling is none or features
    have numbers of bags of their own."""
    first, column, flat = 0, 0, 0
    for feature, bags in zip(batch["features"], batch["bags"]):
        table, own = batch["tables"][feature["table"]], batch["offsets"][first:first + bags + 1]
        lookups, dim, sequence = slice(own[0], own[-1]), table["dim"], feature["pooling"] == "none"
        end = flat + dim * (int(own[-1] - own[0]) if sequence else bags)
        if sequence or len(set(batch["bags"])) > 1:
            rows = lambda array, at=slice(flat, end), dim=dim: array.ravel()[at].reshape(-1, dim)
        else:
            rows = lambda array, at=slice(column, column + dim): array[:, at]
        yield (feature, table, lookups, np.repeat(np.arange(bags), np.diff(own)),
               batch["ids"][lookups] != feature["padding"], rows)
        first, column, flat = first + bags, column + dim, end


def upstream(batch, array, part):
    """The row of grad, or of another array in its shape, that belongs to each lookup of a feature."""
    feature, _, _, bag, _, rows = part
    return rows(array) if feature["pooling"] == "none" else rows(array)[bag]


def within(bag):
    """The number of each lookup in its bag."""
    return np.arange(len(bag)) - np.searchsorted(bag, bag)


def counted(bag, counts):
    """How many lookups of each lookup's bag count, at least 1."""
    return np.maximum(1, np.bincount(bag[counts], minlength=bag.max(initial=-1) + 1))[bag]


def entries(batch, t):
    """Rows and values of all lookups of a table that are not padding, in their order."""
    rows, values = [np.zeros(0, int)], [np.zeros((0, batch["tables"][t]["dim"]))]
    for part in parts(batch):
        feature, _, lookups, bag, counts, _ = part
        if feature["table"] != t:
            continue
        value = upstream(batch, batch["grad"], part).astype(float)
        if batch["weights"] is not None:
            value = value * batch["weights"][lookups, None].astype(float)
        if feature["pooling"] == "mean":
            value = value / counted(bag, counts)[:, None]
        if feature["pooling"] == "max":
            value = value * (upstream(batch, batch["winners"], part) == within(bag)[:, None])
        rows.append(batch["ids"][lookups][counts].astype(int))
        values.append(value[counts])
    return np.concatenate(rows), np.concatenate(values)


def merged(rows, values):
    """Each row once, ascending, with the sum of its values."""
    unique, which = np.unique(rows, return_inverse=True)
    sums = np.zeros((len(unique), values.shape[1]))
    np.add.at(sums, which, values)
    return unique, sums


def summed(batch, t):
    """The summed gradient of every row of a table, and which rows are touched."""
    rows, values = entries(batch, t)
    grad = np.zeros((batch["tables"][t]["rows"], values.shape[1]))
    np.add.at(grad, rows, values)
    return grad, np.isin(np.arange(len(grad)), rows)


# --- the four operations
def step(batch, before, first, steps, dense):
    """The tables after the steps, and the rows that may move."""
    after, moved = [], []
    for t, (table, (w, states, row)) in enumerate(zip(batch["tables"], before)):
        rule, (grad, touched) = table["rule"], summed(batch, t)
        if dense and (not RULES[rule["name"]]["idle_is_identity"] or rule["weight_decay"]):
            touched[:] = True
        new = [w.astype(float), [s.astype(float) for s in states], None if row is None else row.astype(float)]
        part = [new[0][touched], [s[touched] for s in new[1]], None if row is None else new[2][touched]]
        for k in range(first, first + steps):
            update = importlib.import_module(f"rules.{rule['name']}").update
            update(rule, k, *part, adjust(rule, part[0], grad[touched]))
            part[0] = stored(part[0], table["weight_type"]).astype(float)
            part[1] = [stored(s, type).astype(float) for s, type in zip(part[1], state_types(table))]
        new[0][touched] = part[0]
        for s, p in zip(new[1], part[1]):
            s[touched] = p
        if row is not None:
            new[2][touched] = part[2]
        after.append(new)
        moved.append(touched)
    return after, moved


def global_norm(batch, before):
    """Over all tables. Clipping comes before any decay of weights."""
    squares = (adjust(table["rule"] | {"weight_decay": 0}, before[t][0], summed(batch, t)[0])**2
               for t, table in enumerate(batch["tables"]))
    return np.sqrt(sum(s.sum() for s in squares))


def forward(batch, tables, dtype=np.float32):
    """The output in that type, one lookup after another, and the winners of pooling max: of equals the first, -1 where
    no lookup counts. Not for NaN: argmax would take a later one."""
    shape = batch["grad"].shape
    out, winners = np.zeros(shape, dtype), np.full(shape, -1, np.int32)
    for feature, table, lookups, bag, counts, rows_in in parts(batch):
        rows = tables[feature["table"]][0][batch["ids"][lookups]].astype(dtype)
        if batch["weights"] is not None:
            rows = rows * batch["weights"][lookups, None].astype(dtype)
        if feature["pooling"] == "none":
            rows_in(out)[:] = rows
        elif feature["pooling"] == "max":
            for b in np.unique(bag[counts]):
                own = np.flatnonzero(counts & (bag == b))
                first = rows[own].argmax(0)
                rows_in(out)[b] = rows[own[first], np.arange(table["dim"])]
                rows_in(winners)[b] = within(bag)[own[first]]
        else:
            sums = np.zeros(rows_in(out).shape, dtype)
            np.add.at(sums, bag[counts], rows[counts])
            if feature["pooling"] == "mean":
                sums /= np.maximum(1, np.bincount(bag[counts], minlength=len(sums))).astype(dtype)[:, None]
            rows_in(out)[:] = sums
    return out, winners


def weight_grad(batch, tables):
    """The gradient of the per-sample weights in float32: LANES sums, folded by halves."""
    out = np.zeros(len(batch["ids"]), np.float32)
    for part in parts(batch):
        feature, table, lookups, bag, counts, _ = part
        product = upstream(batch, batch["grad"], part) * tables[feature["table"]][0][batch["ids"][lookups]]
        lanes = np.zeros((len(bag), LANES), np.float32)
        for begin in range(0, table["dim"], LANES):
            lanes[:, :min(LANES, table["dim"] - begin)] += product[:, begin:begin + LANES]
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        dots = lanes[:, 0]
        if feature["pooling"] == "mean":
            dots = dots * (np.float32(1) / counted(bag, counts).astype(np.float32))
        out[lookups] = np.where(counts | (feature["pooling"] == "none"), dots, np.float32(0))
    return out


# --- files
def names(prefix, tables):
    """Of every table a function that names its files."""
    return [lambda what, k="", t=t: f"{prefix}.{what}{f'.{t}' * (len(tables) > 1)}{k}.npy" for t in range(len(tables))]


def write(prefix, batch, tables):
    """The description, the arrays of the batch, and the tables."""
    with open(prefix + ".batch", "w", encoding="utf-8") as file:
        same = len(set(batch["bags"])) == 1
        print("# by NumPy" + f"\nbags {batch['bags'][0]}" * same + f"\nweighted {int(batch['weights'] is not None)}\n"
              f"grad_type {batch['grad_type']}", file=file)
        for table in batch["tables"]:
            rule = table["rule"]
            words = {k: v for k, v in table.items() if k != "rule"} | {"rule": rule["name"]} | {
                k: v for k, v in rule.items() if k not in ("name", "factor")}
            print("table", *(f"{k} {v!r}" if k in rule else f"{k} {v}" for k, v in words.items()), file=file)
        for feature, bags in zip(batch["features"], batch["bags"]):
            print("feature", *(f"{k} {v}" for k, v in feature.items()), *[f"bags {bags}"] * (not same), file=file)
    arrays = {"ids": batch["ids"], "offsets": batch["offsets"], "lookup_weights": batch["weights"],
              "winners": batch["winners"], "grad": TYPES[batch["grad_type"]][1](batch["grad"])}
    for name, array in arrays.items():
        if array is not None:
            np.save(f"{prefix}.{name}.npy", array)
    for path, table, (w, states, row) in zip(names(prefix, tables), batch["tables"], tables):
        np.save(path("weight"), TYPES[table["weight_type"]][1](w))
        for k, (s, type) in enumerate(zip(states, state_types(table))):
            np.save(path("state", f".{k}"), TYPES[type][1](s))
        if row is not None:
            np.save(path("row_state"), row)


def read(prefix):
    """The batch that PREFIX.batch describes."""
    batch = {"tables": [], "features": [], "bags": 0, "own": [], "weighted": "0", "grad_type": "fp32"}
    with open(prefix + ".batch", encoding="utf-8") as file:
        for words in filter(None, (line.split("#")[0].split() for line in file)):
            pairs = dict(zip(words[1::2], words[2::2]))
            if words[0] == "table":
                table = {key: pairs.pop(key) for key in ("rows", "dim", "weight_type", "momentum_type")}
                for key in ("rounding", "row_state"):  # files do not show it
                    pairs.pop(key)
                rule = rule_of(pairs.pop("rule"), **{k: float(v) for k, v in pairs.items()})
                batch["tables"].append(table | {"rows": int(table["rows"]), "dim": int(table["dim"]), "rule": rule})
            elif words[0] == "feature":
                batch["features"].append({"table": int(pairs["table"]), "pooling": pairs["pooling"],
                                          "padding": int(pairs["padding"])})
                batch["own"].append(int(pairs.get("bags", -1)))
            else:
                batch[words[0]] = words[1]
    load = lambda name: np.load(f"{prefix}.{name}.npy") if os.path.exists(f"{prefix}.{name}.npy") else None
    batch |= {"ids": load("ids"), "offsets": load("offsets"), "weights": load("lookup_weights"),
              "winners": load("winners"),
              "bags": [own if own >= 0 else int(batch["bags"]) for own in batch.pop("own")],
              "grad": TYPES[batch["grad_type"]][2](load("grad"))}
    assert (batch["weights"] is not None) == (batch["weighted"] == "1")
    return batch


def load_tables(prefix, tables):
    """What these tables hold; missing states are those of a new table."""
    loaded = []
    for path, table in zip(names(prefix, tables), tables):
        def load(name, type, new=None):
            if new is not None and not os.path.exists(name):
                return new
            x = np.load(name)
            assert x.dtype == TYPES[type][0], f"{name}: {x.dtype} for {type}"
            return TYPES[type][2](x)
        states, row = new_states(table)
        states = [load(path("state", f".{k}"), type, s) for k, (s, type) in enumerate(zip(states, state_types(table)))]
        loaded.append((load(path("weight"), table["weight_type"]), states,
                       None if row is None else load(path("row_state"), "fp32", row)))
    return loaded
