#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes study/claims.md: what is often said about fused sparse optimizers, with what the records say of it.

Every figure and every verdict is computed from the recorded results of the given folders and from pages of studies
that depend on no machine.
"""
import os
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path[:0] = [HERE, os.path.join(ROOT, "reports"), os.path.join(ROOT, "extras", "studies")]
import counted  # noqa: F401, these modules register their claims
import learned
import program
import timed  # noqa: F401
from claim import CLAIMS, PAGE, judge
from gallery import small
from identity import of_gpu, same_machine
from paper import GREY, log_axis, panels, set_up
from paper import PAGE as PAGE_WIDTH
from program import Arguments, ResultError, write_whole
from recorded import RESULTS, in_folder
from style import COLOURS, markdown_table, number
from verdict import scipy_stats

HEAD = ("`make claims` writes this page from recorded results; no figure and no verdict is typed. A verdict is about "
        "all cases of all machines that were measured: each meets the claim's criterion (✓) or not (✗). *Fused*, "
        "*sort*, *dense* and *atomic* are the kernels `cpu_fused` and so on, on a GPU `cuda_fused` and so on.")
FOLDER = "extras/studies/study"  # of the page
WIDTH = 115
ANY = "any machine"
MARKS = {True: " ✓", False: " ✗", None: ""}
ROWS = 30  # of a table of cases, at most
NAMED_MACHINES = 2  # a verdict counts more of them
ON_CPU, ON_GPU = "on CPUs", "on a GPU"


def records_of(folder):
    """{name: result} of a machine."""
    found = in_folder(folder)
    results = list(found.values())
    if not results:
        raise ResultError(f"{folder}: holds no result; make record NAME={os.path.basename(folder)} measures them")
    for other in results[1:]:
        same_machine(results[0], other)
    return found


def pages_of(root, claims):
    """{name: tables} of the pages that the claims read."""
    names = dict.fromkeys(n for c in claims for n in c.needs if n.endswith(PAGE))
    return {n: learned.tables(os.path.join(root, n), n) for n in names}


def in_order():
    return [CLAIMS[n] for n in sorted(CLAIMS)]


def anchor(title):
    """Of a heading, as GitHub makes it."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def heading(claim):
    return f"{claim.number}. {claim.title}"


def findings(claim, machines):
    """{machine: its cases, or nothing} of a place."""
    found = {}
    for name, records in machines.items():
        own = {n: records[n] for n in claim.needs if n in records}
        cases = claim.find(own) if own else []
        found[name] = cases if any(c.ok is not None for c in cases) else []
    return found


def places(claim, machines):
    """{place: {machine: cases}} that a claim speaks of; claims of pages have one place."""
    on_gpu = lambda records: of_gpu(next(iter(records.values())).context)
    real = {name: records for name, records in machines.items() if name != ANY}
    if claim.of_pages:
        return {ANY: findings(claim, {ANY: machines[ANY]})}
    return {place: findings(claim, {n: r for n, r in real.items() if on_gpu(r) == (place == ON_GPU)})
            for place in (ON_CPU, ON_GPU)[:1 + claim.gpu]}


def table(found):
    """Cases by machines, along the axis if all lie on it; one column if no two machines differ. No long one."""
    cases = [c for own in found.values() for c in own]
    cases = sorted(cases, key=lambda c: c.at) if all(c.at is not None for c in cases) else cases
    names = list(dict.fromkeys(c.name for c in cases))
    if len(names) > ROWS:
        return [f"{len(cases):,} cases, as in the figure."]
    columns = {m: {c.name: number(c.value) + MARKS[c.ok] for c in own} for m, own in found.items() if own}
    if len(columns) > 1 and all(len({c[n] for c in columns.values() if n in c}) == 1 for n in names):
        columns = {"all these machines": {n: text for cells in columns.values() for n, text in cells.items()}}
    return markdown_table(("", *columns), [(n.replace("|", "\\|"), *(cells.get(n, "-") for cells in columns.values()))
                                           for n in names])


def verdicts(claim, found):
    """A line for each verdict, with its machines."""
    same = {}
    for machine, cases in found.items():
        same.setdefault(judge(cases, claim.axis), []).append(machine)
    return [f"- {', '.join(machines)}: **{text}**" for text, machines in same.items()]


def again(claim, machine):
    """The command that measures what a claim reads."""
    if claim.of_pages:
        return " and ".join(f"`make {learned.MADE_BY[n]}`" for n in claim.needs)
    steps = " ".join(dict.fromkeys(RESULTS[n].name for n in claim.needs))
    return f"`make record NAME={machine} STEPS=" + (f'"{steps}"`' if " " in steps else f"{steps}`")


def answers(claim, machines):
    """{place: the verdict of all its machines together}, with the machines that were measured."""
    texts = {}
    for place, found in places(claim, machines).items():
        names = [named(claim, m, machines[m]) for m, cases in found.items() if cases]
        names = [f"{len(names)} machines"] if len(names) > NAMED_MACHINES else names
        texts[place] = judge([c for cases in found.values() for c in cases], claim.axis)
        texts[place] += f" ({', '.join(names)})" * bool(names and place != ANY)
    return texts


def named(claim, machine, records):
    """The name of a machine, with a note if its record was cut short."""
    cut = machine != ANY and any(records[n].cut_short() for n in claim.needs if n in records)
    return machine + ", cut short" * cut


def section(claim, machines, folder):
    """The lines of a claim. Its picture is drawn into the folder."""
    found = {m: cases for own in places(claim, machines).values() for m, cases in own.items()}
    picture = os.path.join(folder, f"{claim.number}.png")
    drawn = draw(claim, found, machines, picture)
    words = [f"{place}: {text}".removeprefix(f"{ANY}: ") for place, text in answers(claim, machines).items()]
    return [f"## {heading(claim)}", "", "<br>\n".join(f"**{w[0].upper()}{w[1:]}**" for w in words), "",
            *[f"![{claim.title}: {claim.plot.label}]({os.path.relpath(picture, os.path.dirname(folder))})\n"] * drawn,
            fill(f"To measure it: {again(claim, 'mine')}."), "",
            "<details><summary>Criterion, cases and machines</summary>", "",
            fill(claim.text), "", fill(f"*Criterion:* {claim.criterion} The table has: {claim.plot.label}."), "",
            *(table(found) if any(found.values()) else []), "", *verdicts(claim, found), "", "</details>", ""]


def draw(claim, found, machines, path):
    """Draws a line of marks for each machine, or for each case of a claim of pages; False without values."""
    own = {named(claim, m, machines[m]): [c for c in cases if c.value is not None] for m, cases in found.items()}
    if claim.of_pages:
        own = {c.name: [c] for cases in own.values() for c in cases}
    own = {name: cases for name, cases in own.items() if cases}
    if not own:
        return False
    set_up()
    figure, (ax,) = panels(PAGE_WIDTH, 1, (1, 1), 0.45 + 0.17 * len(own))
    looks = {True: ("o", COLOURS[0], "criterion met"), False: ("x", COLOURS[1], "not met"),
             None: (".", GREY, "does not count")}
    for ok, (marker, shade, label) in looks.items():
        marks = [(c.value, y) for y, cases in enumerate(own.values()) for c in cases if c.ok is ok]
        if marks:
            ax.plot(*zip(*marks), marker, color=shade, ms=3.5, alpha=0.6, mew=0.8, label=label)
    if claim.plot.limit is not None:
        ax.axvline(claim.plot.limit, color=GREY, lw=0.8, ls="--", zorder=0, label="limit")
    values = [c.value for cases in own.values() for c in cases] + [claim.plot.limit] * (claim.plot.limit is not None)
    if claim.plot.log:
        log_axis(ax.xaxis, min(values) / 1.1, 1.1 * max(values))
    ax.set(ylim=(len(own) - 0.5, -0.5), xlabel=claim.plot.label)
    ax.set_yticks(range(len(own)), list(own))
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.set_layout_engine("constrained")
    small(figure, path)
    return True


def fill(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def summary(claims, machines):
    rows = []
    for c in claims:
        own = answers(c, machines)
        rows.append((f"[{heading(c)}](#{anchor(heading(c))})", own.get(ON_CPU) or own[ANY], own.get(ON_GPU, "-")))
    return markdown_table(("claim", ON_CPU, ON_GPU), rows, left=range(3))


def page(machines, folder):
    claims = in_order()
    results = [r for m, records in machines.items() if m != ANY for r in records.values()]
    at = os.path.relpath("reports/results", FOLDER)
    pages = ", ".join(f"[{m}]({at}/{m}/README.md)" for m in machines if m != ANY)
    caution = (f"{sum(bool(r.doubts()) for r in results)} of the {len(results)} files " +
               "were cut short, or " * any(r.cut_short() for r in results) + "have rows that are not to be quoted. "
               f"The pages of the machines say which: {pages}.")
    os.makedirs(folder, exist_ok=True)
    sections = [line for c in claims for line in section(c, machines, folder)]
    lines = ["# Claims", "", fill(HEAD), "", fill(caution), "", *summary(claims, machines), "", *sections[:-1]]
    return "\n".join(lines) + "\n"


def main():
    parser = Arguments(__doc__)
    parser.add_argument("page", metavar="PAGE.md", help="written whole, or left alone if a record is bad")
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="reports/results/NAME")
    args = parser.parse_args()
    scipy_stats()  # without it, kernels that differ would count as alike
    root = os.path.abspath(os.path.join(os.path.dirname(args.page), os.path.relpath(".", FOLDER)))
    machines = {os.path.basename(os.path.normpath(f)): records_of(os.path.normpath(f)) for f in args.folders}
    machines[ANY] = pages_of(root, in_order())
    write_whole(args.page, page(machines, os.path.splitext(args.page)[0]))
    print(args.page)


if __name__ == "__main__":
    program.run(main)
