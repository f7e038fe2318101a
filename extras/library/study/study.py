#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a small DLRM on a click log whose labels depend on its ids, by rule, by lazy and dense Adam, and by type of
weights and rounding. Writes OUTDIR/training.md and training.png, and all numbers to training.json.

A run is one process with one thread, so that runs do not disturb each other.
"""
import concurrent.futures
import datetime
import json
import multiprocessing
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "..", "reports"), os.path.join(HERE, "..", "examples")]
import program
from program import Arguments, fact, say, write_whole
from style import COLOURS, markdown_table

FIELDS, ROWS, DIM, BATCH, POINTS = 8, 1000, 8, 1024, 4  # points of a curve in each epoch
BF16 = {"weight_type": "BF16"}
STOCHASTIC = {**BF16, "rounding": "STOCHASTIC"}
DENSE = {"kernel": "cpu_dense"}
# Name, arguments of dlrm.Embeddings.
CASES = {"sgd": {"rule": "sgd", "lr": 20},
         "adagrad": {"rule": "adagrad", "lr": 0.05},
         "rowwise_adagrad": {"rule": "rowwise_adagrad", "lr": 0.05},
         "adam": {"rule": "adam", "lr": 2e-3},
         "adam, dense": {"rule": "adam", "lr": 2e-3, **DENSE},
         "adam, small steps": {"rule": "adam", "lr": 2e-4},
         "adam, small steps, dense": {"rule": "adam", "lr": 2e-4, **DENSE},
         "adam, small steps, bf16 stochastic": {"rule": "adam", "lr": 2e-4, **STOCHASTIC},
         "adam, small steps, bf16 nearest": {"rule": "adam", "lr": 2e-4, **BF16},
         "adagrad, bf16 stochastic": {"rule": "adagrad", "lr": 0.05, **STOCHASTIC},
         "adagrad, bf16 nearest": {"rule": "adagrad", "lr": 0.05, **BF16}}
# Title, cases drawn together, and the differences that the second table shows: (case, of which).
PANELS = [("rules", ["sgd", "adagrad", "rowwise_adagrad", "adam"]),
          ("lazy and dense Adam", ["adam", "adam, dense", "adam, small steps", "adam, small steps, dense"]),
          ("fp32 and bf16, small steps", ["adam, small steps", "adam, small steps, bf16 stochastic",
                                          "adam, small steps, bf16 nearest"])]
AGAINST = [("adam, dense", "adam"), ("adam, small steps, dense", "adam, small steps"),
           ("adam, small steps, bf16 stochastic", "adam, small steps"),
           ("adam, small steps, bf16 nearest", "adam, small steps"),
           ("adagrad, bf16 stochastic", "adagrad"), ("adagrad, bf16 nearest", "adagrad")]
TEXT = """# Training on clicks that depend on ids

`make train-example` makes this page (extras/library/study/training.md is a copy of one run). The clicks are planted
([clicks.py](clicks.py)): {fields} fields of {rows:,} ids (Zipf, alpha 1.05), a
factorisation machine as the logit, and a log that is a hash of its position. So the best possible AUC is known, that
of the planted logits: {oracle}. The model is a small DLRM: embeddings of {dim} elements by libembfuse, the dots of
all pairs and a layer of 64 units in NumPy. Batches have {batch:,} samples; the training log has {samples:,} and is
seen {epochs} times; the test log has {test:,}. Every number is the mean of {seeds} seeds, which draw the planted
numbers, the log and the start; ± is half of the distance between the largest and the smallest.

![test AUC over training](training.png)

{results}

AUC takes average ranks for ties. The normalised entropy is the log loss over that of the mean click rate: 1 knows
nothing, and the planted logits have {entropy}.

## Against each other

The same seed on both sides, so the difference is of the variant alone:

{differences}

* *Lazy* is the step of this suite: a row without lookups keeps weights and moments. *Dense* is that of an optimizer
  of a dense tensor: every row decays its moments, and moves on by them. In the library that is the kernel `cpu_dense`.
* *Small steps* are a tenth of the rate. A step of Adam is about the rate or less. Half a unit of the last place of a
  bf16 weight is 0.00024 between 1/16 and 1/8, and more above: rounding to nearest then loses the step. Stochastic
  rounding keeps it on average.

{machine}, {date}; NumPy {numpy}.
"""


def run(name, seed, samples, test, epochs):
    """Trains one case. curve: (samples seen, AUC, log loss, normalised entropy) on the test log; oracle: AUC and
    normalised entropy of the planted logits."""
    import clicks
    import dlrm
    from libembfuse import constant
    log = clicks.ClickLog(FIELDS, ROWS, seed=seed)
    ids, labels, _ = log.samples(clicks.TRAIN, 0, samples)
    test_ids, test_labels, best = log.samples(clicks.TEST, 0, test)
    how = {k: constant[v] if k in ("weight_type", "rounding") else v for k, v in CASES[name].items()}
    model = dlrm.Model(dlrm.Embeddings(FIELDS, ROWS, DIM, seed=seed, threads=1, **how), seed=seed)
    curve, steps = [], samples // BATCH
    points = {steps * (p + 1) // POINTS for p in range(POINTS)}
    for epoch in range(epochs):
        for step in range(1, steps + 1):
            part = slice((step - 1) * BATCH, step * BATCH)
            model.train(ids[part], labels[part])
            if step in points:
                logits = model.logits(test_ids)
                curve.append(((epoch * steps + step) * BATCH, clicks.auc(test_labels, logits),
                              clicks.log_loss(test_labels, logits), clicks.normalised_entropy(test_labels, logits)))
    return {"case": name, "seed": seed, "curve": curve,
            "oracle": (clicks.auc(test_labels, best), clicks.normalised_entropy(test_labels, best))}


def run_all(seeds, samples, test, epochs, jobs):
    """{case: [a result for each seed]}"""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    found = {name: [] for name in CASES}
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        wanted = [(name, seed) for seed in seeds for name in CASES]
        runs = pool.map(run, *zip(*wanted), *([x] * len(wanted) for x in (samples, test, epochs)))
        for n, result in enumerate(runs, 1):
            found[result["case"]].append(result)
            say(f"{n} of {len(wanted)}: {result['case']}, seed {result['seed']}: AUC {result['curve'][-1][1]:.4f}")
    return found


# --- the page

def mean(values, digits=4):
    values = list(values)
    spread = f" ± {(max(values) - min(values)) / 2:.{digits}f}" if len(values) > 1 else ""
    return f"{round(statistics.mean(values), digits) + 0.0:.{digits}f}{spread}"  # no -0


def results_table(found):
    ends = {name: [r["curve"][-1] for r in results] for name, results in found.items()}
    share = lambda name: [r["curve"][-1][1] / r["oracle"][0] for r in found[name]]
    row = lambda name: [name, f"{CASES[name]['lr']:g}", *(mean(e[i] for e in ends[name]) for i in (2, 3, 1)),
                        mean(share(name))]
    return markdown_table(["rule", "rate", "log loss", "normalised entropy", "AUC", "AUC / oracle"], map(row, found))


def differences_table(found):
    def row(name, other):
        pairs = list(zip((r["curve"] for r in found[name]), (r["curve"] for r in found[other])))
        first = POINTS - 1  # the end of the first epoch
        return [name, other, *(mean(a[i][1] - b[i][1] for a, b in pairs) for i in (first, -1)),
                mean(a[-1][2] - b[-1][2] for a, b in pairs)]
    return markdown_table(["variant", "against", "AUC, one epoch", "AUC, end", "log loss, end"],
                          [row(*pair) for pair in AGAINST], left=(0, 1))


def draw(found, path):
    """A case keeps its colour in all panels. Variants that may lie on the curve of another one are dashed."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    drawn = list(dict.fromkeys(name for _, cases in PANELS for name in cases))
    colours = {name: COLOURS[i % 6] for i, name in enumerate(drawn)}  # the last three share those of the first three
    figure, panels = pyplot.subplots(1, len(PANELS), figsize=(4.2 * len(PANELS), 4.8))
    for panel, (title, cases) in zip(panels, PANELS):
        for name in cases:
            seen = [p[0] / 1e3 for p in found[name][0]["curve"]]
            shares = zip(*([p[1] / r["oracle"][0] for p in r["curve"]] for r in found[name]))
            line = "--o" if name.startswith("rowwise") or name.endswith(("dense", "stochastic")) else "-o"
            panel.plot(seen, list(map(statistics.mean, shares)), line, color=colours[name], linewidth=1.5, markersize=3.5,
                       label=name)
        panel.set(title=title, xlabel="samples seen, thousands", xlim=(0, None))
        panel.grid(alpha=0.3)
        panel.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    panels[0].set_ylabel("test AUC / AUC of the planted logits")
    figure.tight_layout()
    figure.savefig(path, dpi=130, bbox_inches="tight")


def write_page(found, args, outdir):
    import numpy
    oracles = [r["oracle"] for r in next(iter(found.values()))]
    page = TEXT.format(fields=FIELDS, rows=ROWS, dim=DIM, batch=BATCH, samples=args.samples, epochs=args.epochs,
                       test=args.test, seeds=args.seeds, oracle=mean(o[0] for o in oracles),
                       entropy=mean(o[1] for o in oracles), results="\n".join(results_table(found)),
                       differences="\n".join(differences_table(found)), date=datetime.date.today(),
                       machine=fact("/proc/cpuinfo", "model name") or "unknown CPU", numpy=numpy.__version__)
    draw(found, os.path.join(outdir, "training.png"))
    write_whole(os.path.join(outdir, "training.json"), json.dumps(found, indent=1) + "\n")
    write_whole(os.path.join(outdir, "training.md"), page)
    print("\n".join(results_table(found)))


def main():
    parser = Arguments(__doc__)
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--samples", type=int, default=400 * BATCH, help="of the training log")
    parser.add_argument("--test", type=int, default=100000, help="samples of the test log")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at once")
    args = parser.parse_args()
    if min(args.epochs, args.seeds, args.jobs, args.test, args.samples // BATCH // POINTS) < 1:
        parser.error(f"all numbers are at least 1, and --samples {POINTS * BATCH}")
    os.makedirs(args.outdir, exist_ok=True)
    write_page(run_all(range(1, args.seeds + 1), args.samples, args.test, args.epochs, args.jobs), args, args.outdir)


if __name__ == "__main__":
    program.run(main)
