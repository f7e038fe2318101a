# SPDX-License-Identifier: MIT
"""Recorded machines side by side on the standard workloads: the time of the fastest kernel, the speed-up of
one kernel over another, and its share of the roof, or on a GPU of the random-row ceiling. Makes a table for a page,
and a picture."""
import os
from collections import Counter, namedtuple
from textwrap import fill

from identity import of_gpu
from paper import GREY, PAGE, compose, log_axis, marks, panels, range_of, save, set_up, striped
from recorded import disturbed, older
from results import spread
from section import update
from style import MARKERS, markdown_table, number, wrap

NAME = "machines"
COLOURS = ("#332288", "#999933", "#dd6677", "#44aa99", "#661100", "#888888", "#aa4499")  # of no kernel


# A workload on a machine: the fastest series, time of `below` / time of `kernel`, and the share of its limit that
# `kernel` reaches; each can be None.
Cell = namedtuple("Cell", "fastest speed share")
CEILING = "random-row ceiling"  # the limit of a GPU, which has no roof yet


def kernel_on(place, kernel):
    """The kernel with the same idea in a place: cuda_fused for cpu_fused on a device."""
    return kernel.replace("cpu_", "cuda_", 1) if place == "device" else kernel


def of_idea(group, kernel):
    """The series of a kernel, or of that with the same idea on the GPU that the group was measured on."""
    return group.of(kernel) or group.of(kernel_on("device", kernel))


def share_of(series):
    """The share of the roof, or on a GPU of the random-row ceiling."""
    return series.median("share_rmw" if series.kernel.place == "device" else "share_roof")


def limit_of(results):
    """What the shares of these results are of."""
    gpus = {of_gpu(r.context) for r in results}
    return CEILING if gpus == {True} else f"roof (GPU: {CEILING})" if True in gpus else "roof"


def cells(result, kernel, below):
    """{workload: Cell}; of several rules, the first one."""
    found = {}
    for g in result.groups("cold"):
        own, other = of_idea(g, kernel), of_idea(g, below)
        found.setdefault(g.workload, Cell(g.best(), other.ns / own.ns if own and other else None,
                                          own and share_of(own)))
    return found


def texts(c, kernel):
    """The three columns of a machine; they name the fastest kernel unless it is `kernel`."""
    if c is None or c.fastest is None:
        return ("-", "-", "-")
    q = c.fastest.quartiles("ns_per_lookup")
    first = c.fastest.kernel
    name = "" if first.name == kernel_on(first.place, kernel) else f" {first.title}"
    return (f"{number(q[1])} ±{100 * spread(q):.0f} %{name}", f"{c.speed:.2f}x" if c.speed else "-",
            f"{100 * c.share:.0f} %" if c.share else "-")


def legend(name, result, at):
    """The line about a machine below the table; its folder is in `at`."""
    (some, every), c = disturbed(result), result.context
    warnings = older({"standard": result}), result.caution(), result.cut_short()
    warning = "".join(f"; **{line}**" for line in warnings if line)
    return (f"- [{name}]({at}/{name}): {result.machine()}; {str(c.get('emb_date', '?'))[:10]}, "
            f"commit {str(c.get('emb_commit', '?'))[:12]}; {some} of {every} samples disturbed{warning}.")


def table(results, columns, kernel, below, at):
    """Markdown: a table for each of the three columns of a machine, and a line about each machine."""
    idea, other = (k.partition("_")[2] for k in (kernel, below))
    titles = (f"ns per lookup of the fastest kernel, which is *{idea}* where no other is named: median and half the "
              "quartile range.",
              f"Time of *{other}* over that of *{idea}*.",
              f"Share of the {limit_of(results[name] for name in columns)} that *{idea}* reaches.")
    lines = []
    for i, title in enumerate(titles):
        heads = [name + f", {CEILING}" * (i == 2 and of_gpu(results[name].context)) for name in columns]
        lines += [title, "", *markdown_table(("workload", *heads), [
            (w, *(texts(own.get(w), kernel)[i] for own in columns.values())) for w in workloads(columns)]), ""]
    return [*lines, f"*{idea}* and *{other}* are `{kernel}` and `{below}`, on a GPU "
            f"`{kernel_on('device', kernel)}` and `{kernel_on('device', below)}`. Cold caches; time is the machine's, so "
            "compare ratios and shares.", "",
            *(legend(name, r, at) for name, r in results.items())]


def shared(columns):
    """The columns with those workloads that several machines have."""
    if len(columns) < 2:
        return columns
    count = Counter(w for own in columns.values() for w in own)
    return {name: {w: c for w, c in own.items() if count[w] > 1} for name, own in columns.items()}


def workloads(columns):
    return list(dict.fromkeys(w for own in columns.values() for w in own))


def picture(columns, kernel, below, results):
    """Three panels; a row for each workload, a mark for each machine. results: {name: result} of the columns."""
    idea, other = (k.partition("_")[2] for k in (kernel, below))
    limit = limit_of(results[name] for name in columns)
    panels_of = {"ns per lookup of the fastest kernel": lambda c: c.fastest and c.fastest.quartiles("ns_per_lookup"),
                 f"time of {other} over {idea}": lambda c: c.speed and (c.speed,) * 3,
                 f"{idea}: % of the {limit}": lambda c: c.share and (100 * c.share,) * 3}
    rows, drawn = workloads(columns), {title: [1.0] for title in panels_of}
    figure, axes = panels(PAGE, 3, (1, 3), 0.45 + max(0.25, 0.09 * len(columns)) * len(rows), sharey=True)
    for ax, (title, quartiles_of) in zip(axes, panels_of.items()):
        striped(ax, [wrap(w, 26) for w in rows])
        for i, (name, own) in enumerate(columns.items()):
            shift = 0.7 * ((i + 0.5) / len(columns) - 0.5)
            points = [(y + shift, q) for y, w in enumerate(rows) if w in own and (q := quartiles_of(own[w]))]
            drawn[title] += marks(ax, points, True, ls="none", color=COLOURS[i % len(COLOURS)], label=name,
                                  marker=MARKERS[i % len(MARKERS)][1])
        ax.set(xlabel=fill(title, 36, break_on_hyphens=False), xlim=(0, 1.1 * max(drawn[title])))
        ax.locator_params(axis="x", nbins=4)
    log_axis(axes[0].xaxis, *range_of(drawn["ns per lookup of the fastest kernel"][1:]), room=4)
    axes[1].axvline(1, color=GREY, lw=0.9)
    return compose(figure, axes, "; ".join(f"{name}: {r.cut_short()}" for name, r in results.items() if r.cut_short()),
                   "The standard workloads on every recorded machine, cold caches")


def publish(recorded, page, kernel, below):
    """Writes the table into the page's section, and the picture beside the folders of the machines."""
    results = {r.name: r.results["standard"] for r in recorded if "standard" in r.results}
    if not results:
        update(page, NAME, "No machine is recorded; `make record NAME=...` does it.")
        return
    columns = shared({name: cells(r, kernel, below) for name, r in results.items()})
    outdir = os.path.dirname(os.path.abspath(recorded[0].folder))
    set_up()
    for name in save(picture(columns, kernel, below, results), os.path.join(outdir, NAME), ["svg"]):
        print(name)
    at = os.path.relpath(outdir, os.path.dirname(os.path.abspath(page)))
    update(page, NAME, "\n".join([f"![Every recorded machine]({at}/{NAME}.svg)", "",
                                  *table(results, columns, kernel, below, at)]))
