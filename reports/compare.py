#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two results of the same workloads, before and after: a verdict per row that can say "unsure".

Rows are matched by workload, rule, kernel and mode, and must have the same fingerprints of ids
(one per batch of the ring; a shorter run may have seen fewer) and the same operation: times of
different work are not compared at all. A row is FASTER or SLOWER only
if the Mann-Whitney U test on the raw times is significant AND the median moved by the minimum
effect; SAME only if the medians are close AND the noise could not hide such an effect; else UNSURE.

Exit status: 0 same or faster, 3 slower, 4 unsure and nothing slower, 2 the new result holds failed
checks, 1 usage, unreadable or different work, or rows that only one side has (--allow-missing).
"""
import math
import statistics
import sys

from results import Arguments, ResultError, load, quartiles

EXACT_UP_TO = 40  # samples of both sides; beyond it the normal approximation is as good


def midranks(values):
    """Twice the rank of each value, ties sharing their mean: integers."""
    order, ranks, i = sorted(values), {}, 0
    while i < len(order):
        n = order.count(order[i])
        ranks[order[i]] = 2 * i + 1 + n
        i += n
    return [ranks[v] for v in values]


def exact_p(ranks, n, total):
    """Two-sided p of the rank sum `total` of the first n: over all choices of n, ties included."""
    ways = [{0: 1}] + [{} for _ in range(n)]  # ways[k][s]: choices of k ranks with the sum s
    for rank in ranks:
        for k in range(n, 0, -1):
            for s, count in ways[k - 1].items():
                ways[k][s + rank] = ways[k].get(s + rank, 0) + count
    mean = n * sum(ranks) / len(ranks)
    far = sum(c for s, c in ways[n].items() if abs(s - mean) >= abs(total - mean))
    return far / math.comb(len(ranks), n)


def mann_whitney(a, b):
    """Two-sided p that a and b come from one distribution (Mann and Whitney 1947): exact for few
    samples, else normal with the correction for ties and for continuity."""
    ranks, n, m = midranks(a + b), len(a), len(b)
    total = sum(ranks[:n])
    if n + m <= EXACT_UP_TO:
        return exact_p(ranks, n, total)
    mean = sum(ranks) / (n + m)
    variance = n * m / (n + m) / (n + m - 1) * sum((r - mean)**2 for r in ranks)
    if variance == 0:
        return 1.0
    z = max(0.0, abs(total - n * mean) - 1.0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def resolution(times):
    """Half the notch of a box plot as a share of the median: what the median is uncertain by
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


def shown(fingerprints):
    return ",".join(sorted(fingerprints))


def by_key(result):
    return {s.key: s for s in result.series}


def match(old, new):
    """(pairs, lines about what has no partner). Different work under one name is an error."""
    left, right = by_key(old), by_key(new)
    missing = [f"only in {r.path}: {' '.join(k)}"
               for r, own, other in ((old, left, right), (new, right, left))
               for k in own if k not in other]
    found = [(left[k], right[k]) for k in left if k in right]
    for a, b in found:
        ids, other = a.fingerprints, b.fingerprints
        if not (ids <= other or other <= ids) or a.operation != b.operation:
            raise ResultError(f"{a.workload}, {a.kernel.name}: fingerprints {shown(ids)} and "
                              f"{shown(other)}, operations {a.operation} and {b.operation}: "
                              "different work is not compared")
    if not found:
        raise ResultError(f"{old.path} and {new.path} have no row in common")
    return found, missing


def context_notes(old, new):
    """What else changed between the runs and could explain a difference."""
    keys = ("emb_cpu", "emb_isa", "emb_threads", "emb_compiler", "emb_flags", "emb_thp",
            "emb_virtualised", "emb_gpu", "emb_gpu_driver", "emb_nvcc")
    return [f"note: {k[4:]} differs: {old.context.get(k)} -> {new.context.get(k)}"
            for k in keys if old.context.get(k) != new.context.get(k)]


def report(pairs, min_effect, level):
    """Prints a line per pair; the verdicts, and the ratios of those that have one."""
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
    parser = Arguments(prog="compare.py", description=__doc__.split("\n")[0])
    parser.add_argument("old", metavar="OLD.json")
    parser.add_argument("new", metavar="NEW.json")
    parser.add_argument("--min-effect", type=float, default=5, metavar="PERCENT",
                        help="smaller changes of the median do not count (default 5)")
    parser.add_argument("--alpha", type=float, default=0.01, help="level of the test (0.01)")
    parser.add_argument("--allow-missing", action="store_true",
                        help="rows that only one side has are listed, but are no error")
    args = parser.parse_args()
    old, new = load(args.old), load(args.new)
    pairs, missing = match(old, new)
    print("\n".join(context_notes(old, new) + missing) or "same machine and build settings")
    verdicts, ratios = report(pairs, args.min_effect / 100, args.alpha)
    if ratios:
        print(f"geometric mean of new/old: {statistics.geometric_mean(ratios):.3f}; "
              + ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))))
    if "UNSURE" in verdicts:
        print("UNSURE: too noisy or too few repetitions to tell; 5 each are the least for p < 0.01")
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
    try:
        sys.exit(main())
    except ResultError as e:
        sys.exit(f"compare.py: {e}")
