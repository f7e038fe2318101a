#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speed over revisions: reads a folder of results, finds change points for every kernel and workload, and writes
FOLDER/history.md, history.svg. With --revisions it first builds these revisions, each in a clone of
its own, and measures them in turns.

Results are in the order of their names. A change point is between two neighbouring segments of revisions of which
compare.py would say SLOWER or FASTER.

Exit status: 0 fine, 1 usage or environment, or no revision that builds, 2 a wrong result.
"""
import functools
import glob
import math
import os
import re
import sys
from dataclasses import dataclass, replace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import compare
import paper
import program
import turns
from identity import same_machine
from merge import add_cut_short
from parts import write
from program import Arguments, ResultError, say, write_whole
from results import load
from style import markdown_table, nice_range
from verdict import LEVEL, MIN_EFFECT, effect

NAME = re.compile(r"\d+-[0-9a-f]+\.json(\.gz)?")


@dataclass(frozen=True)
class Change:
    key: tuple      # of the series
    at: int         # the first revision after it
    effect: object  # between the segments on both sides
    word: str


# --- change points
def pooled(segment):
    return [t for times in segment for t in times]


def changes(points, least):
    """[(revision, Effect, word)] of a list of samples per revision. Neighbouring segments are merged bottom-up,
    the most alike first, until all that are left differ (Keogh et al. 2001). All revisions share the risk of a
    false change."""
    level, edges = LEVEL / max(1, len(points) - 1), list(range(len(points) + 1))

    @functools.cache
    def between(a, b, c):
        found = effect(pooled(points[a:b]), pooled(points[b:c]))
        return found, found.word(least, level)

    while True:
        found = [(b, *between(a, b, c)) for a, b, c in zip(edges, edges[1:], edges[2:])]
        alike = [(abs(math.log(e.ratio)), b) for b, e, word in found if word not in ("SLOWER", "FASTER")]
        if not alike:
            return found
        edges.remove(min(alike)[1])


def series_of(results):
    """{key: [(index of the revision, series)]} of what did not fail."""
    found = {}
    for i, result in enumerate(results):
        for s in result.series:
            if not s.failed:
                found.setdefault(s.key, []).append((i, s))
    return {k: own for k, own in found.items() if len(own) > 1}


def all_changes(results, least):
    for key, own in series_of(results).items():
        for i, found, word in changes([s.times for _, s in own], least):
            yield Change(key, own[i][0], found, word)


# --- the folder
def read(folder):
    """The results of a folder, of one machine and with the same work."""
    paths = sorted(p for p in glob.glob(os.path.join(folder, "*.json*")))
    if len(paths) < 2:
        raise ResultError(f"{folder}: has {len(paths)} results, a history needs two; make history REVS='...' "
                          "measures them")
    results = [load(p) for p in paths]
    for other in results[1:]:
        same_machine(results[0], other, compare.OTHER_MACHINE, threads=True)
        compare.match(results[0], other)
    return results


def described(revision):
    """'date hash subject' of a revision of this repository."""
    return turns.git("show", "-s", "--format=%cs %h %s", revision)


def built(args):
    """The revisions that can be built, each once; the others are named and left out."""
    for name in dict.fromkeys(map(turns.resolve, args.revisions.split())):
        try:
            yield turns.Build(name[:12], turns.build_revision(name, args.builds, args.make).bench)
        except ResultError as e:
            say(f"left out: {e}")


def measure(args):
    """Measures the revisions into the folder, in place of those that are there."""
    options = turns.options_of(args, turns.Build("new", args.bench, args.embfuse))
    count, builds = turns.count_of(args, 7), list(built(args))
    if len(builds) < 2:
        raise ResultError("REVS: fewer than two of these revisions can be built")
    names = {b.name: f"{i:03d}-{b.name}.json.gz" for i, b in enumerate(builds)}
    more = {b.name: {"emb_revision": described(b.name), "emb_turns": str(len(builds))} for b in builds}

    def keep(parts):
        for build, part in parts.items():
            write(os.path.join(args.out, names[build]), part | {"context": part["context"] | more[build]})
        for old in filter(NAME.fullmatch, {*os.listdir(args.out)} - {*names.values()}):
            os.unlink(os.path.join(args.out, old))

    os.makedirs(args.out, exist_ok=True)
    turns.measure(builds, count, options, keep)


# --- the report
def commit(result):
    return str(result.context.get("emb_commit") or "?")[:9]


def named(result):
    """The revision as described(); of a result that does not say it, the hash."""
    return str(result.context.get("emb_revision") or commit(result)).replace("|", "\\|")


def together(results):
    """The last result with the samples of all, and what cut any short, for what is said of all."""
    context = dict(results[-1].context)
    for other in results[:-1]:
        add_cut_short(context, other.context)
    return replace(results[-1], context=context, series=[s for r in results for s in r.series])


def how(results):
    """How they were measured, if all took turns."""
    if any(r.context.get("emb_turns") != str(len(results)) for r in results):
        return []
    counts = sorted({len(s.samples) for r in results for s in r.series})
    return ["Each revision was built in a clone of its own, and all took turns: " + " or ".join(map(str, counts))
            + " samples of each kernel and workload.", ""]


def table(results, found):
    rows = [(named(results[c.at]), c.key[0], c.key[2], f"{c.effect.ratio:.2f}",
             f"{c.effect.low:.2f} to {c.effect.high:.2f}", c.word)
            for c in sorted(found, key=lambda c: (c.at, c.key))]
    heads = ("first revision", "workload", "kernel", "new/old", "95 % interval", "verdict")
    return markdown_table(heads, rows, left=(0, 1, 2, 5))


def draw(results, found, stem):
    """A panel per workload: median and quartiles of every kernel over the revisions, rings at changes."""
    paper.set_up()
    every, place = series_of(results), lambda key: (*key[:2], key[3])
    groups = list(dict.fromkeys(map(place, every)))
    figure, axes = paper.panels(paper.PAGE, len(groups), (1, 2), 1.9, sharex=True)
    for ax, group in zip(axes, groups):
        values = []
        for key, own in every.items():
            if place(key) != group:
                continue
            q = [s.quartiles("ns_per_lookup") for _, s in own]
            xs = [i for i, _ in own]
            mid = paper.marks(ax, list(zip(xs, q)), **paper.look(own[-1][1].kernel))
            values += mid
            at = dict(zip(xs, mid))
            rings = [(c.at, at[c.at]) for c in found if c.key == key]
            if rings:
                ax.plot(*zip(*rings), "o", ms=8, mfc="none", mec="#c00000", mew=0.9, label="change point")
        paper.log_axis(ax.yaxis, *nice_range(values))
        ax.set_title(" ".join(group))
        ax.set_xticks(range(len(results)), map(commit, results), rotation=90, fontsize=5.5, family="monospace")
    subject = f"Speed over {len(results)} revisions, oldest first; {paper.QUARTILES}"
    paper.finish(figure, axes, together(results), [], subject, "", "ns per lookup", [], "")
    return list(paper.save(figure, stem, ("svg",)))


def report(results, outdir, least):
    found = list(all_changes(results, least))
    stem = os.path.join(outdir, "history")
    pictures, whole = paper.if_possible(draw, results, found, stem), together(results)
    text = [f"# Speed over {len(results)} revisions", "", *how(results),
            *["![speed over revisions](history.svg)", ""] * bool(pictures), *whole.cautions("**"),
            f"From {named(results[0])} to {named(results[-1])}; {whole.machine()}.", "",
            *(table(results, found) if found else ["No change point."]), "",
            "- Ratio of the medians of the revisions before and after a change point. Changes below "
            f"{100 * least:.3g} % do not count. The first revision is the first that was measured: one that was left "
            "out may be the cause."]
    write_whole(stem + ".md", "\n".join(text) + "\n")
    return "\n".join(text), [stem + ".md", *pictures]


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("--revisions", default="", metavar="LIST", help="measure these, oldest first")
    parser.add_argument("--bench", metavar="PROGRAM", help="bench of this checkout")
    parser.add_argument("--embfuse", metavar="PROGRAM", help="embfuse of this checkout")
    parser.add_argument("--builds", default="build/against", help="folder for the revisions")
    parser.add_argument("--noise", default="", metavar="FILE", help="noise.json of this machine, by make noise")
    turns.add_arguments(parser, "history")
    args = parser.parse_args()
    if args.revisions:
        measure(args)
    results = read(args.out)
    least = max(MIN_EFFECT, compare.noise(args.noise, results[-1])[0])
    text, files = report(results, args.out, least)
    print(text + "\n\n" + "\n".join(files))
    return 2 if any(r.failures() for r in results) else 0


if __name__ == "__main__":
    program.run(main, "interrupted; the folder has the finished rounds, if any")
