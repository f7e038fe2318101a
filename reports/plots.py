#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the quick plots of a saved result with gnuplot, as SVG and PNG; measures nothing.

Plots: time, traffic and memory of each kernel, time by stage, distance from the roof, speed by alpha. In the environment,
TITLE=0 leaves the title out and writes it into a text file, and FONT is the font."""
import os
import subprocess

import export
import program
from program import ResultError, write_whole
from style import FONT, TITLES

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ["svg", "png"]  # of the files that draw() makes; pages.py takes SVG alone


def assignment(name, value):
    """A gnuplot assignment. gnuplot expands nothing inside single quotes."""
    if isinstance(value, str):
        return f"{name} = '" + value.replace("'", "''") + "'"
    return f"{name} = {value!r}"


def draw(figure, outdir):
    """Draws one figure as KINDS; yields the names of the files. If gnuplot fails, the file of that kind is not written."""
    variables = figure.variables | {"face": FONT}
    if not TITLES:
        title = {k: variables[k] for k in ("heading", "family", "machine") if variables.get(k)}
        variables |= dict.fromkeys(title, "")
        out = os.path.join(outdir, f"{figure.name}.txt")
        write_whole(out, "\n".join(title.values()) + "\n")
        yield out
    for kind in KINDS:
        out = os.path.join(outdir, f"{figure.name}.{kind}")
        commands = "; ".join(assignment(*v) for v in (variables | {"kind": kind}).items())
        try:
            run = subprocess.run(["gnuplot", "-e", commands, figure.script + ".gp"], cwd=HERE, check=False,
                                 capture_output=True, env=os.environ | {"LC_ALL": "C.UTF-8"})
        except FileNotFoundError:
            raise ResultError("gnuplot is missing: install it (Debian: apt-get install gnuplot-nox)"
                              ) from None
        said = run.stderr.decode(errors="replace").strip()
        if run.returncode or said or not run.stdout:
            raise ResultError(f"{out}: gnuplot failed on {figure.script}.gp: {said}")
        write_whole(out, run.stdout)
        yield out


def draw_all(result, outdir, mode):
    """Draws all figures of a mode, rule by rule, the times first; yields the names of the files."""
    for figure in export.figures(result, outdir, mode):
        yield from draw(figure, outdir)


if __name__ == "__main__":
    program.run(lambda: export.main(__doc__, draw_all))
