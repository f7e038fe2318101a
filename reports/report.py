#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes one page about results, report.html: machines, tables, figures, kernels, workloads, a comparison of two results
and an explorer of all measured points. The page is one file that reads nothing else, from disk or network.

The same results give the same bytes. What a page cannot have for want of a program or package is named on stderr
and in the page; the rest goes on. Exit status: 0 fine, 1 usage or a file that cannot be read.
"""
import base64
import hashlib
import os
import sys
from collections import namedtuple
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "studies"))
import comparison
import outcomes
import portraits
import program
import sources
from drawn import Drawer
from inline_svg import dark_theme
from program import Arguments, ResultError, write_whole
from results import caches, load
from style import number

D3 = "/usr/share/nodejs/d3/dist/d3.min.js"
D3_LICENCE = "/usr/share/doc/node-d3/copyright"

Library = namedtuple("Library", "name text licence")
Shown = namedtuple("Shown", "source drawings")  # a file and its figures


def environment():
    """The templates of reports/page. Whatever they show is escaped, unless it was made here as HTML."""
    try:
        import jinja2
    except ImportError:
        raise ResultError("Jinja2 is missing: install it (Debian: apt-get install python3-jinja2) and use its "
                          "python3") from None
    return jinja2.Environment(loader=jinja2.FileSystemLoader(HERE / "page"), autoescape=True, trim_blocks=True,
                              lstrip_blocks=True, undefined=jinja2.StrictUndefined)


def library(path, licence):
    """(D3 with its licence, None), or (None, a line that says what is missing)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        terms = Path(licence).read_text(encoding="utf-8")
    except OSError as e:
        return None, (f"{e.filename}: {e.strerror}; nothing moves in the page without D3 (Debian: apt-get install "
                      "node-d3)")
    first = text.partition("\n")[0]
    return Library(first.lstrip("/ ") if first.startswith("//") else "D3", text, terms), None


def asset(name):
    return (HERE / "page" / name).read_text(encoding="utf-8")


def script(text):
    """A script as it stands between its tags: nothing in it ends them early."""
    return "\n" + text.strip().replace("</script", "<\\/script") + "\n"


def allowed(scripts):
    """The policy of the page: these scripts and no others, and no network."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    return ("default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
            + " ".join(f"'sha256-{h}'" for h in hashes))


def figures(machines, args, drawer):
    """(figures of several machines, {machine: figures of each file}) and their tables side by side."""
    beside = outcomes.side_by_side(machines, args.kernel, args.below)
    common = drawer.side_by_side(beside[0]) if beside else []
    return beside, common, {m.name: [Shown(s, drawer.of(s)) for s in m.sources] for m in machines}


def content(args, machines, drawer, moving, missing):
    """What the templates read."""
    beside, common, shown = figures(machines, args, drawer)
    heads, texts, rows = outcomes.headline(machines)
    points, placeless = outcomes.points(machines)
    both = comparison.compared(load(args.old), load(args.new)) if args.old else None
    every = [s for m in machines for s in m.sources]
    gaps = [f"{about}: {note}" for note, about in drawer.notes.items()] + [missing] * bool(missing)
    facts = {m.name: m.facts() for m in machines}
    return {"machines": machines, "facts": facts, "titles": list(dict.fromkeys(t for f in facts.values() for t in f)), "several": len(machines) > 1, "sources": every, "beside": beside,
            "common": common, "shown": shown, "heads": heads, "texts": texts, "rows": rows, "points": points,
            "placeless": placeless, "comparison": both, "kernels": portraits.kernel_parts(machines),
            "kernel_heads": portraits.KERNEL_HEADS, "workloads": portraits.workload_parts(machines),
            "sweeps": [s for s in every if outcomes.is_sweep(s)], "gaps": gaps, "library": moving,
            "colours": outcomes.colours(machines), "caches": caches, "number": number,
            "left_out": [(s, s.result.left_out()) for s in every if s.result.left_out()]}


def page(args):
    """(the text of the page, lines that say what it lacks)"""
    env = environment()
    from markupsafe import Markup
    machines = sources.read(args.results, args.record, args.mode)
    moving, missing = library(args.d3, args.d3_licence)
    texts = [asset("page.js"), asset("explorer.js")]
    if moving:
        texts = [moving.text, asset("charts.js"), *texts]
    scripts = [Markup(script(t)) for t in texts]
    shown = content(args, machines, Drawer(args.kernel, args.below), moving, missing)
    parts = {"scripts": scripts, "policy": allowed(scripts), "style": Markup(asset("page.css"))}
    text = env.get_template("page.html").render(shown | parts)
    return text.replace("/* colours in the dark */", dark_theme(text), 1), shown["gaps"]


def main():
    parser = Arguments(__doc__)
    parser.add_argument("results", metavar="RESULT.json", nargs="*")
    parser.add_argument("--record", metavar="FOLDER", action="append", default=[],
                        help="all results of a recorded machine; repeat the option for several machines")
    parser.add_argument("--old", metavar="OLD.json", help="compare this result with --new")
    parser.add_argument("--new", metavar="NEW.json")
    parser.add_argument("--mode", default="cold", help="of the figures: cold (default), warm or iteration")
    parser.add_argument("--kernel", default="cpu_fused", metavar="NAME", help="the kernel under study (cpu_fused)")
    parser.add_argument("--below", default="cpu_sort", metavar="NAME", help="the kernel to compare it with (cpu_sort)")
    parser.add_argument("--d3", default=D3, metavar="FILE", help=f"the library D3 ({D3})")
    parser.add_argument("--d3-licence", default=D3_LICENCE, metavar="FILE", help=f"its licence ({D3_LICENCE})")
    parser.add_argument("--out", required=True, metavar="PAGE.html")
    args = parser.parse_args()
    if bool(args.old) != bool(args.new):
        parser.error("--old and --new come together")
    if not args.results and not args.record:
        args.results = [args.old, args.new] if args.old else parser.error("needs a result or --record")
    text, gaps = page(args)
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    write_whole(args.out, text)
    for line in gaps:
        print(f"{parser.prog}: {line}", file=sys.stderr)
    print(args.out)


if __name__ == "__main__":
    program.run(main)
