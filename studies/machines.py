# SPDX-License-Identifier: MIT
"""Recorded machines side by side on the standard workloads: the time of the fastest kernel, the speed-up of
one kernel over another, and its share of the roof. Makes a table for a page, and a picture."""
import os
from dataclasses import dataclass

from export import Figure, write_tsv
from plots import draw
from recorded import NOISY, disturbed, share
from results import load, spread
from section import update
from style import nice_range, number, wrap

NAME = "machines"
COLOURS = ("#332288", "#999933", "#882255", "#44aa99", "#661100", "#888888")  # of no kernel
POINTS = (7, 5, 9, 13, 11, 15)


@dataclass
class Cell:
    """A workload on a machine."""
    fastest: object  # series; or None
    speed: float     # time of `below` / time of `kernel`; or None
    roof: float      # the share of the roof that `kernel` reaches; or None


def cell(group, kernel, below):
    own, other = (next((s for s in group.measured() if s.kernel.name == name), None)
                  for name in (kernel, below))
    time = lambda s: s.median("ns_per_lookup")
    return Cell(group.best(), time(other) / time(own) if own and other else None,
                own and own.median("share_roof"))


def cells(result, kernel, below):
    """{workload: Cell}; of several rules, the first one."""
    found = {}
    for g in result.groups("cold"):
        found.setdefault(g.workload, cell(g, kernel, below))
    return found


def texts(c, kernel):
    """The three columns of a machine; they name the fastest kernel unless it is `kernel`."""
    if c is None or c.fastest is None:
        return ("-", "-", "-")
    q = c.fastest.quartiles("ns_per_lookup")
    name = "" if c.fastest.kernel.name == kernel else f" {c.fastest.kernel.title}"
    return (f"{number(q[1])} ±{100 * spread(q):.0f} %{name}", f"{c.speed:.2f}x" if c.speed else "-",
            f"{100 * c.roof:.0f} %" if c.roof else "-")


def legend(name, result, at):
    """The line about a machine below the table; its folder is in `at`."""
    (some, every), c = disturbed(result), result.context
    warning = "; **do not quote these figures**" * (share(result) > NOISY)
    return (f"- [{name}]({at}/{name}): {result.machine()}; {str(c.get('emb_date', '?'))[:10]}, "
            f"commit {str(c.get('emb_commit', '?'))[:12]}; {some} of {every} samples disturbed{warning}.")


def table(results, kernel, below, at):
    """Markdown; the workloads are those of all machines, in the order of the first."""
    columns = {name: cells(r, kernel, below) for name, r in results.items()}
    workloads = list(dict.fromkeys(w for own in columns.values() for w in own))
    bar = lambda row: "| " + " | ".join(row) + " |"
    heads = lambda name: (f"{name}: ns/lookup", f"over {below}", "of the roof")
    yield bar(("workload", *(h for name in columns for h in heads(name))))
    yield bar(["---"] + ["---:"] * (3 * len(columns)))
    for w in workloads:
        yield bar((w, *(t for own in columns.values() for t in texts(own.get(w), kernel))))
    yield ""
    yield (f"ns/lookup: the fastest kernel, {kernel} where no other is named, median and half the quartile "
           f"range. Over {below}: its time over that of {kernel}. Of the roof: what {kernel} reaches. Cold "
           "caches; time is the machine's, so compare ratios and shares.")
    yield ""
    yield from (legend(name, r, at) for name, r in results.items())


def figure(results, kernel, below, stem):
    """Three panels; a row for each workload, a mark for each machine."""
    columns = {name: cells(r, kernel, below) for name, r in results.items()}
    workloads = list(dict.fromkeys(w for own in columns.values() for w in own))
    titles = [wrap(w, 26, "\\n") for w in workloads]
    blocks, nothing = [], (float("nan"),) * 3
    for i, (name, own) in enumerate(columns.items()):
        shift = 0.6 * ((i + 0.5) / len(columns) - 0.5)
        blocks.append([[name]] + [
            [y + shift, *(c.fastest.quartiles("ns_per_lookup") if c.fastest else nothing), c.speed,
             c.roof and 100 * c.roof] for y, w in enumerate(workloads) if (c := own.get(w))])
    rows = [row for b in blocks for row in b[1:]]
    top = lambda column, least: max([least, *(1.1 * row[column] for row in rows if row[column])])
    low, high = nice_range([v for row in rows for v in row[1:4]], 1.05)
    return Figure(NAME, os.path.basename(stem), {
        "data": write_tsv(stem + ".tsv", blocks),
        "lines": write_tsv(stem + "-lines.tsv", [[[float(y), w] for y, w in enumerate(titles)]]),
        "heading": "The standard workloads on every recorded machine, cold caches", "machine": "",
        "failures": "", "footnote": "", "count": len(columns), "groups": len(workloads),
        "shades": " ".join(COLOURS[i % len(COLOURS)] for i in range(len(columns))),
        "points": " ".join(str(POINTS[i % len(POINTS)]) for i in range(len(columns))), "colours": "",
        "label_width": max(len(part) for t in titles for part in t.split("\\n")),
        "kernel": kernel, "below": below, "low": low, "high": high, "most_speed": top(4, 2.0),
        "most_roof": top(5, 100.0),
        "height": 140 + 26 * len(columns) + max(44, 22 * len(columns)) * len(workloads)})


def publish(folders, page, kernel, below):
    """Writes the table into the page's section, and the picture beside the folders."""
    results = {os.path.basename(f): load(path) for f in folders
               if os.path.exists(path := os.path.join(f, "standard.json"))}
    if not results:
        update(page, NAME, "No machine is recorded; `make record NAME=...` does it.")
        return
    outdir = os.path.dirname(os.path.abspath(folders[0]))
    picture = figure(results, kernel, below, os.path.join(outdir, NAME))
    for kind in ("svg", "png"):
        print(draw(picture, kind, outdir))
    at = os.path.relpath(outdir, os.path.dirname(os.path.abspath(page)))
    update(page, NAME, "\n".join([f"![Every recorded machine]({at}/{NAME}.png)", "",
                                  *table(results, kernel, below, at)]))
