#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/train: a tiny DLRM reaches a share of the planted AUC with every rule of the study, and misses it with
defects in the step; the click log and its metrics are what they say; a tiny run of the study writes its page."""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import tap

try:
    import numpy as np
except ImportError as e:
    tap.skip_all("train example", e)
import clicks
import dlrm
import embfuse
import study

# Of the AUC of the planted logits. Over four seeds the rules reached .933 to .955, a step without half of its rows
# .84 to .875, a step of the next id .67 to .74, and no step at all .66 to .75.
BOUND = 0.91
FIELDS, ROWS, BATCH, SAMPLES = 6, 100, 512, 60 * 512


def share(rule, seed=1, before_step=None, **how):
    log = clicks.ClickLog(FIELDS, ROWS, seed=seed)
    ids, labels, _ = log.samples(clicks.TRAIN, 0, SAMPLES)
    test_ids, test_labels, best = log.samples(clicks.TEST, 0, 20000)
    model = dlrm.Model(dlrm.Embeddings(FIELDS, ROWS, 8, rule, seed, threads=1, **how), units=32, seed=seed)
    for first in [*range(0, SAMPLES, BATCH)] * 3:
        model.train(ids[first:first + BATCH], labels[first:first + BATCH], before_step)
    return clicks.auc(test_labels, model.logits(test_ids)) / clicks.auc(test_labels, best)


# --- training

def test_every_rule_learns(_):
    for seed, rule in enumerate(("sgd", "adagrad", "rowwise_adagrad", "adam"), 1):
        reached = share(rule, seed, lr=study.CASES[rule]["lr"])
        assert BOUND < reached < 1, (rule, reached)


def test_ids_shifted_by_one_are_noticed(_):
    reached = share("adagrad", lr=0.05, before_step=lambda ids, grad: ((ids + 1) % ROWS, grad))
    assert reached < BOUND, reached


def test_gradients_dropped_for_half_of_the_rows_are_noticed(_):
    reached = share("adagrad", lr=0.05, before_step=lambda ids, grad: (ids, grad * (ids % 2 == 0)[:, :, None]))
    assert reached < BOUND, reached


def test_gradients_are_those_of_finite_differences(_):
    """The gradient of the mean log loss by every element of the embeddings of a batch."""
    random = np.random.default_rng(1)
    model = dlrm.Model(dlrm.Embeddings(3, 5, 4, "sgd", 1, threads=1, lr=0.0), units=16)
    model.dense = [w.astype(np.float64) for w in model.dense]
    ids, labels = random.integers(0, 5, (6, 3)), random.random(6) < 0.5
    found = []
    e = model.embeddings.forward(model.embeddings.batch(ids)).astype(np.float64)
    loss = lambda e: clicks.log_loss(labels, model._forward(e)[2])
    want = np.empty_like(e)
    for at in np.ndindex(e.shape):
        step = np.zeros_like(e)
        step[at] = 1e-5
        want[at] = (loss(e + step) - loss(e - step)) / 2e-5
    model.train(ids, labels, lambda ids, grad: (found.append(grad), (ids, grad))[1])
    assert np.abs(want).max() > 0.01 and np.abs(found[0] - want).max() < 1e-6, np.abs(found[0] - want).max()


def one_table(kernel, seed=0):
    embeddings = dlrm.Embeddings(1, 40, 4, "adam", seed, threads=1, lr=0.01, kernel=kernel)
    return embeddings, embeddings.model._arrays[0, 0]


def test_dense_adam_is_that_of_a_dense_tensor(_):
    """All rows take a step, of NumPy's Adam; the lazy one leaves rows alone."""
    random = np.random.default_rng(2)
    (dense, weight), (lazy, lazy_weight) = one_table("cpu_dense"), one_table("auto")
    want = weight.copy()
    adam = dlrm.Adam([want], lr=0.01)
    for _ in range(20):
        ids, grad = random.integers(0, 40, (5, 1)), random.standard_normal((5, 1, 4)).astype(np.float32)
        whole = np.zeros_like(want)
        np.add.at(whole, ids[:, 0], grad[:, 0])
        adam.step([whole])
        for each in (dense, lazy):
            each.step(each.batch(ids), grad)
    assert np.allclose(weight, want, atol=1e-5) and not np.allclose(lazy_weight, want, atol=1e-3)


def test_small_steps_need_stochastic_rounding(_):
    """Steps of 1/64 of a unit of the last place: to nearest the weights stay, otherwise they move as those of fp32."""
    constant, moved = embfuse.constant, {}
    for name, how in (("fp32", {}), ("nearest", {"weight_type": constant.BF16}),
                      ("stochastic", {"weight_type": constant.BF16, "rounding": constant.STOCHASTIC})):
        embeddings = dlrm.Embeddings(1, 2000, 8, "sgd", 3, threads=1, lr=2.0**-13, **how)
        weight = embeddings.model._arrays[0, 0]
        weight[:] = 1 if name == "fp32" else dlrm.bfloat16(np.ones(1, np.float32))
        ids = np.arange(2000)[:, None]
        for _ in range(64):
            embeddings.step(embeddings.batch(ids), np.full((2000, 1, 8), -1, np.float32))
        moved[name] = (weight if name == "fp32" else (weight.astype(np.uint32) << 16).view(np.float32)).mean() - 1
    assert moved["nearest"] == 0 and abs(moved["fp32"] - 2.0**-7) < 1e-7, moved
    assert abs(moved["stochastic"] / moved["fp32"] - 1) < 0.05, moved


# --- the click log

def test_a_sample_depends_on_nothing_but_its_number(_):
    log, other = clicks.ClickLog(4, 50, seed=7), clicks.ClickLog(4, 50, seed=8)
    ids, labels, z = log.samples(clicks.TRAIN, 0, 1000)
    for a, b in zip(log.samples(clicks.TRAIN, 900, 300), (ids, labels, z)):
        assert np.array_equal(a[:100], b[900:])
    assert not np.array_equal(log.samples(clicks.TEST, 0, 1000)[0], ids)
    assert not np.array_equal(other.samples(clicks.TRAIN, 0, 1000)[0], ids)
    test_ids, _, test_z = log.samples(clicks.TEST, 0, 4000)
    planted = dict(zip(map(tuple, ids.tolist()), z))
    shared = [(planted[k], v) for k, v in zip(map(tuple, test_ids.tolist()), test_z) if k in planted]
    assert shared and all(a == b for a, b in shared), "the test log has other planted numbers"


def test_labels_are_drawn_from_the_planted_logits(_):
    log = clicks.ClickLog(seed=3)
    ids, labels, z = log.samples(clicks.TRAIN, 0, 200000)
    p = 1 / (1 + np.exp(-z))
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1)):
        here = (p >= low) & (p < high)
        error = 5 * np.sqrt(0.25 / here.sum())
        assert here.sum() > 1000 and abs(labels[here].mean() - p[here].mean()) < error
    assert abs(z.mean() - clicks.INTERCEPT) < 0.05 and abs(z.var() - 1.2**2 - 0.6**2) < 0.1, (z.mean(), z.var())
    law = np.arange(1, 1001.0)**-1.05
    assert abs((ids == 0).mean() - law[0] / law.sum()) < 0.002


def test_auc_counts_ties_as_half(_):
    random = np.random.default_rng(4)
    for levels in (2, 7, 1000):
        labels, logits = random.random(300) < 0.3, random.integers(0, levels, 300) / 8
        a, b = logits[labels][:, None], logits[~labels]
        assert abs(clicks.auc(labels, logits) - ((a > b) + (a == b) / 2).mean()) < 1e-12
    assert clicks.auc(labels, np.zeros(300)) == 0.5
    rate = labels.mean()
    assert abs(clicks.normalised_entropy(labels, np.full(300, np.log(rate / (1 - rate)))) - 1) < 1e-12


def test_bfloat16_rounds_to_the_nearest(_):
    x = np.array([1, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8 - 2.0**-20, 0], np.float32)
    got = (dlrm.bfloat16(x).astype(np.uint32) << 16).view(np.float32)
    assert got.tolist() == [1, 1, 1 + 2.0**-6, -1 - 2.0**-7, 0], got


# --- the study

def test_a_tiny_study_writes_its_page(folder):
    study_of = lambda *args: subprocess.run([sys.executable, tap.tool("study.py"), folder, *args], capture_output=True,
                                            text=True, check=False)
    done = study_of("--samples", "4096", "--test", "2000", "--epochs", "1", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "training.md"), encoding="utf-8") as file:
        page = file.read()
    for name in study.CASES:
        assert page.count(f"| {name} |") >= 1, name
    assert os.path.getsize(os.path.join(folder, "training.png")) > 10000
    bad = study_of("--samples", "100")
    assert bad.returncode == 1 and "--samples" in bad.stderr


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "train example"))
