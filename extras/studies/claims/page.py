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
from claim import CLAIMS, PAGE, UNKNOWN, Verdict
from identity import same_machine
from program import Arguments, ResultError, write_whole
from recorded import RESULTS, STORED, in_folder
from style import markdown_table
from verdict import scipy_stats

HEAD = ("`make claims` writes this page from recorded results; no figure and no verdict is typed. A claim has a "
        "criterion, which the cases of its table meet (✓) or not (✗). It *holds* if all cases meet it, it *does not "
        "hold* if none does, and otherwise it holds *only when* the verdict says.")
NO_GPU = "**All times are of CPU kernels**; [gpu.md](../../cuda/study/gpu.md) has times of a GPU. "
FOLDER = "extras/studies/study"  # of the page
WIDTH = 115
ANY = "any machine"
MARKS = {True: " ✓", False: " ✗", None: ""}


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
    """{machine: Found or None} where the claim can be measured; None without records or cases."""
    found = {}
    for name, records in machines.items():
        if claim.of_pages == (name == ANY):
            own = {n: records[n] for n in claim.needs if n in records}
            result = claim.find(own) if own else None
            found[name] = result if result and any(c.ok is not None for c in result.cases) else None
    return found


def verdict(claim, found):
    return found.verdict(claim.axis) if found else Verdict(UNKNOWN)


def rows_in_order(cases):
    """Their names, each once; along the axis if all lie on it."""
    if all(c.at is not None for c in cases):
        cases = sorted(cases, key=lambda c: c.at)
    return list(dict.fromkeys(c.name for c in cases))


def table(found):
    """Cases by machines; one column if no two machines differ."""
    cell = lambda case: f"{case.figure}{MARKS[case.ok]}".replace("|", "\\|")
    columns = {m: {c.name: cell(c) for c in f.cases} for m, f in found.items() if f}
    names = rows_in_order([c for f in found.values() if f for c in f.cases])
    if len(columns) > 1 and all(len({c[n] for c in columns.values() if n in c}) == 1 for n in names):
        columns = {"all these machines": {n: text for cells in columns.values() for n, text in cells.items()}}
    rows = [(n.replace("|", "\\|"), *(cells.get(n, "-") for cells in columns.values())) for n in names]
    return markdown_table(("", *columns), rows)


def verdicts(claim, found):
    """A line for each verdict, with its machines."""
    same = {}
    for machine, own in found.items():
        note = f". {own.note}" * bool(own.note) if own else f"; {again(claim, machine)} measures it"
        same.setdefault((str(verdict(claim, own)), note), []).append(machine)
    return [f"- {', '.join(machines)}: **{text}**{note}" for (text, note), machines in same.items()]


def again(claim, machine):
    """The command that measures what a claim reads."""
    if claim.of_pages:
        return " and ".join(f"`make {learned.MADE_BY[n]}`" for n in claim.needs)
    steps = " ".join(dict.fromkeys(RESULTS[n].name for n in claim.needs))
    return f"`make record NAME={machine} STEPS=" + (f'"{steps}"`' if " " in steps else f"{steps}`")


def picture(claim, machines, root):
    """The claim's picture, of the first machine that has it."""
    record = next((r[claim.picture] for r in machines.values() if claim.picture in r), None)
    if record is None:
        return []
    at = os.path.relpath(record.path.removesuffix(STORED) + ".svg", os.path.join(root, FOLDER))
    return [f"![{claim.title}: {claim.picture} of {os.path.basename(os.path.dirname(record.path))}]({at})", ""]


def section(claim, machines, root):
    """The lines of a claim."""
    found = findings(claim, machines)
    return [f"## {heading(claim)}", "", fill(claim.text), "", fill(f"*Criterion:* {claim.criterion}"), "",
            *picture(claim, machines, root), *(table(found) if any(found.values()) else []), "",
            *verdicts(claim, found), "",
            fill(f"To measure it again: {again(claim, 'mine')}."), ""]


def fill(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def summary(claims, machines):
    rows = []
    for c in claims:
        own = {m: str(verdict(c, f)) for m, f in findings(c, machines).items()}
        rows.append((f"[{heading(c)}](#{anchor(heading(c))})", *(own.get(m, "") for m in machines)))
    return markdown_table(("claim", *machines), rows, left=range(1 + len(machines)))


def page(machines, root):
    claims = in_order()
    results = [r for m, records in machines.items() if m != ANY for r in records.values()]
    gpu = any(s.kernel.place == "device" for r in results for s in r.series)
    pages = ", ".join(f"[{m}]({os.path.relpath('reports/results', FOLDER)}/{m}/README.md)" for m in machines if m != ANY)
    caution = (f"{sum(bool(r.doubts()) for r in results)} of the {len(results)} files " +
               "were cut short, or " * any(r.cut_short() for r in results) + "have rows that are not to be quoted. "
               f"The pages of the machines say which: {pages}.")
    sections = [line for c in claims for line in section(c, machines, root)]
    return "\n".join(["# Claims", "", fill(HEAD), "", fill(NO_GPU * (not gpu) + caution), "",
                      *summary(claims, machines), "", *sections[:-1]]) + "\n"


def main():
    parser = Arguments(__doc__)
    parser.add_argument("page", metavar="PAGE.md", help="written whole, or left alone if a record is bad")
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="reports/results/NAME")
    args = parser.parse_args()
    scipy_stats()  # without it, kernels that differ would count as alike
    root = os.path.abspath(os.path.join(os.path.dirname(args.page), os.path.relpath(".", FOLDER)))
    machines = {os.path.basename(os.path.normpath(f)): records_of(os.path.normpath(f)) for f in args.folders}
    machines[ANY] = pages_of(root, in_order())
    write_whole(args.page, page(machines, root))
    print(args.page)


if __name__ == "__main__":
    program.run(main)
