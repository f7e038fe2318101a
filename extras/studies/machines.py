# SPDX-License-Identifier: MIT
"""Recorded machines side by side on the standard workloads: the time of the fastest kernel, the speed-up of
one kernel over another, and its share of the roof. Makes a table for a page, and a picture."""
import os
from collections import Counter, namedtuple

from export import figure
from identity import of_gpu
from plots import draw
from recorded import disturbed
from results import spread
from section import update
from style import markdown_table, nice_range, number, wrap

NAME = "machines"
HERE = os.path.dirname(os.path.abspath(__file__))
COLOURS = ("#332288", "#999933", "#dd6677", "#44aa99", "#661100", "#888888", "#aa4499")  # of no kernel
POINTS = (7, 5, 9, 13, 11, 15, 4)


# A workload on a machine: the fastest series, time of `below` / time of `kernel`, and the share of the roof that
# `kernel` reaches; each can be None. A GPU without a measured roof has the ceiling of random rows in its place.
Cell = namedtuple("Cell", "fastest speed roof")


def kernel_on(place, kernel):
    """The kernel with the same idea in a place: cuda_fused for cpu_fused on a device."""
    return kernel.replace("cpu_", "cuda_", 1) if place == "device" else kernel


def of_idea(group, kernel):
    """The series of a kernel, or of that with the same idea on the GPU that the group was measured on."""
    return group.of(kernel) or group.of(kernel_on("device", kernel))


def share_of(series):
    """The share of the roof, or of the ceiling of random rows on a GPU, which has no roof yet."""
    instead = series.median("share_rmw") if series.kernel.place == "device" else None
    return series.median("share_roof") or instead


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
            f"{100 * c.roof:.0f} %" if c.roof else "-")


def legend(name, result, at):
    """The line about a machine below the table; its folder is in `at`."""
    (some, every), c = disturbed(result), result.context
    warning = "".join(f"; **{line}**" for line in (result.caution(), result.cut_short()) if line)
    roof = "; its share is that of the ceiling of random rows" * of_gpu(c)
    return (f"- [{name}]({at}/{name}): {result.machine()}; {str(c.get('emb_date', '?'))[:10]}, "
            f"commit {str(c.get('emb_commit', '?'))[:12]}; {some} of {every} samples disturbed{roof}{warning}.")


def table(results, columns, kernel, below, at):
    """Markdown: a table for each of the three columns of a machine, and a line about each machine."""
    idea, other = (k.partition("_")[2] for k in (kernel, below))
    titles = (f"ns per lookup of the fastest kernel, which is *{idea}* where no other is named: median and half the "
              "quartile range.",
              f"Time of *{other}* over that of *{idea}*.", f"Share of the roof that *{idea}* reaches.")
    lines = []
    for i, title in enumerate(titles):
        lines += [title, "", *markdown_table(("workload", *columns), [
            (w, *(texts(own.get(w), kernel)[i] for own in columns.values())) for w in workloads(columns)]), ""]
    return [*lines, f"*{idea}* and *{other}* are `{kernel}` and `{below}`, on a GPU "
            f"`{kernel_on('device', kernel)}` and `{kernel_on('device', below)}`. Cold caches; time is the machine's, so compare ratios and shares.", "",
            *(legend(name, r, at) for name, r in results.items())]


def shared(columns):
    """The columns with those workloads that several machines have."""
    if len(columns) < 2:
        return columns
    count = Counter(w for own in columns.values() for w in own)
    return {name: {w: c for w, c in own.items() if count[w] > 1} for name, own in columns.items()}


def workloads(columns):
    return list(dict.fromkeys(w for own in columns.values() for w in own))


def picture(columns, kernel, below, stem, results):
    """Three panels; a row for each workload, a mark for each machine. results: {name: result} of the columns."""
    titles = [wrap(w, 26, "\\n") for w in workloads(columns)]
    blocks, nothing = [], (float("nan"),) * 3
    for i, (name, own) in enumerate(columns.items()):
        shift = 0.6 * ((i + 0.5) / len(columns) - 0.5)
        blocks.append([[name]] + [
            [y + shift, *(c.fastest.quartiles("ns_per_lookup") if c.fastest else nothing), c.speed,
             c.roof and 100 * c.roof] for y, w in enumerate(workloads(columns)) if (c := own.get(w))])
    rows = [row for b in blocks for row in b[1:]]
    top = lambda column, least: max([least, *(1.1 * row[column] for row in rows if row[column])])
    low, high = nice_range([v for row in rows for v in row[1:4]], 1.05)
    each = lambda looks: " ".join(str(looks[i % len(looks)]) for i in range(len(columns)))
    return figure(os.path.join(HERE, NAME), stem, {
        "heading": "The standard workloads on every recorded machine, cold caches", "machine": "",
        "caution": "; ".join(f"{name}: {r.cut_short()}" for name, r in results.items() if r.cut_short()),
        "count": len(columns), "groups": len(titles), "shades": each(COLOURS), "points": each(POINTS),
        "label_width": max(len(part) for t in titles for part in t.split("\\n")),
        "kernel": kernel.partition("_")[2], "below": below.partition("_")[2], "low": low, "high": high,
        "most_speed": top(4, 2.0), "most_roof": top(5, 100.0),
        "height": 140 + 26 * len(columns) + max(44, 22 * len(columns)) * len(titles)},
        blocks, [[[float(y), title] for y, title in enumerate(titles)]])


def publish(recorded, page, kernel, below):
    """Writes the table into the page's section, and the picture beside the folders of the machines."""
    results = {r.name: r.results["standard"] for r in recorded if "standard" in r.results}
    if not results:
        update(page, NAME, "No machine is recorded; `make record NAME=...` does it.")
        return
    columns = shared({name: cells(r, kernel, below) for name, r in results.items()})
    outdir = os.path.dirname(os.path.abspath(recorded[0].folder))
    for name in draw(picture(columns, kernel, below, os.path.join(outdir, NAME), results), outdir):
        print(name)
    at = os.path.relpath(outdir, os.path.dirname(os.path.abspath(page)))
    update(page, NAME, "\n".join([f"![Every recorded machine]({at}/{NAME}.svg)", "",
                                  *table(results, columns, kernel, below, at)]))
