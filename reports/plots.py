#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The quick plots of a saved result, as SVG and PNG, drawn by gnuplot: throughput and memory by
kernel and workload, time by stage, distance from the roof, throughput against alpha. Nothing is run
again.
"""
import os
import shutil
import subprocess
import sys

from export import figures
from results import Arguments, ResultError, load

HERE = os.path.dirname(os.path.abspath(__file__))


def assignment(name, value):
    """A gnuplot assignment. Single quotes: nothing inside them is expanded."""
    if isinstance(value, str):
        return f"{name} = '" + value.replace("'", "''") + "'"
    return f"{name} = {value!r}"


def draw(figure, kind, outdir):
    """One figure as svg or png; the name of the file."""
    out = os.path.join(outdir, f"{figure.name}.{kind}")
    variables = figure.variables | {"kind": kind, "out": os.path.abspath(out)}
    commands = "; ".join(assignment(*v) for v in variables.items())
    run = subprocess.run(["gnuplot", "-e", commands, figure.script + ".gp"], cwd=HERE,
                         capture_output=True, encoding="utf-8", errors="replace", check=False,
                         env=os.environ | {"LC_ALL": "C.UTF-8"})
    if run.returncode or run.stderr.strip() or not os.path.getsize(out):
        raise ResultError(f"gnuplot failed on {figure.script}.gp: {run.stderr.strip()}")
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
