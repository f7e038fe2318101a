#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes one page about results: tables, an explorer of all measured points, figures, and machines. The page is one
file that reads nothing else, from disk or network.

The same results give the same bytes. What a page cannot have for want of a program or package is named on stderr
and in the page; the rest goes on. Exit status: 0 fine, 1 usage or a file that cannot be read.
"""
import base64
import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "reports"))
import pages
import program
from program import Arguments, ResultError, write_whole
from webpage import outcomes, sources
from webpage.drawn import Drawer


def environment():
    """The folder of the template. Whatever it shows is escaped, unless it was made here as HTML."""
    try:
        import jinja2
    except ImportError:
        raise ResultError("Jinja2 is missing: install it (Debian: apt-get install python3-jinja2) and use its "
                          "python3") from None
    return jinja2.Environment(loader=jinja2.FileSystemLoader(HERE / "webpage"), autoescape=True, trim_blocks=True,
                              lstrip_blocks=True, undefined=jinja2.StrictUndefined)


def asset(name):
    return (HERE / "webpage" / name).read_text(encoding="utf-8")


def policy(script):
    """The policy of the page: this script and no other, and no network."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


def of_machines(machines):
    """What the template reads about machines and their files."""
    every, several = [s for m in machines for s in m.sources], len(machines) > 1
    named = [(s.name + f" on {s.machine}" * several, s.result) for s in every]
    return {"machines": machines, "several": several, "colours": outcomes.colours(machines), "origin": pages.origin,
            "files": len(every), "doubted": [line for _, result in named if (line := result.doubt())],
            "gaps": [f"Not recorded on {m.name}: {', '.join(own)}." for m in machines if (own := m.unrecorded())]
                    + [f"{name}: {line}" for name, result in named for line in result.left_out()]}


def of_results(machines):
    """What it reads about results; a single machine needs no column."""
    alone, (points, placeless) = len(machines) == 1, outcomes.points(machines)
    table = lambda name, heads, rows: outcomes.Table(name, heads[alone:], [r._replace(cells=r.cells[alone:]) for r in rows])
    return {"headline": table("headline", outcomes.HEADS, (outcomes.row(s, g) for m in machines for s in m.sources
                                                           for g in outcomes.groups_of(s))),
            "points": table("points", outcomes.POINT_HEADS, points),
            "placeless": [f"{placeless} measured groups have no place in the explorer: their ids follow no alpha, or "
                          "no kernel won."] * bool(placeless)}


def of_figures(machines, args):
    """What it reads about figures, and lines about those that could not be drawn."""
    drawer, beside = Drawer(args.kernel, args.below), outcomes.side_by_side(machines, args.kernel, args.below)
    common = drawer.side_by_side(beside[0], {m.name: m.sources[0].result for m in machines}) if beside else []
    shown = [(s, drawer.of(s)) for m in machines for s in m.sources]
    return {"beside": beside, "common": common, "shown": shown}, [f"{about}: {note}" for note, about
                                                                  in drawer.notes.items()]


def page(args):
    """(the text of the page, lines about figures that it lacks)"""
    env = environment()
    from markupsafe import Markup
    machines = sources.read(args.results, args.record, args.mode)
    figures, undrawn = of_figures(machines, args)
    shown, script = of_machines(machines) | of_results(machines) | figures, asset("page.js")
    gaps = [*undrawn, *shown["placeless"], *shown["gaps"]]
    return env.get_template("page.html").render(
        shown | {"gaps": gaps}, script=Markup(script), policy=policy(script), style=Markup(asset("page.css"))), undrawn


def main():
    parser = Arguments(__doc__)
    parser.add_argument("results", metavar="RESULT.json", nargs="*")
    parser.add_argument("--record", metavar="FOLDER", action="append", default=[],
                        help="all results of a recorded machine; repeat the option for several machines")
    parser.add_argument("--mode", default="cold", choices=("cold", "warm", "iteration"),
                        help="of the figures: cold (default), warm or iteration")
    parser.add_argument("--kernel", default="cpu_fused", metavar="NAME", help="the kernel under study (cpu_fused)")
    parser.add_argument("--below", default="cpu_sort", metavar="NAME", help="the kernel below it (cpu_sort)")
    parser.add_argument("--out", required=True, metavar="PAGE.html")
    args = parser.parse_args()
    if not args.results and not args.record:
        parser.error("needs a result or --record")
    text, gaps = page(args)
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    write_whole(args.out, text)
    for line in gaps:
        print(f"{parser.prog}: {line}", file=sys.stderr)
    print(args.out)


if __name__ == "__main__":
    program.run(main)
