#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws figures for a paper with matplotlib, as PDF, SVG and PNG, in the width of a page and of a column.

extras/studies/drawings/ lists the figures; a result gets those that it has the data of. Text is real text (Type 42 in
PDF), and one result always gives the same bytes: no dates, fixed ids in SVG. extras/studies/gallery.py draws all figures
of a recorded machine.
"""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from drawings import DRAWINGS, noise
from export import slug
from paper import FORMATS, PAGE, SIZES, save, set_up
from program import Arguments, ResultError
from results import load

ACROSS = ("rules-roof", "winners", "types")  # what the pages of recorded machines show


def drawings_of(result):
    return [d for d in DRAWINGS if noise.is_noise(result) == (d.pick is noise.pick)]


def draw(drawing, result, mode, outdir, source="", formats=FORMATS, sizes=None):
    """Draws all that a result has for a drawing; yields the files of each figure."""
    for rest, shown in drawing.pick(result, mode).items():
        stem = slug("-".join(filter(None, ("paper", drawing.name, source, rest, mode))))
        files = []
        for end, width in (sizes or SIZES).items():
            files += save(drawing.draw(width, result, shown), os.path.join(outdir, stem + end), formats)
        yield files


def draw_across(result, outdir, mode, formats=FORMATS, prefix=""):
    """Draws the figures across rules, points and types with that prefix in their names, as wide as a page;
    yields the names of the files."""
    set_up()
    for drawing in drawings_of(result):
        if drawing.name in ACROSS and drawing.name.startswith(prefix.rstrip("-")):
            for files in draw(drawing, result, mode, outdir, formats=formats, sizes={"": PAGE}):
                yield from files


def draw_all(result, outdir, mode):
    """Draws all figures of a mode; yields the names of the files."""
    set_up()
    os.makedirs(outdir, exist_ok=True)
    drawn = 0
    for drawing in drawings_of(result):
        for files in draw(drawing, result, mode, outdir):
            drawn += len(files)
            yield from files
    if not drawn:
        raise ResultError(f"{result.path}: has no data for any figure in mode {mode}")


def main():
    parser = Arguments(__doc__)
    parser.add_result(outdir=True)
    args = parser.parse_args()
    result = load(args.result)
    for name in draw_all(result, args.outdir, result.mode(args.mode)):
        print(name)


if __name__ == "__main__":
    program.run(main)
