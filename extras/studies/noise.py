#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The noise of this machine: the same program takes turns with itself, and both sides are compared. OUT/noise.json
keeps all samples; OUT/noise.md and noise.svg say how small an effect compare.py can find here.

Each comparison has REPS samples on each side. A slowdown is planted by multiplying the times of one side, so that
what is found is known. With --pairs whole runs of bench are measured instead, one after the other, and OUT/pairs.md
says how often two runs of a pair agree on the rows that may be quoted. Exit status: 0 fine, 1 usage or environment,
2 a wrong result.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import noise_floor
import paper
import program
import turns
from noise_floor import SHARE, SIDES, floor_of
from parts import write
from program import Arguments, ResultError, say, write_whole
from results import load
from style import markdown_table
from verdict import MIN_EFFECT, add_precision, effect, interval, words_of

PLANTED = (0.0, 0.05, 0.1, 0.2)                      # of the table
DRAWN = (0.0, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3)
WORDS = ("SLOWER", "UNSURE", "SAME", "FASTER")
COLOURS = ("#c8553d", "#999999", "#2f6f9f", "#44aa99")


def judged(noise, planted):
    """{comparison: [word of each row]} if the new code were slower by this share."""
    found = {}
    for i in sorted({p.comparison for p in noise.pairs}):
        others = [p.ratio for p in noise.pairs if p.comparison != i] or [p.ratio for p in noise.pairs]
        effects = [effect(p.old, [t * (1 + planted) for t in p.new]) for p in noise.pairs if p.comparison == i]
        found[i] = words_of(effects, max(MIN_EFFECT, floor_of(others)))
    return found


def shares(found):
    """The share of rows with each word."""
    words = [w for row in found.values() for w in row]
    return [words.count(w) / len(words) for w in WORDS]


def false_ones(found):
    """One line about the verdicts on identical code."""
    wrong = sum(any(w in ("SLOWER", "FASTER") for w in row) for row in found.values())
    return f"**{wrong} of {len(found)} comparisons of identical code had a false verdict.**"


def page(result):
    """The lines of a section of a page."""
    noise = noise_floor.of(result)
    by = {p: judged(noise, p) for p in PLANTED}
    percent = lambda x: f"{100 * x:.1f} %"
    ratios = [p.ratio for p in noise.pairs]
    floors = markdown_table(("of the rows", "half", "95 %", "99 %", "all"),
                            [("differ by less than", *(percent(floor_of(ratios, q)) for q in (0.5, 0.95, 0.99, 1)))])
    found = markdown_table(("planted", *WORDS, "comparisons with a SLOWER row"), [
        (f"{100 * p:.0f} %", *(percent(s) for s in shares(f)),
         f"{sum('SLOWER' in row for row in f.values())} of {len(f)}") for p, f in by.items()])
    return [f"In {100 * SHARE:.0f} % of rows, identical code differs by less than {100 * noise.floor:.1f} %, with "
            f"{noise.samples} samples on each side. No smaller change counts here.", "", *floors, "",
            "What compare.py finds if the times of one side are multiplied:", "", *found, "", false_ones(by[0.0])]


def draw(noise, stem):
    """The share of every verdict over the planted slowdown."""
    paper.set_up()
    figure, (ax,) = paper.panels(paper.PAGE, 1, (1, 1), 2.2)
    curves = list(zip(*(shares(judged(noise, p)) for p in DRAWN)))
    for word, colour, values in zip(WORDS, COLOURS, curves):
        ax.plot([100 * p for p in DRAWN], [100 * v for v in values], "o-", color=colour, label=word)
    ax.axvline(100 * noise.floor, color=paper.GREY, lw=0.9, ls="--", label="floor of noise")
    ax.set(xlim=(-0.5, 100 * DRAWN[-1] + 0.5), ylim=(-2, 102))
    paper.finish(figure, [ax], noise.result, [], "What compare.py finds", "planted slowdown, %", "rows, %", [], "")
    return list(paper.save(figure, stem, ("svg",)))


def report(noise, outdir):
    own, result = os.path.join(outdir, "noise"), noise.result
    text = "\n".join([
        "# The noise of a machine", "", "`make noise` makes this page: the same program took turns with itself. "
        f"{result.machine()}; {str(result.context.get('emb_date', '?'))[:10]}.", "",
        "![share of each verdict over the planted slowdown](noise.svg)", "", *page(result), "",
        "Each comparison is judged like any other, with the floor of the other comparisons. A slowdown that is as large "
        "as the least effect is found in half the rows at best."]) + "\n"
    write_whole(own + ".md", text)
    return text, [own + ".md", *paper.if_possible(draw, noise, own)]


# --- pairs of whole runs
def quoted(group, series, best):
    """(what a row says, its interval): its time over that of this kernel; of the kernel itself, its time."""
    return interval(*series.beside(None if series.kernel.name == best else group.of(best)))


def compared(first, second):
    """(whether both may be quoted, whether the intervals overlap, ratio of what they say) of each row of two runs."""
    for a in (g for mode in dict.fromkeys(s.mode for s in first.series) for g in first.groups(mode)):
        b = next(g for g in second.groups(a.mode) if (g.workload, g.rule) == (a.workload, a.rule))
        best = a.best() and b.of(a.best().kernel.name) and a.best().kernel.name
        for s, other in ((s, b.of(s.kernel.name)) for s in a.measured() if best):
            if other:
                (one, low, high), (two, bottom, top) = quoted(a, s, best), quoted(b, other, best)
                yield bool(a.quotable(s) and b.quotable(other)), low <= top and bottom <= high, two / one


def agreement(pairs):
    """The page about pairs of runs, as lines."""
    rows, lines = [row for pair in pairs for row in compared(*pair)], []
    for name, some in (("quotable in both runs", [r for r in rows if r[0]]), ("others", [r for r in rows if not r[0]])):
        agree = f"{100 * sum(r[1] for r in some) / len(some):.1f} %" if some else "-"
        lines.append((name, str(len(some)), agree, f"{100 * floor_of(r[2] for r in some):.1f} %" if some else "-"))
    first = pairs[0][0]
    return ["# Rows that may be quoted, twice", "", f"{len(pairs)} pairs of whole runs of one program, by `make noise "
            f"PAIRS={len(pairs)}`; a row may be quoted if it is known within {100 * first.precision:g} %. "
            f"{first.machine()}; {str(first.context.get('emb_date', '?'))[:10]}.", "",
            *markdown_table(("rows", "number", "intervals overlap", f"{100 * SHARE:.0f} % differ by less than"), lines)]


def whole_runs(args):
    """Measures pairs of runs with the options of bench, into folders of OUT; returns the results."""
    given = [f"--{o}={getattr(args, o)}" for o in (*turns.OPTIONS, "visits", "seconds") if getattr(args, o)]
    if args.seconds:
        given.append(f"--precision={100 * args.precision:g}")
    pairs = []
    for i in range(1, args.pairs + 1):
        folders = [os.path.join(args.out, f"pair-{i}-{side}") for side in SIDES]
        for folder in folders:
            say(f"pair {i} of {args.pairs}: {folder}")
            turns.call([args.bench, *given, f"--out={folder}"], {})
        pairs.append([load(os.path.join(folder, "bench.json"), args.precision) for folder in folders])
        write_whole(os.path.join(args.out, "pairs.md"), "\n".join(agreement(pairs)) + "\n")
    return pairs


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("--bench", required=True, metavar="PROGRAM")
    parser.add_argument("--embfuse", metavar="PROGRAM")
    parser.add_argument("--comparisons", type=int, default=2, help="of REPS samples each (2)")
    parser.add_argument("--pairs", type=int, default=0, help="of whole runs, instead of comparisons")
    parser.add_argument("--visits", default="", help="of pairs: as in bench")
    parser.add_argument("--seconds", default="", help="of pairs: as in bench")
    add_precision(parser)
    turns.add_arguments(parser, "noise")
    args = parser.parse_args()
    path, count = os.path.join(args.out, "noise.json"), turns.count_of(args, 7)
    if not 1 <= args.comparisons <= 1000:
        raise ResultError(f"COMPARISONS: {args.comparisons} is not from 1 to 1000")
    if not 0 <= args.pairs <= 1000:
        raise ResultError(f"PAIRS: {args.pairs} is not from 1 to 1000")
    os.makedirs(args.out, exist_ok=True)
    if args.pairs:
        pairs = whole_runs(args)
        print("\n".join(agreement(pairs)))
        return 2 if any(r.failures() for pair in pairs for r in pair) else 0
    builds = [turns.Build(side, args.bench, args.embfuse) for side in SIDES]
    turns.measure(builds, count * args.comparisons, turns.options_of(args, builds[0]),
                  lambda parts: write(path, turns.joined(parts, {"emb_noise_samples": str(count)})))
    noise = noise_floor.read(path)
    text, files = report(noise, args.out)
    print(text + "\n" + "\n".join([path, *files]))
    return 2 if noise.result.failures() else 0


if __name__ == "__main__":
    program.run(main, "interrupted; noise.json has the finished rounds, if any")
