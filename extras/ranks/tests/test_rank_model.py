#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The bytes that a transport counts are those of extras/ranks/rank_model.py, of every rank and stage; its closed forms
and its times by hand; plans of extras/ranks/plan.py beside all plans there are; and the program."""
import itertools
import json
import math
import os
import subprocess
import sys

import launched
import tap

try:
    import numpy as np
except ImportError:
    tap.skip_all("model of ranks", "numpy is missing: Debian's python3-numpy")
import plan
import rank_model as model

STAGE = dict(zip(model.STAGES, range(6)))


# --- bytes
def batch_of(x):
    """A batch as tests/bytes/count.c prints it."""
    tables = [model.Table(rows, dim, []) for rows, dim in x["tables"]]
    for f in x["features"]:
        offsets = np.cumsum([0, *map(len, f["bags"])])
        ids = np.array(list(itertools.chain.from_iterable(f["bags"])), int)
        tables[f["table"]].features.append(model.Feature(f["pooling"], offsets, ids))
    return model.Batch(x["bags"], tables, x["id_bytes"], x["element"])


def totals(pairs, rank, stage):
    """[sent, received, kept, messages] of a rank. Outputs travel from the shards to the bags."""
    out, back = pairs[rank, :, stage], pairs[:, rank, stage]
    if stage == model.OUTPUTS:
        out, back = back, out
    others = np.arange(len(pairs)) != rank
    return [out[others].sum(), back[others].sum(), out[rank], (out[others] > 0).sum()]


def test_the_transport_counts_what_the_formulas_say(_folder):
    lines = map(json.loads, tap.good({}, "extras/ranks/tests/bytes/count").splitlines())
    seen, batch = 0, None
    for x in lines:
        if "bags" in x:
            batch = batch_of(x)
            continue
        pairs = model.pairs(x["words"], batch, x["ranks"], x["nodes"], x["all_rows"])
        for rank, stage in itertools.product(range(x["ranks"]), model.FLOWS):
            want, have = totals(pairs, rank, stage), x["counted"][rank][stage]
            # A dense gradient goes out table by table, once as parts of a sum and once as a sum.
            if x["sharding"] == "data-dense" and stage == model.GRADIENTS:
                want, have = want[:3], have[:3]
            assert want == have, (x["sharding"], x["ranks"], rank, stage, want, have)
        seen += 1
    assert seen == 4 * 9 * 6, seen


def closed(kind, parts, ranks, x, all_rows):
    """[lengths, ids, outputs, gradients] that a rank sends on average: the table at the top of the model."""
    features, bags, length, dim, size, element = x
    by_rows = kind in model.BY_ROWS
    away = parts * (ranks - 1) / ranks * features * bags
    rows = 1 if not by_rows or all_rows or parts == 1 else 1 - (1 - 1 / parts) ** length
    moved = away * (dim / parts if kind == "column" else dim) * rows * element
    return [away * 4, away * (length / parts if by_rows else length) * size, 0 if kind == "data" else moved, moved]


def test_closed_forms_hold(_folder):
    features, bags, length, dim, rows = 8, 64, 5, 16, 4096
    draw = np.random.default_rng(32)
    feature = lambda: model.Feature("sum", np.arange(bags + 1) * length, draw.integers(0, rows, bags * length))
    batch = model.Batch(bags, [model.Table(rows, dim, [feature()]) for _ in range(features)])
    for kind, ranks, nodes, all_rows in itertools.product(model.KINDS, (1, 2, 4, 8), (1, 2), (False, True)):
        if ranks % nodes:
            continue
        on_node = ranks // nodes
        parts = model.parts_of(kind, ranks, on_node)
        words = [(kind, t % model.places_of(kind, ranks, on_node)) for t in range(features)]
        want = closed(kind, parts, ranks, (features, bags / ranks, length, dim, 8, 4), all_rows)
        expected = features * (ranks - 1) / ranks * ranks * model.expected_need(
            kind, batch, batch.tables[0], ranks, on_node, length, all_rows)[:, :4].sum(0) / ranks
        pairs = model.pairs(words, batch, ranks, nodes, all_rows)
        counted = (pairs.sum((0, 1)) - np.trace(pairs)) / ranks
        for stage in model.FLOWS:
            # What is drawn, not counted off, is only near.
            drawn = kind in model.BY_ROWS and stage != model.LENGTHS and not (all_rows and stage != model.IDS)
            assert math.isclose(expected[stage], want[stage], rel_tol=1e-9), (kind, ranks, stage, expected, want)
            near = 0.05 if drawn else 1e-9
            assert math.isclose(counted[stage], want[stage], rel_tol=near), (kind, ranks, stage, counted, want)


# --- time
def test_the_cost_by_hand(_folder):
    """Two ranks, one table on rank 0."""
    m = model.Machine(1, ((1, 100), (0, 1)), 1000, 10, 20, 1000, grouping=0.5)
    load = np.zeros((2, model.COLUMNS))
    load[0, [model.LOOKED, model.GATHERED, model.COPIED, model.UPDATED, model.ADDED, model.LOOKUPS, model.MEMORY]] = (
        30, 40, 70, 50, 60, 4, 800)
    load[0, [model.GRADIENTS, model.SHARDS, model.SENDERS]] = 100, 1, 1
    want = np.zeros((2, 6))
    want[:, [STAGE["lengths"], STAGE["ids"], STAGE["outputs"]]] = 1  # a message from or to each
    want[0, STAGE["outputs"]] += 2 * 70 / 1000
    want[:, STAGE["gradients"]] = 1 + 100 / 100 + 2 * 100 / 1000
    want[0, STAGE["gradients"]] += 2 * 300 / 1000  # its own
    want[0, STAGE["lookup"]] = 30 / 10 + 40 / 20
    want[0, STAGE["update"]] = 2 * 50 / 10 + 60 / 20 + 4 * 0.5
    assert np.allclose(model.stages(m, load), want, rtol=1e-12), (model.stages(m, load), want)
    # 800 of rows, 400 of gradients as received and in order, 100 of the largest message.
    c = model.cost(m, load)
    assert np.allclose((model.memory(load)[0], c.missing, c.seconds), (1300, 300, want[0].sum())), c


def test_lines_are_fitted(_folder):
    fitted = model.fit_link([(3, 10**k, 3 * 2e-6 + 10**k / 4e9) for k in range(1, 7)])
    assert np.allclose(fitted, (2e-6, 4e9)), fitted


# --- plans
def drawn(seed):
    """Three tables with one or two features."""
    draw = np.random.default_rng(seed)
    tables = []
    for _ in range(3):
        rows, length = int(draw.integers(2, 3000)), int(draw.integers(1, 13))
        tables.append(model.Table(rows, int(draw.integers(1, 65)), [
            model.Feature(draw.choice(["sum", "mean"]), np.arange(65) * length, draw.integers(0, rows, 64 * length))
            for _ in range(draw.integers(1, 3))], states=4))
    return model.Batch(64, tables)


def test_a_plan_is_the_best_there_is(_folder):
    found = refused = 0
    for n in range(20):
        batch, ranks = drawn(41 + n // 5), 2 + n // 5 % 2
        needs = [{kind: model.counted_need(kind, batch, t, ranks, ranks) for kind in model.KINDS if kind != "table-row"}
                 for t in batch.tables]
        size = sum(t.rows * t.dim * 8 for t in batch.tables)
        m = model.Machine(1, ((1e-5, 5e9), (5e-5, 1e9)), 1e10, 5e9, 2e10, size * 0.25 * (1 + n % 5), grouping=5e-9)
        best, chosen = math.inf, plan.Plan(m, ranks, needs)
        choices = [("table", r) for r in range(ranks)] + [(kind, 0) for kind in needs[0] if kind != "table"]
        for words in itertools.product(choices, repeat=3):
            for t, word in enumerate(words):
                chosen.move(t, word)
            c = chosen.cost()
            best = min(best, math.inf if c.missing > 1 else c.seconds)
        cost = plan.Plan(m, ranks, needs).search()
        if cost.missing > 1:
            assert best == math.inf, (n, cost, best)
            refused += 1
        else:
            assert cost.seconds <= 1.02 * best, (n, cost, best)
            found += 1
    assert refused > 1 and found > 5, (refused, found)


SPEC = "workload a; tables 3; rows 1000; dim 16; batch 64; length uniform 1 5; ids zipf; alpha 1.05; rule {rule}"


def planned(folder, *words, rule="adagrad", prefix="b"):
    if prefix == "b":
        tap.good({}, "embfuse", "gen", "--spec-text", SPEC.format(rule=rule), "--out", os.path.join(folder, "b"))
    command = [sys.executable, tap.tool("plan.py"), os.path.join(folder, prefix), f"--embfuse={tap.BUILD}/embfuse"]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False)


def test_the_program_prints_words_that_bench_takes(folder):
    done = planned(folder, "--ranks=2")
    assert done.returncode == 0 and done.stderr.count("\n") == 4 and "; instead " in done.stderr, done
    words = done.stdout.strip()
    assert len(words.split(",")) == 3 and "column" in done.stderr, done
    machine = tap.script(folder, "machine", launched.run(2, launched.program("extras/ranks/study/machine")).stdout)
    assert len(planned(folder, f"--machine={machine}").stdout.split(",")) == 3
    # The rule works on whole rows.
    assert "column" not in planned(folder, "--ranks=2", rule="rowwise_adagrad").stderr
    spec = tap.script(folder, "spec", SPEC.format(rule="adagrad").replace(";", "\n"))
    ran = launched.run(2, launched.program("extras/ranks/bench"), f"--sharding={words}", f"--spec={spec}",
                       "--threads=1", "--reps=1", "--ring=1", f"--out={folder}", "--modes=cold", "--filter=cpu_fused")
    assert ran.returncode == 0, ran


def test_bad_input_is_one_line(folder):
    for words, said in ((("--ranks=3", "--nodes=2"), "--ranks is a multiple of --nodes"),
                        (("--ranks=2", "--memory=1e-6"), "no sharding fits"),
                        (("--ranks=2", "--leave=" + " ".join(model.KINDS)), "leaves a table no kind of cut"),
                        (("--machine=/none",), "no line of extras/ranks/study/machine")):
        done = planned(folder, *words)
        assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr, done
    assert "no batch of embfuse gen" in planned(folder, "--ranks=2", prefix="x").stderr


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "model of ranks"))
