#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two results of the same workloads, before and after: a verdict per row, which can be "unsure".

Rows are matched by workload, rule, kernel and mode. They must be of the same machine with as many
threads, and of the same work: shapes, types, operation, and fingerprints of ids (one per batch of the ring; a shorter
run may have fewer). A row is FASTER
or SLOWER only if its median moved by the minimum effect, a bootstrap interval of the ratio is on one side of
1, and the Mann-Whitney U test is significant after a correction for the number of rows; SAME only if the
whole interval is within the minimum effect; otherwise UNSURE. It is UNSURE, too, if half of the samples of a side
were disturbed: then its median may be of a disturbed sample. --noise takes the effect that identical code
shows on this machine (make noise); a smaller minimum effect is raised to it. Bytes and counts have no noise: MORE or
LESS by 1 % is a change.

Exit status: 0 same or better, 3 slower or larger, 4 unsure and nothing slower, 2 failed checks in the new result,
1 usage, unreadable or different work, or rows that only one side has (--allow-missing). The last line and
the file of --status-file repeat it, since make turns every failure into 2.
"""
import math
import re
import sys
from dataclasses import dataclass, replace

import compare_forms
import identity
import noise_floor
import program
from program import Arguments, ResultError, write_whole
from results import Series, load
from verdict import FAMILY, MIN_EFFECT, Effect, effect, words_of

MEANING = {0: "same or better", 1: "rows that only one side has; --allow-missing accepts them",
           2: "failed checks in the new result", 3: "slower or larger", 4: "unsure, and nothing slower"}
OTHER_MACHINE = "times of two machines or numbers of threads; --other-machine compares them all the same"
LEAST_CHANGE = 0.01  # of a number without noise
# What a run takes and launches, in the rows' counters; the runs of one build always agree.
EXACT = {"scratch_mib": "MiB of scratch", "persistent_mib": "MiB of weights and states",
         "launched_kernels": "kernels launched", "launched_memsets": "memsets launched", "launches": "launches"}


@dataclass(frozen=True)
class Row:
    old: Series
    new: Series
    effect: Effect  # None if a side has failed
    word: str

    @property
    def key(self):
        return self.old.key

    @property
    def disturbed(self):
        """True if the median of a side may be of a disturbed sample."""
        return any(2 * s.disturbed >= len(s.samples) for s in (self.old, self.new))


@dataclass(frozen=True)
class Change:
    """A change of a number without noise."""
    key: tuple
    what: str
    old: float
    new: float

    @property
    def word(self):
        return "MORE" if self.new > self.old else "LESS"


@dataclass(frozen=True)
class Comparison:
    old: object
    new: object
    least: float  # the smallest effect that counts
    rows: list
    changes: list
    missing: list  # lines about rows without a partner
    notes: list

    def doubts(self):
        """Lines about sides that are not whole, and about disturbed rows."""
        some = sum(r.disturbed for r in self.rows if r.effect)
        lost = f"{some} of {len(self.words())} rows are UNSURE: half of the samples of a side were disturbed"
        return [f"{r.path}: {r.cut_short()}" for r in (self.old, self.new) if r.cut_short()] + [lost] * bool(some)

    def words(self):
        return [r.word for r in self.rows if r.effect]

    def status(self, allow_missing=False):
        if self.new.failures():
            return 2
        if "SLOWER" in self.words() or any(c.word == "MORE" for c in self.changes):
            return 3
        if self.missing and not allow_missing:
            return 1
        return 4 if "UNSURE" in self.words() else 0


def match(old, new, other_work=False):
    """(pairs, lines about rows without a partner). Different work under one name is an error."""
    left, right = ({s.key: s for s in result.series} for result in (old, new))
    missing = [f"only in {r.path}: {' '.join(k)}"
               for r, own, other in ((old, left, right), (new, right, left))
               for k in own if k not in other]
    found = [(left[k], right[k]) for k in left if k in right]
    for a, b in found if not other_work else ():
        operations = f"operation is {a.operation}, and {b.operation}" if a.operation != b.operation else ""
        differs = identity.other_work(a.samples, b.samples) or operations or identity.other_text(old, new, a.workload)
        if differs:
            raise ResultError(f"{new.path}: {a.workload}, {a.kernel.name}: different work than in {old.path}: {differs};"
                              " --other-work compares the times all the same")
    if not found:
        raise ResultError(f"{old.path} and {new.path} have no row in common")
    return found, missing


def context_notes(old, new):
    """Other changes between the runs that could explain a difference."""
    keys = ("emb_isa", "emb_prefetch", "emb_compiler", "emb_flags", "emb_thp", "emb_virtualised",
            "emb_last_level_cache", "emb_nvcc")
    own, its = (identity.machine(r.context) for r in (old, new))
    both = [(k, own[k], its[k]) for k in own if k in its]
    # Where a build found its headers changes nothing.
    both += [(k[4:], *(re.sub(r" -I\S+", "", str(r.context.get(k))) for r in (old, new))) for k in keys]
    return [f"note: {k} differs: {a} -> {b}" for k, a, b in both if a != b]


def judged(pairs, least):
    """A Row per pair."""
    effects = [None if a.failed or b.failed else effect(a.times, b.times) for a, b in pairs]
    words = iter(words_of([e for e in effects if e], least, FAMILY))
    rows = [Row(a, b, e, next(words) if e else f"FAILED in {'new' if b.failed else 'old'}")
            for (a, b), e in zip(pairs, effects)]
    return [replace(r, word="UNSURE") if r.effect and r.disturbed else r for r in rows]


def changes(pairs):
    """The numbers without noise that changed, of pairs that did not fail."""
    for a, b in pairs:
        for key, what in EXACT.items():
            old, new = a.median(key), b.median(key)
            if None not in (old, new) and not (a.failed or b.failed) and abs(new - old) > LEAST_CHANGE * max(old, new):
                yield Change(a.key, what, old, new)


def noise(path, result):
    """(the effect of noise by a file of `make noise`, notes about it)."""
    if not path:
        return 0.0, []
    known = noise_floor.read(path)
    other = identity.other_machine(known.result.context, result.context, threads=True)
    if other:
        return 0.0, [f"note: {path} is of another machine, its {other} differs, and it is not used"]
    return known.floor, [f"noise: in 95 % of rows, identical code differs by less than {100 * known.floor:.1f} % here, "
                         f"with {known.samples} samples on each side ({path})"]


def compared(old, new, least=MIN_EFFECT, noise_file="", other_machine=False, other_work=False):
    """The Comparison of two results."""
    if not other_machine:
        identity.same_machine(old, new, OTHER_MACHINE, threads=True)
    pairs, missing = match(old, new, other_work)
    floor, notes = noise(noise_file, new)
    least = max(least, floor)
    return Comparison(old, new, least, judged(pairs, least), list(changes(pairs)), missing,
                      context_notes(old, new) + notes)


def main():
    parser = Arguments(__doc__)
    parser.add_argument("old", metavar="OLD.json")
    parser.add_argument("new", metavar="NEW.json")
    parser.add_argument("--min-effect", type=float, default=100 * MIN_EFFECT, metavar="PERCENT",
                        help="smaller changes of the median do not count (default 5)")
    parser.add_argument("--noise", default="", metavar="FILE", help="noise.json of this machine, by make noise")
    parser.add_argument("--allow-missing", action="store_true",
                        help="rows that only one side has are listed, but are not an error")
    parser.add_argument("--other-machine", action="store_true",
                        help="compare results of two machines, or with other threads")
    parser.add_argument("--other-work", action="store_true",
                        help="compare rows with other shapes, ids, types or operations")
    parser.add_argument("--markdown", metavar="FILE", help="also write a text for a pull request")
    parser.add_argument("--json", metavar="FILE", help="also write all figures")
    parser.add_argument("--status-file", metavar="FILE", help="write the exit status and its meaning here")
    args = parser.parse_args()
    try:
        if not 0 <= args.min_effect < math.inf:
            raise ResultError(f"--min-effect: {args.min_effect:g} is not a number of percent from 0 on")
        found = compared(load(args.old), load(args.new), args.min_effect / 100, args.noise, args.other_machine,
                         args.other_work)
        status = found.status(args.allow_missing)
        what = MEANING[status]
        print("\n".join([*compare_forms.text(found), f"status {status}: {what}"]))
        for path, form in ((args.markdown, compare_forms.markdown), (args.json, compare_forms.data)):
            if path:
                write_whole(path, form(found, status, what))
    except ResultError as e:
        status, what = 1, str(e)
        print(f"compare.py: {e}", file=sys.stderr)
    if args.status_file:
        write_whole(args.status_file, f"status {status}: {what}\n")
    return status


if __name__ == "__main__":
    program.run(main)
