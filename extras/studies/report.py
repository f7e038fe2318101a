#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes one page about results: machines, tables, figures, kernels, workloads, a comparison of two results and an
explorer of all measured points. The page is one file that reads nothing else, from disk or network.

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
sys.path.append(str(HERE.parents[1] / "reports"))
import program
from program import Arguments, ResultError, write_whole
from results import load
from style import number
from webpage import comparison, outcomes, portraits, sources
from webpage.drawn import Drawer
from webpage.inline_svg import dark_theme

D3 = "/usr/share/nodejs/d3/dist/d3.min.js"
D3_LICENCE = "/usr/share/doc/node-d3/copyright"

Library = namedtuple("Library", "name text licence")
Shown = namedtuple("Shown", "source drawings")  # a file and its figures


def environment():
    """The templates of reports/webpage. Whatever they show is escaped, unless it was made here as HTML."""
    try:
        import jinja2
    except ImportError:
        raise ResultError("Jinja2 is missing: install it (Debian: apt-get install python3-jinja2) and use its "
                          "python3") from None
    return jinja2.Environment(loader=jinja2.FileSystemLoader(HERE / "webpage"), autoescape=True, trim_blocks=True,
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
    return (HERE / "webpage" / name).read_text(encoding="utf-8")


def script(text):
    """A script as it stands between its tags: nothing in it ends them early."""
    return "\n" + text.strip().replace("</script", "<\\/script") + "\n"


def allowed(scripts):
    """The policy of the page: these scripts and no others, and no network."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    return ("default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
            + " ".join(f"'sha256-{h}'" for h in hashes))


def of_machines(machines):
    """What the templates read about machines and their files."""
    every, facts = [s for m in machines for s in m.sources], {m.name: m.facts() for m in machines}
    return {"machines": machines, "several": len(machines) > 1, "sources": every, "facts": facts,
            "titles": list(dict.fromkeys(title for own in facts.values() for title in own)),
            "sweeps": [s for s in every if outcomes.is_sweep(s)], "colours": outcomes.colours(machines),
            "unrecorded": [(m.name, m.unrecorded()) for m in machines if m.unrecorded()],
            "left_out": [(s, s.result.left_out()) for s in every if s.result.left_out()]}


def of_results(machines, args):
    """What they read about results."""
    heads, texts, rows = outcomes.headline(machines)
    points, placeless = outcomes.points(machines)
    both = comparison.compared(load(args.old), load(args.new)) if args.old else None
    return {"heads": heads, "texts": texts, "rows": rows, "points": points, "placeless": placeless,
            "winners": sorted({k["name"] for p in points for k in p["kernels"] if k["best"]}),
            "comparison": both, "number": number, "kernel_heads": portraits.KERNEL_HEADS,
            "kernels": portraits.kernel_parts(machines), "workloads": portraits.workload_parts(machines)}


def of_figures(machines, args):
    """What they read about figures, with lines about those that could not be drawn."""
    drawer, beside = Drawer(args.kernel, args.below), outcomes.side_by_side(machines, args.kernel, args.below)
    common = drawer.side_by_side(beside[0], {m.name: m.sources[0].result for m in machines}) if beside else []
    shown = {m.name: [Shown(s, drawer.of(s)) for s in m.sources] for m in machines}
    return {"beside": beside, "common": common, "shown": shown,
            "gaps": [f"{about}: {note}" for note, about in drawer.notes.items()]}


def page(args):
    """(the text of the page, lines that say what it lacks)"""
    env = environment()
    from markupsafe import Markup
    machines = sources.read(args.results, args.record, args.mode)
    moving, missing = library(args.d3, args.d3_licence)
    own = [asset("page.js"), asset("explorer.js")]
    scripts = [Markup(script(t)) for t in ([moving.text, asset("charts.js"), *own] if moving else own)]
    shown = of_machines(machines) | of_results(machines, args) | of_figures(machines, args)
    shown["gaps"] += [missing] * bool(missing)
    text = env.get_template("page.html").render(
        shown, scripts=scripts, policy=allowed(scripts), style=Markup(asset("page.css")), library=moving)
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
    parser.add_argument("--below", default="cpu_sort", metavar="NAME", help="the kernel below it (cpu_sort)")
    parser.add_argument("--d3", default=D3, metavar="FILE", help=f"the library D3 ({D3})")
    parser.add_argument("--d3-licence", default=D3_LICENCE, metavar="FILE", help=f"its licence ({D3_LICENCE})")
    parser.add_argument("--out", required=True, metavar="PAGE.html")
    args = parser.parse_args()
    if bool(args.old) != bool(args.new):
        parser.error("A and B (--old and --new) come together")
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
