#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Chooses how each table is cut and where it lies, by memory and modelled time, and prints the words for --sharding.

    build/embfuse gen datasets/standard.spec --workload NAME --out b
    extras/ranks/launch.py -np 4 build/extras/ranks/study/machine >machine.json
    extras/ranks/plan.py b --machine=machine.json

The expectation comes from the batch b, so hot rows at the beginning of a table count against blocks of rows. Without a
machine it plans for nodes of H100 (extras/ranks/rank_model.py has the numbers and the model), --ranks=16 --nodes=2.
Reasons go to stderr.

The search is HugeCTR's loop (samples/dlrm/sharding/planner.py), with every kind of cut as a split: the most expensive
tables first, each is taken out and put back in the best way and place, until nothing gains. It starts from an empty
plan and from every kind of cut for all tables, so the plan is never worse than these by its own cost.
"""
import json
import os
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "reports")]
import program
import rank_model as model
from program import Arguments, ResultError

ROUNDS = 20
SAME = 1e-9  # sums of floats in another order are no difference
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


# --- the search
def better(a, b):
    """What fits is better, then what takes less time, then what leaves more idle."""
    if b is None or abs(a.missing - b.missing) > SAME * max(a.missing, b.missing):
        return b is None or a.missing < b.missing
    if abs(a.seconds - b.seconds) > SAME * b.seconds:
        return a.seconds < b.seconds
    return a.mean < (1 - SAME) * b.mean


class Plan:
    """needs: of each table, {kind: what its parts need}. words: (kind, place) of each table, or None."""

    def __init__(self, machine, ranks, needs):
        self.machine, self.ranks, self.needs = machine, ranks, needs
        self.load, self.words = np.zeros((ranks, model.COLUMNS)), [None] * len(needs)

    def cost(self):
        return model.cost(self.machine, self.load)

    def move(self, t, word):
        """Takes table t out, and puts it there; None: nowhere."""
        for sign, at in ((-1, self.words[t]), (1, word)):
            if at:
                model.put(self.load, sign * self.needs[t][at[0]], at[1])
        self.words[t] = word

    def places(self, kind):
        return range(model.places_of(kind, self.ranks, self.ranks // self.machine.nodes))

    def best(self, t, kinds):
        """(cost, word) of the best place of table t in these kinds of cut; it stays where it is."""
        before, found = self.words[t], (None, None)
        for word in ((kind, place) for kind in kinds for place in self.places(kind)):
            self.move(t, word)
            cost = self.cost()
            if better(cost, found[0]):
                found = cost, word
        self.move(t, before)
        return found

    def improve(self, t):
        cost, word = self.best(t, self.needs[t])
        gains = not self.words[t] or better(cost, self.cost())
        if gains:
            self.move(t, word)
        return gains

    def start(self, kind):
        """Every table in this kind of cut, where it can be, places in turn; all others nowhere."""
        for t, needed in enumerate(self.needs):
            self.move(t, (kind, t % len(self.places(kind))) if kind in needed else None)

    def search(self):
        """Finds the best plan, and returns its cost."""
        alone = [self.best(t, needed)[0].seconds for t, needed in enumerate(self.needs)]
        found, words = None, None
        for kind in ("", *model.KINDS):
            self.start(kind)
            for _ in range(ROUNDS):
                if not any([self.improve(t) for t in sorted(range(len(alone)), key=lambda t: -alone[t])]):
                    break
            if better(self.cost(), found):
                found, words = self.cost(), list(self.words)
        for t, word in enumerate(words):
            self.move(t, word)
        return found


# --- what is read
def read_batch(prefix, rules):
    """A batch of `embfuse gen` as the model wants it. rules: {name: its entry in `embfuse list --json`}."""
    try:
        ids, offsets = (np.load(f"{prefix}.{what}.npy") for what in ("ids", "offsets"))
        with open(prefix + ".batch", encoding="utf-8") as file:
            lines = [line.split() for line in file if not line.startswith("#")]
        head, tables = {words[0]: words[1] for words in lines}, []
        bags = int(head["bags"])
        for first, *words in lines:
            said = dict(zip(words[::2], words[1::2]))
            if first == "table":
                rule, size = rules[said["rule"]], BYTES[said["weight_type"]]
                momenta = len(rule["momenta"])
                states = 4 * (rule["elem_states"] - momenta) + BYTES[said["momentum_type"]] * momenta
                tables.append(model.Table(
                    int(said["rows"]), int(said["dim"]), [], size, states, 4 * rule["row_states"],
                    bool(rule["row_states"] or rule["reduces"] or (said["rounding"] == "stochastic" and size < 4))))
            elif first == "feature":
                at, number = offsets[:bags + 1], int(said["table"])
                tables[number].features.append(model.Feature(said["pooling"], at - at[0], ids[at[0]:at[-1]]))
                offsets = offsets[bags:]
    except (OSError, ValueError, IndexError, KeyError) as e:
        raise ResultError(f"{prefix}: no batch of embfuse gen ({e})") from None
    return model.Batch(bags, tables, ids.itemsize + 4 * int(head["weighted"]), BYTES[head["grad_type"]])


def read_rules(embfuse):
    try:
        said = subprocess.run([embfuse, "list", "--json"], capture_output=True, text=True, check=True).stdout
        return {rule["name"]: rule for rule in json.loads(said)["rules"]}
    except (OSError, subprocess.CalledProcessError, ValueError) as e:
        raise ResultError(f"{embfuse} list --json: {e}; 'make' builds it") from None


def read_machine(path):
    """(number of ranks, machine)"""
    try:
        with open(path, encoding="utf-8") as file:
            measured = json.load(file)
        return measured["ranks"], model.machine_of(measured)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ResultError(f"{path}: no line of extras/ranks/study/machine ({e})") from None


# --- what is said
def word_text(word):
    return f"{word[0]}@{word[1]}" if word[0] in ("table", "table-row") else word[0]


def explain(plan, cost, batch):
    """One line for each table: the choice, and what the best of every other kind would cost."""
    for t, (table, word) in enumerate(zip(batch.tables, plan.words)):
        others = []
        for kind in model.KINDS:
            if kind in plan.needs[t] and kind != word[0]:
                other = plan.best(t, [kind])[0]
                others.append(f"{kind} needs {other.missing / 1e6:.1f} MB more" if other.missing > cost.missing else
                              f"{kind} {100 * (other.seconds / cost.seconds - 1):+.1f} %")
        yield f"table {t}, {table.rows} rows x {table.dim}: {word_text(word)}; instead " + ", ".join(others)
    stages = ", ".join(f"{name} {1e3 * s:.3g} ms" for name, s in cost.stages.items())
    yield f"predicted: {1e3 * cost.seconds:.3g} ms for an iteration: {stages}"


def main():
    parser = Arguments(__doc__)
    parser.add_argument("batch", metavar="PREFIX", help="--out of embfuse gen")
    parser.add_argument("--machine", metavar="FILE", help="what extras/ranks/study/machine has printed")
    parser.add_argument("--ranks", type=int, default=8, help="without a machine: of H100 (8)")
    parser.add_argument("--nodes", type=int, default=1, help="without a machine (1)")
    parser.add_argument("--memory", type=float, metavar="GiB", help="of each rank (as the machine has)")
    parser.add_argument("--leave", default="", metavar="LIST", help="kinds of cut not to use")
    parser.add_argument("--embfuse", default=os.path.join(HERE, "..", "..", "build", "embfuse"), metavar="PROGRAM")
    args = parser.parse_args()
    if args.nodes < 1 or args.ranks < 1 or args.ranks % args.nodes:
        parser.error("--ranks is a multiple of --nodes, and both are at least 1")
    ranks, machine = args.ranks, model.Machine(args.nodes, **model.H100)
    if args.machine:
        ranks, machine = read_machine(args.machine)
    if args.memory is not None:
        machine.memory = args.memory * 2**30
    batch = read_batch(args.batch, read_rules(args.embfuse))
    unwanted = {*args.leave.split(), *(("table-row",) if machine.nodes == 1 else ())}
    needs = [{kind: model.counted_need(kind, batch, table, ranks, ranks // machine.nodes)
              for kind in model.KINDS if kind not in unwanted and not (kind == "column" and table.whole_rows)}
             for table in batch.tables]
    if not all(needs):
        raise ResultError("--leave leaves a table no kind of cut")
    plan = Plan(machine, ranks, needs)
    cost = plan.search()
    if cost.missing:
        raise ResultError(f"no sharding fits into {machine.memory:.0f} bytes of each rank: the best one found needs "
                          f"{cost.missing:.0f} bytes more on all ranks; take more ranks, or smaller tables")
    print("\n".join(explain(plan, cost, batch)), file=sys.stderr)
    print(",".join(map(word_text, plan.words)))


if __name__ == "__main__":
    program.run(main)
