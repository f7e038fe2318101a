#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far narrow types, steps per lookup and dense steps drift from the step of the suite, over many steps.

Reads the lines that extras/studies/drift/drift.c prints, and writes OUTDIR/drift.md and drift.png. The numbers depend
on no machine.
"""
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from program import Arguments, read_lines, write_whole
from style import COLOURS, markdown_table

DRAWN = ("sgd", "rowwise_adagrad", "adagrad", "adam")
TYPES = {"bf16/fp32": "weights bf16", "fp16/fp32": "weights fp16", "fp8/fp32": "weights fp8",
         "fp32/bf16": "momenta bf16"}
ROUNDINGS = {"nearest": "--", "stochastic": "-"}
NARROW = [(f"{t} {r}", f"{name}, {r}") for t, name in TYPES.items() for r in ROUNDINGS]
TEXT = """# Drift over many steps

`make drift` makes this page. Every variant takes the same steps as the suite's own: one table of 2,000 rows of 16
elements, batches of 128 bags of 1 to 9 ids (Zipf, alpha 1.05), eight batches in turn, gradients uniform in [-1, 1),
presets of the rules. The drift is the RMS distance of the weights from the weights of the suite's step in fp32, divided
by the RMS distance that those have moved from the start: 0.01 is one percent of the way, and at 1 the variant is as
far off as weights that never moved. The gradients do not depend on the weights, so no feedback corrects an error.
`rule_apply()`, whose bits every kernel gives, takes all steps. The numbers depend on no machine.

## Types

![drift of narrow types](drift.png)

Rounding to nearest loses every update below half a unit of the last place. Stochastic rounding keeps them on average
and adds noise: it wins where updates are small beside the weight, and loses where they are not.
Drift after {last} steps:

{types}

## Wrong steps

*One by one* takes a step for each lookup instead of one for the sum of a row's gradients. For a linear rule only the
rounding differs; for all others it is another function. *Dense* lets rows without lookups take a step with a gradient
of 0, as an optimizer of a dense tensor does, and its drift counts all rows. A dash stands for rules that a zero
gradient does not change, and for steps before the suite's step has moved a weight.

{ways}
"""


def read(path):
    """{rule: {variant: {steps: drift}}}"""
    drift = {}

    def take(x):
        drift.setdefault(x["rule"], {}).setdefault(x["variant"], {})[x["steps"]] = float(x["drift"])

    read_lines(path, "drift", take)
    return drift


def cell(series, steps):
    x = (series or {}).get(steps)
    return "-" if x is None or math.isnan(x) else f"{x:.2g}"


def types_table(drift, last):
    heads = ["rule", *(name for _, name in NARROW)]
    return markdown_table(heads, [[rule, *(cell(of.get(v), last) for v, _ in NARROW)]
                                  for rule, of in sorted(drift.items())])


def ways_table(drift, last):
    columns = [("one_by_one", n) for n in (1, 100, last)] + [("dense", n) for n in (1, 10, 100, last)]
    heads = ["rule", *(f"{'one by one' if v == 'one_by_one' else v}, {n:,} step{'s' * (n > 1)}" for v, n in columns)]
    return markdown_table(heads, [[rule, *(cell(of.get(v), n) for v, n in columns)]
                                  for rule, of in sorted(drift.items())])


def draw(drift, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    rules = [r for r in DRAWN if r in drift]
    figure, panels = pyplot.subplots(1, len(rules), figsize=(3.1 * len(rules), 3.6), sharey=True, squeeze=False)
    for panel, rule in zip(panels[0], rules):
        for i, key in enumerate(TYPES):
            for rounding, line in ROUNDINGS.items():
                series = drift[rule].get(f"{key} {rounding}")
                if series:
                    points = sorted((n, x) for n, x in series.items() if x > 0)
                    panel.plot(*zip(*points), line, color=COLOURS[i], linewidth=1.4)
        panel.set(title=rule, xscale="log", yscale="log", xlabel="steps")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("drift from fp32, of the way moved")
    entries = [Line2D([], [], color=COLOURS[i], label=name) for i, name in enumerate(TYPES.values())]
    entries += [Line2D([], [], color="#555555", linestyle=line, label=name) for name, line in ROUNDINGS.items()]
    figure.legend(handles=entries, loc="lower center", ncol=len(entries), frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=130)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("lines", metavar="LINES", help="what extras/studies/drift/drift prints")
    parser.add_argument("outdir", metavar="OUTDIR")
    args = parser.parse_args()
    drift = read(args.lines)
    last = max(n for of in drift.values() for series in of.values() for n in series)
    os.makedirs(args.outdir, exist_ok=True)
    draw(drift, os.path.join(args.outdir, "drift.png"))
    page = TEXT.format(last=f"{last:,}", types="\n".join(types_table(drift, last)),
                       ways="\n".join(ways_table(drift, last)))
    write_whole(os.path.join(args.outdir, "drift.md"), page)


if __name__ == "__main__":
    program.run(main)
