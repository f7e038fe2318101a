#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws what make counts counted: bytes that requests move, per device kernel, against the compulsory bytes of the
workload. usage: picture.py COUNTS.json PICTURE.png. Needs matplotlib."""
import json
import os
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "reports"))
from style import CAUTION_COLOUR, COLOURS, number  # noqa: E402

MEMORY = ("load", "store", "atomic", "reduction")
SECTOR = 32


def steps(records):
    """{(workload, rule): (compulsory MB, {kernel: (MB of all requests, MB of distinct sectors)})} of steps."""
    result = {}
    for r in records:
        if r["operation"] != "step":
            continue
        _, kernels = result.setdefault((r["workload"], r["rule"]), (r["compulsory"] / 1e6, {}))
        moved, distinct = kernels.get(r["kernel"], (0, 0))
        moved += sum(r[kind]["sectors"] for kind in MEMORY) * SECTOR / 1e6
        distinct += (r["compulsory_read"] + r["compulsory_written"]) * SECTOR / 1e6
        kernels[r["kernel"]] = (moved, distinct)
    return result


def panel(axes, name, compulsory, kernels):
    order = sorted(kernels, key=lambda k: kernels[k][0], reverse=True)
    for y, kernel in enumerate(order):
        moved, distinct = kernels[kernel]
        axes.barh(y, moved, height=0.62, color="#cccccc")
        axes.barh(y, distinct, height=0.62, color=COLOURS[0])
        axes.text(moved, y, f" {number(moved / compulsory, 2)} ×", va="center", fontsize=8)
    axes.axvline(compulsory, color=COLOURS[1], lw=1.5)
    axes.set_yticks(range(len(order)), order, fontsize=8)
    axes.set_title(name, fontsize=9, loc="left")
    axes.set_xlim(0, 1.22 * max(moved for moved, _ in kernels.values()))
    axes.tick_params(length=0, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.grid(axis="x", color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)


def draw(records, path):
    all_steps = steps(records)
    rows = (len(all_steps) + 1) // 2
    figure, grid = plt.subplots(rows, 2, figsize=(10, 0.9 + 2.1 * rows), squeeze=False)
    cells = [axes for row in grid for axes in row]
    for axes, ((workload, rule), (compulsory, kernels)) in zip(cells, all_steps.items()):
        panel(axes, workload if rule in workload else f"{workload}, {rule}", compulsory, kernels)
    for axes in cells[len(all_steps):]:
        axes.set_visible(False)
    for axes in cells[max(0, len(all_steps) - 2):len(all_steps)]:
        axes.set_xlabel("MB of a step", fontsize=8)
    figure.suptitle("counted, not timed", color=CAUTION_COLOUR, fontsize=11, fontweight="bold", y=0.995)
    handles = [plt.Rectangle((0, 0), 1, 1, color="#cccccc"), plt.Rectangle((0, 0), 1, 1, color=COLOURS[0]),
               plt.Line2D([], [], color=COLOURS[1])]
    figure.legend(handles, ["sectors of all requests, × compulsory", "distinct sectors of each launch",
                            "compulsory bytes of the step"], loc="lower center", ncol=3, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.3 / (0.9 + 2.1 * rows), 1, 0.985))
    figure.savefig(path, dpi=130)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: picture.py COUNTS.json PICTURE.png")
    with open(sys.argv[1], encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    if not steps(records):
        sys.exit(f"picture.py: {sys.argv[1]} has no steps; count with KERNEL= of a step, or without it")
    draw(records, sys.argv[2])
    print(os.path.relpath(sys.argv[2]))


if __name__ == "__main__":
    main()
