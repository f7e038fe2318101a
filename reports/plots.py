#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the quick plots of a saved result with gnuplot, as SVG and PNG; measures nothing.

Plots: time, traffic and memory of each kernel, time by stage, distance from the roof, speed by alpha."""
import os
import shutil
import subprocess
import sys

from export import figures
from results import Arguments, ResultError, load, write_whole

HERE = os.path.dirname(os.path.abspath(__file__))


def assignment(name, value):
    """A gnuplot assignment. gnuplot expands nothing inside single quotes."""
    if isinstance(value, str):
        return f"{name} = '" + value.replace("'", "''") + "'"
    return f"{name} = {value!r}"


def draw(figure, kind, outdir):
    """Draws one figure as svg or png; returns the name of the file, which a failed run does not leave."""
    out = os.path.join(outdir, f"{figure.name}.{kind}")
    commands = "; ".join(assignment(*v) for v in (figure.variables | {"kind": kind}).items())
    run = subprocess.run(["gnuplot", "-e", commands, figure.script + ".gp"], cwd=HERE, check=False,
                         capture_output=True, env=os.environ | {"LC_ALL": "C.UTF-8"})
    said = run.stderr.decode(errors="replace").strip()
    if run.returncode or said or not run.stdout:
        raise ResultError(f"{out}: gnuplot failed on {figure.script}.gp: {said}")
    write_whole(out, run.stdout)
    return out


def main():
    parser = Arguments(prog="plots.py", description=__doc__.split("\n")[0])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--mode", default="cold", help="cold (default) or warm")
    args = parser.parse_args()
    result = load(args.result)
    if not shutil.which("gnuplot"):
        raise ResultError("gnuplot is missing: install it (Debian: apt-get install gnuplot-nox)")
    for figure in figures(result, args.outdir, args.mode):
        for kind in ("svg", "png"):
            print(draw(figure, kind, args.outdir))


if __name__ == "__main__":
    try:
        main()
    except (ResultError, OSError) as e:
        sys.exit(f"plots.py: {e}")
