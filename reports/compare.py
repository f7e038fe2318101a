#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two results of the same workloads, before and after: a verdict per row, which can be "unsure".

Rows are matched by workload, rule, kernel and mode. They must have the same operation and the same
fingerprints of ids (one per batch of the ring; a shorter run may have fewer): times of different work are
never compared. A row is FASTER or SLOWER only if the Mann-Whitney U test on the raw times is significant
AND the median moved by the minimum effect; SAME only if the medians are close AND noise could not hide
such an effect; otherwise UNSURE.

Exit status: 0 same or faster, 3 slower, 4 unsure and nothing slower, 2 failed checks in the new result,
1 usage, unreadable or different work, or rows that only one side has (--allow-missing). The last line and
the file of --status-file repeat it, since make turns every failure into 2.
"""
import math
import statistics
import sys

import program
from program import Arguments, ResultError, write_whole
from ranks import LEVEL, mann_whitney
from results import load, quartiles

MEANING = {0: "same or faster", 1: "rows that only one side has; --allow-missing accepts them",
           2: "failed checks in the new result", 3: "slower", 4: "unsure, and nothing slower"}


def resolution(times):
    """The uncertainty of the median as a share of it: half the notch of a box plot
    (McGill, Tukey, Larsen 1978: 1.57 IQR / sqrt(n))."""
    low, mid, high = quartiles(times)
    return 1.57 * (high - low) / math.sqrt(len(times)) / mid


def verdict(old, new, min_effect, level):
    """(verdict, ratio of the medians, p) of two lists of times."""
    ratio, p = statistics.median(new) / statistics.median(old), mann_whitney(old, new)
    shift = abs(math.log(ratio))
    if shift >= math.log1p(min_effect):
        if p < level:
            return ("SLOWER" if ratio > 1 else "FASTER"), ratio, p
        return "UNSURE", ratio, p
    noise = max(resolution(old), resolution(new))
    return ("SAME" if old == new or noise < min_effect else "UNSURE"), ratio, p


def match(old, new):
    """(pairs, lines about rows without a partner). Different work under one name is an error."""
    left, right = ({s.key: s for s in result.series} for result in (old, new))
    missing = [f"only in {r.path}: {' '.join(k)}"
               for r, own, other in ((old, left, right), (new, right, left))
               for k in own if k not in other]
    found = [(left[k], right[k]) for k in left if k in right]
    for a, b in found:
        ids, other = a.fingerprints, b.fingerprints
        if not (ids <= other or other <= ids) or a.operation != b.operation:
            raise ResultError(f"{a.workload}, {a.kernel.name}: fingerprints {','.join(sorted(ids))} and "
                              f"{','.join(sorted(other))}, operations {a.operation} and {b.operation}: "
                              "different work is not compared")
    if not found:
        raise ResultError(f"{old.path} and {new.path} have no row in common")
    return found, missing


def context_notes(old, new):
    """Other changes between the runs that could explain a difference."""
    keys = ("emb_cpu", "emb_isa", "emb_prefetch", "emb_threads", "emb_compiler", "emb_flags", "emb_thp",
            "emb_virtualised", "emb_last_level_cache", "emb_gpu", "emb_gpu_driver", "emb_nvcc")
    return [f"note: {k[4:]} differs: {old.context.get(k)} -> {new.context.get(k)}"
            for k in keys if old.context.get(k) != new.context.get(k)]


def report(pairs, min_effect, level):
    """Prints a line per pair; returns the verdicts and ratios of the pairs that can be compared."""
    verdicts, ratios = [], []
    width = max(len(" ".join(a.key)) for a, _ in pairs)
    print(f"{'workload rule kernel mode':{width}}  {'old ms':>9}  {'new ms':>9}  {'new/old':>7}"
          f"  {'p':>7}  verdict")
    for a, b in pairs:
        name = f"{' '.join(a.key):{width}}"
        if a.failed or b.failed:
            print(f"{name}  FAILED in {'new' if b.failed else 'old'}, not compared")
            continue
        word, ratio, p = verdict(a.times, b.times, min_effect, level)
        verdicts.append(word)
        ratios.append(ratio)
        print(f"{name}  {statistics.median(a.times):9.3f}  {statistics.median(b.times):9.3f}"
              f"  {ratio:7.3f}  {p:7.4f}  {word}")
    return verdicts, ratios


def main():
    parser = Arguments(__doc__)
    parser.add_argument("old", metavar="OLD.json")
    parser.add_argument("new", metavar="NEW.json")
    parser.add_argument("--min-effect", type=float, default=5, metavar="PERCENT",
                        help="smaller changes of the median do not count (default 5)")
    parser.add_argument("--alpha", type=float, default=LEVEL, help=f"level of significance ({LEVEL})")
    parser.add_argument("--allow-missing", action="store_true",
                        help="rows that only one side has are listed, but are not an error")
    parser.add_argument("--status-file", metavar="FILE", help="write the exit status and its meaning here")
    args = parser.parse_args()
    try:
        status = compared(args)
        what = MEANING[status]
        print(f"status {status}: {what}")
    except ResultError as e:
        status, what = 1, str(e)
        print(f"compare.py: {e}", file=sys.stderr)
    if args.status_file:
        write_whole(args.status_file, f"status {status}: {what}\n")
    return status


def compared(args):
    """The exit status."""
    old, new = load(args.old), load(args.new)
    pairs, missing = match(old, new)
    for result in (old, new):
        for line in result.doubts():
            print(f"{result.path}: {line}")
    print("\n".join(context_notes(old, new) + missing) or "same machine and build settings")
    verdicts, ratios = report(pairs, args.min_effect / 100, args.alpha)
    if ratios:
        print(f"geometric mean of new/old: {statistics.geometric_mean(ratios):.3f}; "
              + ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))))
    if "UNSURE" in verdicts:
        print("UNSURE: too much noise or too few repetitions; p < 0.01 needs at least 5 on each side")
    for failure in new.failures():
        print("FAILED in new: " + ", ".join(failure))
    if new.failures():
        return 2
    if "SLOWER" in verdicts:
        return 3
    if missing and not args.allow_missing:
        return 1
    return 4 if "UNSURE" in verdicts else 0


if __name__ == "__main__":
    program.run(main)
