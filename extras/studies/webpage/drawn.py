# SPDX-License-Identifier: MIT
"""The figures of a page: those that the quick plots, the studies and `make figures` draw, as SVG in the page. A
figure that cannot be drawn leaves one line that says why."""
import base64
import contextlib
import io
import os
import tempfile
from collections import namedtuple
from pathlib import Path

import export
import machines
import pages
import paper
import points
from figures import draw_across
from plots import draw
from program import ResultError

MANY_WORKLOADS = 12  # more of them have no room in the quick plots
# What the beginnings of their file names mean.
TITLES = {"time": "Time per lookup", "throughput": "Compulsory traffic", "memory": "Memory",
          "stages": "Time by stage", "roofline": "Distance from the roof", "alpha": "Throughput over skew",
          "paper-rules-roof": "Every rule against its roof", "paper-winners": "Which kernel wins",
          "paper-types": "Bytes and time of narrow types", "machines": "Machines side by side"}
EVERY = ("standard", "forward")  # records of which every quick plot is drawn

Drawing = namedtuple("Drawing", "id title data command")


def title(stem):
    """'time-adam-cold' as 'Time per lookup: adam, cold'."""
    known = max((k for k in TITLES if stem.startswith(k)), key=len, default="")
    rest = stem[len(known):].strip("-").replace("-", ", ")
    return (TITLES.get(known) or pages.TITLES.get(stem, stem)) + f": {rest}" * bool(known and rest)


def svg_of(figure, folder):
    """The SVG of a quick plot; its PNG is not drawn."""
    return next(path for path in draw(figure, folder) if path.endswith(".svg"))


class Drawer:
    """Draws into a folder of its own, and numbers the figures of the page."""

    def __init__(self, kernel, below):
        self.kernel, self.below, self.count = kernel, below, 0
        self.notes = {}  # {why something cannot be drawn: the first that this is about}

    def taken(self, path, command):
        """The drawing of an SVG file."""
        self.count += 1
        data = base64.b64encode(Path(path).read_bytes()).decode()
        return Drawing(f"figure-{self.count}", title(os.path.basename(path).removesuffix(".svg")),
                       f"data:image/svg+xml;base64,{data}", command)

    def tried(self, make, about):
        """The drawings of make(folder), which yields (path, command); those before one that cannot be drawn."""
        drawings = []
        with tempfile.TemporaryDirectory() as folder:
            try:
                with contextlib.redirect_stderr(io.StringIO()):  # export.py names what a result lacks
                    for path, command in make(folder):
                        if path.endswith(".svg"):
                            drawings.append(self.taken(path, command))
            except ResultError as e:
                self.notes.setdefault(str(e).replace(folder + os.sep, ""), about)
        return drawings

    def of(self, source):
        """All figures of a result."""
        return [d for make in (self.study if source.study else self.plots, self.across)
                for d in self.tried(lambda folder, make=make: make(source, folder), source.path)]

    def study(self, source, folder):
        """The figure that a study draws of its own result."""
        pictures, _ = points.report(source.study, source.result, folder, self.kernel, self.below)
        for path in pictures:
            yield path, (f"python3 extras/studies/points.py {source.study} {source.path} OUTDIR --kernel={self.kernel} "
                         f"--below={self.below}")

    def plots(self, source, folder):
        """The quick plots; of most records only the one that shows it."""
        if source.name in pages.ACROSS and source.recorded:
            return
        if len({g.workload for g in source.result.groups(source.mode)}) > MANY_WORKLOADS:
            raise ResultError(f"more than {MANY_WORKLOADS} workloads are too many for the quick plots")
        whole = not source.recorded or source.name in EVERY
        first = "" if whole else pages.PEERS.get(source.name, "time-")
        for figure in export.figures(source.result, folder, source.mode):
            if figure.name.startswith(first):
                yield svg_of(figure, folder), f"make plots RESULT={source.path} MODE={source.mode}"

    def across(self, source, folder):
        """What matplotlib draws across rules, points and types."""
        prefix = pages.ACROSS.get(source.name) if source.recorded else ""
        if prefix is None or source.study:
            return
        for path in draw_across(source.result, folder, source.mode, ["svg"], prefix):
            yield path, f"make figures RESULT={source.path} MODE={source.mode}"

    def side_by_side(self, columns, results):
        """Several machines; columns: {name of a machine: cells of machines.cells()}, of {its name: result}."""
        def make(folder):
            command = f'make report RESULT="{" ".join(os.path.relpath(r.path) for r in results.values())}"'
            paper.set_up()
            figure = machines.picture(columns, self.kernel, self.below, {name: results[name] for name in columns})
            for path in paper.save(figure, os.path.join(folder, machines.NAME), ["svg"]):
                yield path, command
        return self.tried(make, "several machines")
