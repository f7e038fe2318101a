#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Moves a training between libembfuse and PyTorch: the weights, and the state_dict of an optimizer.

    state_dict.py to-torch MODEL.safetensors FILE.pt          a file of embfuse_save()
    state_dict.py from-torch FILE.pt MODEL.safetensors --optimizer SparseAdam

FILE.pt is {"model": {name: weights of a table}, "optimizer": optimizer.state_dict()}, tables in the order of the
optimizer's parameters. to-torch names them embeddings.0.weight, embeddings.1.weight ..., as a torch.nn.ModuleList
called embeddings does.

What PyTorch knows goes over: weights, states, steps, and hyper-parameters. Rounding and its seed do not, and are given
again. Row-wise states and clipping have no place in torch.optim; such models are refused. Narrow weights stay narrow, but
load_state_dict() of PyTorch casts the states to the type of the weights. A rule changes the rows of a batch only; after
dense gradients torch.optim moves all rows, and so do its momentum and weight decay.
"""
import argparse
import json
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "library", "examples"))
import libembfuse as embfuse
from libembfuse import constant

# Rule: the optimizer, its names of the rule's states, and of hyper-parameters. SparseAdam adds epsilon before the
# correction.
BETAS = {"beta1": "betas", "beta2": "betas"}
MOMENTS = ["exp_avg", "exp_avg_sq"]
RULES = {
    "sgd": ("SGD", [], {}),
    "momentum": ("SGD", ["momentum_buffer"], {x: x for x in ("momentum", "dampening", "nesterov")}),
    "adagrad": ("Adagrad", ["sum"], {"eps": "eps", "lr_decay": "lr_decay",
                                     "initial_accumulator": "initial_accumulator_value"}),
    "adam": ("Adam", MOMENTS, {"eps": "eps", **BETAS}),
    "amsgrad": ("Adam", [*MOMENTS, "max_exp_avg_sq"], {"eps": "eps", **BETAS}),
    "adam_epsilon_hat": ("SparseAdam", MOMENTS, {"eps": "eps", **BETAS}),
}
ALL_RULES = {"lr": "lr", "weight_decay": "weight_decay", "maximize": "maximize"}
FLAGS = ("nesterov", "maximize", "decoupled_weight_decay")
ONLY_HERE = ("grad_scale", "clip_value", "clip_norm", "eps_inside")
TYPES = {torch.float32: ("fp32", constant.FP32), torch.bfloat16: ("bf16", constant.BF16),
         torch.float16: ("fp16", constant.FP16)}
TENSORS = {number: dtype for dtype, (_, number) in TYPES.items()}


class Refused(Exception):
    """There is no equal on the other side."""


def model_of(tables, **options):
    """(model, [[tensor of each array] of each table]), bound, states as in new tables."""
    model = embfuse.Model(tables, [{"table": t} for t in range(len(tables))], **options)
    arrays = []
    for t, table in enumerate(tables):
        arrays.append([torch.zeros(table["rows"], a.width, dtype=TENSORS[a.type]) for a in model.arrays(t)])
        for number, array in enumerate(arrays[t]):
            model.bind(t, number, array)
        model.init_states(t)
    return model, arrays


# --- from libembfuse

def tables_of(path):
    """The tables of a saved state; embfuse_load() checks the rest."""
    types = {"F32": constant.FP32, "BF16": constant.BF16, "F16": constant.FP16}
    try:
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        tables = json.loads(header["__metadata__"]["embfuse"])["tables"]
        arrays = [[header.get(f"table.{t}.{name}") for name in ("weight", "state.0")] for t in range(len(tables))]
        for t, (table, (weight, _)) in enumerate(zip(tables, arrays)):
            if table["rule"] not in RULES:
                raise Refused(f"table {t}: rule {table['rule']} is no optimizer of torch.optim; known: {', '.join(RULES)}")
            if weight["dtype"] not in types:
                raise Refused(f"table {t}: weights are {weight['dtype']}, which this script does not take")
        return [{"rows": weight["shape"][0], "dim": weight["shape"][1], "rule": table["rule"],
                 "weight_type": types[weight["dtype"]], "momentum_type": types[state["dtype"]] if state else constant.FP32,
                 "rounding": constant[table["rounding"].upper()]} for table, (weight, state) in zip(tables, arrays)]
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, MemoryError) as e:
        raise Refused(f"{path}: not a file of embfuse_save(): {e}") from None


def get(model, table, name):
    """The shortest number that is the same fp32; 0 if the rule has no such hyper-parameter."""
    try:
        value = float(str(np.float32(model.get(name, table))))
    except embfuse.Error as e:
        if e.status != constant.UNKNOWN:
            raise
        value = 0.0
    return bool(value) if name in FLAGS else value


def arguments_of(model, table, rule):
    """(optimizer, its arguments)"""
    optimizer, _, names = RULES[rule]
    for name in ONLY_HERE:
        if get(model, table, name):
            raise Refused(f"table {table}: torch.optim.{optimizer} has no {name}")
    values = {name: get(model, table, name) for name in (*ALL_RULES, *names)}
    found = {ours: values[ours] for ours in ("lr", "maximize")}
    found.update({theirs: values[ours] for ours, theirs in names.items() if theirs != "betas"})
    if "beta1" in names:
        found["betas"] = (values["beta1"], values["beta2"])
    if rule == "amsgrad":
        found["amsgrad"] = True
    if get(model, table, "decoupled_weight_decay") and values["weight_decay"]:
        if optimizer != "Adam":
            raise Refused(f"table {table}: torch.optim.{optimizer} has no decoupled weight decay")
        optimizer = "AdamW"
    if optimizer == "SparseAdam":
        if values["weight_decay"]:
            raise Refused(f"table {table}: torch.optim.SparseAdam has no weight_decay")
    else:
        found["weight_decay"] = values["weight_decay"]
    return optimizer, found


def to_torch(path):
    """(class of torch.optim, [weights], its state_dict). Tables with the same hyper-parameters share a group."""
    tables = tables_of(path)
    model, arrays = model_of(tables)
    model.call("load", os.fsencode(path))
    weights = [torch.nn.Parameter(a[0]) for a in arrays]
    kinds, groups = set(), []
    for t, table in enumerate(tables):
        kind, arguments = arguments_of(model, t, table["rule"])
        kinds.add(kind)
        same = next((g for g in groups if {k: v for k, v in g.items() if k != "params"} == arguments), None)
        if not same:
            groups.append(same := {"params": [], **arguments})
        same["params"].append(weights[t])
    if len(kinds) != 1:
        raise Refused(f"the tables are of several optimizers: {', '.join(sorted(kinds))}")
    if sum((list(map(id, g["params"])) for g in groups), []) != list(map(id, weights)):
        raise Refused("tables with the same hyper-parameters do not follow one another, as they do in groups")
    kind, = kinds
    optimizer = getattr(torch.optim, kind)(groups)
    for t, table in enumerate(tables):
        steps = model.get_steps(t)
        if steps > 2**24 and kind not in ("SGD", "SparseAdam"):
            raise Refused(f"table {t}: torch.optim.{kind} counts steps in float32, which {steps} are too many for")
        if steps or kind in ("SGD", "Adagrad"):  # others have no state before the first step
            state = dict(zip(RULES[table["rule"]][1], arrays[t][1:]))
            state["step"] = steps if kind in ("SGD", "SparseAdam") else torch.tensor(float(steps))
            optimizer.state[weights[t]] = state
    return kind, [w.detach() for w in weights], optimizer.state_dict()


# --- from PyTorch

def rule_of(kind, group):
    if kind == "SGD":
        return "momentum" if group.get("momentum") else "sgd"
    if kind in ("Adam", "AdamW"):
        return "amsgrad" if group.get("amsgrad") else "adam"
    rules = [rule for rule, (optimizer, _, _) in RULES.items() if optimizer == kind]
    if not rules:
        raise Refused(f"no rule is torch.optim.{kind}; known: {', '.join(sorted({x for x, _, _ in RULES.values()}))}, AdamW")
    return rules[0]


def from_torch(kind, weights, state_dict, path, rounding="nearest", seed=0):
    """Saves [weights] and the state_dict of an optimizer of that class to a file."""
    group_of = {p: g for g in state_dict["param_groups"] for p in g["params"]}
    if sorted(group_of) != list(range(len(weights))):
        raise Refused(f"the optimizer has {len(group_of)} parameters, but there are {len(weights)} tables of weights")
    for t, w in enumerate(weights):
        if w.dim() != 2 or w.dtype not in TYPES:
            raise Refused(f"table {t}: weights are {w.dtype} {list(w.shape)}, not [rows][dim] of {', '.join(map(str, TYPES))}")
    rules = [rule_of(kind, group_of[t]) for t in range(len(weights))]
    model, arrays = model_of([{"rows": w.shape[0], "dim": w.shape[1], "rule": rules[t], "weight_type": TYPES[w.dtype][1],
                               "rounding": constant[rounding.upper()]} for t, w in enumerate(weights)], rounding_seed=seed)
    for t, w in enumerate(weights):
        arrays[t][0].copy_(w)
        state, group, (_, states, names) = state_dict["state"].get(t, {}), group_of[t], RULES[rules[t]]
        for name, array in zip(states, arrays[t][1:]):
            found = state.get(name)
            if found is None and state.get("step", 0):
                raise Refused(f"table {t}: the optimizer's state has no {name}")
            if found is not None and found.shape != array.shape:
                raise Refused(f"table {t}: {name} is {list(found.shape)}, not {list(array.shape)}")
            if found is not None:
                array.copy_(found)
        if rules[t] == "momentum" and group["dampening"] and state.get("momentum_buffer") is None:
            raise Refused(f"table {t}: PyTorch does not dampen its first gradient, the rule does; take a step first")
        for ours, theirs in {**ALL_RULES, **names}.items():
            value = group.get(theirs, 0)
            model.set(ours, float(value[ours == "beta2"] if theirs == "betas" else value), t)
        if kind == "AdamW":
            model.set("decoupled_weight_decay", 1, t)
        model.set_steps(int(state.get("step", 0)), t)
    model.call("save", os.fsencode(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    out = commands.add_parser("to-torch")
    out.add_argument("model")
    out.add_argument("file")
    into = commands.add_parser("from-torch")
    into.add_argument("file")
    into.add_argument("model")
    into.add_argument("--optimizer", required=True, help="the class: SGD, Adagrad, Adam, AdamW or SparseAdam")
    into.add_argument("--rounding", default="nearest", choices=("nearest", "stochastic"))
    into.add_argument("--seed", type=int, default=0, help="of stochastic rounding")
    args = parser.parse_args()
    try:
        if args.command == "to-torch":
            kind, weights, optimizer = to_torch(args.model)
            torch.save({"model": {f"embeddings.{t}.weight": w for t, w in enumerate(weights)}, "optimizer": optimizer},
                       args.file)
            print(f"{args.file}: {len(weights)} tables for torch.optim.{kind}")
        else:
            there = torch.load(args.file)
            from_torch(args.optimizer, list(there["model"].values()), there["optimizer"], args.model, args.rounding,
                       args.seed)
            print(f"{args.model}: {len(there['model'])} tables of torch.optim.{args.optimizer}")
    except (Refused, embfuse.Error, OSError) as e:
        sys.exit(f"state_dict.py: {e}")


if __name__ == "__main__":
    main()
