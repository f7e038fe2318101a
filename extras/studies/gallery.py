#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws all figures for a paper that the results of a recorded machine have data of. What they lack is named, with
the step of make record that would measure it.

With --page it writes a page of Markdown with one small picture of each kind of figure instead. What the machine
lacks comes from the first of --also that has it, and is named.
"""
import contextlib
import io
import itertools
import os
import sys
from collections import namedtuple
from dataclasses import replace

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "reports"))
import program
from drawings import DRAWINGS
from figures import draw
from identity import of_gpu, same_machine, same_work
from paper import PAGE, set_up
from program import Arguments, ResultError, write_whole
from recorded import RESULTS, in_folder
from results import Result, same_looks

MODES = {"iteration": "iteration"}  # of a result, if not cold
DPI, COLOURS = 110, 256  # of a small picture

Source = namedtuple("Source", "names result mode")  # what a figure is drawn from: one result, or several as one


# --- the results of a record
def results_of(folder):
    """{name: result} of a folder."""
    found = in_folder(folder)
    if not os.path.isdir(folder):
        raise ResultError(f"{folder}: no such folder; RECORD names folders of reports/results")
    if not found:
        raise ResultError(f"{folder}: holds no result; make record NAME={os.path.basename(folder)} measures them")
    for first, other in itertools.combinations(found.values(), 2):
        same_machine(first, other)
    return found


def joined(results):
    """Several results as one."""
    for first, other in itertools.combinations(results, 2):
        same_work(first, other)
    context = {k: v for r in reversed(results) for k, v in r.context.items()}
    kernels = {k: v for r in reversed(results) for k, v in r.kernels.items()}
    return Result(" and ".join(r.path for r in results), context, kernels, [n for r in results for n in r.not_run],
                  [replace(s, kernel=kernels[s.kernel.name]) for r in results for s in r.series])


def sources(drawing, results):
    there = [name for name in drawing.files if name in results]
    if drawing.joint:
        return [Source(there, joined([results[n] for n in there]), "cold")] if there else []
    return [Source([name], results[name], MODES.get(name, "cold")) for name in there]


def measure(name, record):
    """The command that measures a result of a record."""
    return f"make record NAME={record} STEPS={RESULTS[name].name}" if name in RESULTS else f"make {name}"


def missing(drawing, results, drawn, record):
    """Lines about what a drawing lacks."""
    there = [f"{name}.json" for name in drawing.files if name in results]
    for name in drawing.files:
        if name not in results:
            yield f"{drawing.name}: {record} has no {name}.json; {measure(name, record)} would measure it"
    if there and not drawn:
        yield f"{drawing.name}: {' and '.join(there)} of {record} has no data for it"


def draw_all(results, record, outdir):
    """Draws everything; returns lines about what is missing."""
    lacks = []
    for drawing in DRAWINGS:
        drawn = 0
        for names, result, mode in sources(drawing, results):
            for files in draw(drawing, result, mode, outdir, "-".join(names)):
                drawn += len(files)
                print("\n".join(files), flush=True)
        lacks += missing(drawing, results, drawn, record)
    return lacks


# --- the page of small pictures
HEAD = """# Figures

`make gallery` draws this page from the results of [{record}]({folder}): {machine}. Figures without data there are
drawn from the record of another machine, which is named. [usage.md](../../../docs/usage.md#figures-and-one-page-about-results)
says how to draw figures for a paper. A red line says that other work disturbed a run, or that it was cut short. Figures
of a GPU follow below those of CPUs."""

OTHER = "Measured on [{record}]({folder}): {machine}."


def small(figure, path):
    """Saves a picture of few bytes."""
    from PIL import Image
    whole, short = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=DPI)
    Image.open(whole).convert("RGB").quantize(COLOURS).save(short, format="PNG", optimize=True)
    write_whole(path, short.getvalue())


def first_of(drawing, records):
    """(folder, result, what to draw) of the first record with data for a drawing, or None."""
    return next(((folder, result, shown) for folder, results in records.items()
                 for _, result, mode in sources(drawing, results)
                 for shown in drawing.pick(result, mode).values()), None)


def named(folder, result, at):
    """What a text says of a record, on a page in the folder `at`."""
    return {"record": os.path.basename(folder), "folder": os.path.relpath(folder, at or "."),
            "machine": result.machine()}


def sections(records, prefix, lacks):
    """The lines of the first figure of each drawing in these records, {folder: results}; a figure of another record
    than the first names it. Pictures are saved as PREFIXname.png, and what has no data is added to lacks."""
    own, pictures = next(iter(records)), os.path.dirname(prefix)
    for drawing in DRAWINGS:
        first, path = first_of(drawing, records), f"{prefix}{drawing.name}.png"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a record that had the data
        if not first:
            lacks += missing(drawing, records[own], first, os.path.basename(own))
            continue
        folder, result, shown = first
        small(drawing.draw(PAGE, result, shown), path)
        title = os.path.basename(prefix).replace("-", ": ") + drawing.name
        yield from ("", f"## {title}", "", drawing.caption,
                    *[OTHER.format(**named(folder, result, os.path.dirname(pictures)))] * (folder != own), "",
                    f"![{title}]({os.path.basename(pictures)}/{os.path.basename(path)})")


def write_page(page, records):
    """Writes a page with the first figure of each drawing, and those of each GPU; its pictures are in a folder of its
    name beside it. records: {folder: results}, the first one is the machine of the page."""
    pictures, own, lacks = os.path.splitext(page)[0], next(iter(records)), []
    os.makedirs(pictures, exist_ok=True)
    gpus = {f: results for f, results in records.items() if of_gpu(next(iter(results.values())).context)}
    lines = [HEAD.format(**named(own, next(iter(records[own].values())), os.path.dirname(page)))]
    lines += sections({f: records[f] for f in records if f == own or f not in gpus}, f"{pictures}/", lacks)
    for folder, results in gpus.items():
        if folder != own:
            lines += sections({folder: results}, f"{pictures}/{os.path.basename(folder)}-", [])
    lines += ["", "## Not drawn", "", *(f"- {line}" for line in lacks)] if lacks else []
    write_whole(page, "\n".join(lines) + "\n")
    print(page)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="reports/results/NAME")
    parser.add_argument("outdir", metavar="OUTDIR", nargs="?", help="for the figures")
    parser.add_argument("--page", metavar="FILE.md", help="only write this page, with one small picture of each figure")
    parser.add_argument("--also", metavar="FOLDER", action="append", default=[], help="of --page; repeat it")
    args = parser.parse_args()
    if bool(args.outdir) == bool(args.page):
        parser.error("needs OUTDIR, or --page")
    set_up()
    folder = os.path.normpath(args.folder)
    records = {f: results_of(f) for f in dict.fromkeys((folder, *map(os.path.normpath, args.also)))}
    same_looks([r for results in records.values() for r in results.values()])
    if args.page:
        write_page(args.page, records)
        return
    os.makedirs(args.outdir, exist_ok=True)
    for line in draw_all(records[folder], os.path.basename(folder), args.outdir):
        print(f"not drawn: {line}", file=sys.stderr)


if __name__ == "__main__":
    program.run(main)
