#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the peers of a result with the suite's fused kernel: ns per lookup, and the ratio of times.

Below the table it lists each case in which a peer is faster than a kernel. --markdown prints a page;
--update writes it between `<!-- table NAME -->` and `<!-- end NAME -->` in a file.
"""
from statistics import median

import program
import section
from program import Arguments, ResultError
from results import ITERATION, PEERS, WRONG, caches, load, marks_explained, spread
from style import markdown_table, number, text_table
from verdict import add_precision


def is_peer(kernel):
    return kernel.family in PEERS


def by_rule(result, mode):
    """The groups, sorted by rule; an error if no peer is in them."""
    groups = result.groups(mode)
    if not any(is_peer(s.kernel) for g in groups for s in g.series):
        raise ResultError(f"{result.path}: has no peers; make peers measures them")
    rules = list(dict.fromkeys(g.rule for g in groups))
    return sorted(groups, key=lambda g: rules.index(g.rule))


def cell(series, group, base):
    if series is None:
        return "-"
    if series.failed:
        return "FAILED"
    base = group.of(base)
    times = f" ({number(series.ns / base.ns)}x)" if base and series is not base else ""
    return number(series.ns) + group.mark(series) + times


def table(result, groups, base):
    """(heads, rows)"""
    used = {s.kernel.name for g in groups for s in g.series}
    names = [base] + [k for k in result.kernels if k in used and is_peer(result.kernels[k])]
    rows = []
    for g in groups:
        found = {s.kernel.name: s for s in g.series}
        rows.append((g.rule, g.workload, *(cell(found.get(n), g, base) for n in names)))
    return ("rule", "workload", *names), rows


def faster(groups, base):
    """A line for each peer and each kernel with the same operation that it beats, with the places."""
    places = {}
    for g in groups:
        for peer in (s for s in g.measured() if is_peer(s.kernel)):
            for s in g.measured():
                if not is_peer(s.kernel) and s.operation == peer.operation and peer.ns < s.ns:
                    rules = places.setdefault((peer.kernel.name, s.kernel.name), {})
                    rules.setdefault(g.rule, []).append(f"{g.workload} {number(s.ns / peer.ns)}x")
    out = [f"{peer} is faster than {kernel}: " +
           "; ".join(f"{rule} on {', '.join(where)}" for rule, where in rules.items()) + "."
           for (peer, kernel), rules in places.items()]
    own = {s.kernel.name for g in groups for s in g.measured() if not is_peer(s.kernel)}
    slower = own - {kernel for _, kernel in places}
    first = sorted(slower, key=lambda k: (k != base, k))
    words = ", ".join(first[:-1]) + " or " * (len(first) > 1) + first[-1] if first else ""
    return ([f"No peer is faster than {words}."] if first else []) + out


def notes(result, groups):
    context, measured = result.context, [s for g in groups for s in g.measured()]
    out = [f"{k} on {w}: {why}" for w, k, why in result.not_run
           if w != "*" and not why.startswith(WRONG)]
    out += [f"FAILED {kernel} on {workload}: {why}" for kernel, workload, why in result.failures(groups)]
    for key, text in context.items():
        name = next((k for k in result.kernels if key.startswith(f"emb_peer_{k}_")), None)
        if name:
            out.append(f"{name}, {key[len(f'emb_peer_{name}_'):]}: {text}.")
    serial = context.get("emb_fbgemm_openmp") == "no" and str(context.get("emb_threads")) != "1"
    if serial and any(s.kernel.family == "fbgemm" for s in measured):
        out.append("This FBGEMM is built without OpenMP: it sorts on all threads, by PyTorch's copy of "
                   "that code, and does the rest on one.")
    return out + marks_explained(groups)


def legend(result, groups, base):
    context, measured = result.context, [s for g in groups for s in g.measured()]
    spreads = [spread(s.quartiles("ns_per_lookup")) for s in measured if len(s.samples) > 2]
    mode = groups[0].mode
    what = "forward, backward" if mode == ITERATION else "backward"
    text = (f"ns per lookup of {what} and optimizer, median, {caches(mode)}; in brackets the "
            f"time over that of {base}. -: no such optimizer, or see below. ")
    if spreads:
        text += (f"Half the quartile range: {100 * median(spreads):.1f} % of the median, at most "
                 f"{100 * max(spreads):.0f} %. ")
    return text + (f"PyTorch {context.get('emb_torch', '?')}, FBGEMM {context.get('emb_fbgemm', '?')}; "
                   f"{result.machine()}; {str(context.get('emb_date', '?'))[:10]}.")


def page(result, groups, base, picture=None):
    """The comparison as Markdown."""
    shown = [f"![Peers beside the suite's kernels]({picture})", ""] if picture else []
    lines = faster(groups, base) + notes(result, groups)
    return [*result.cautions("**", groups), *shown, *markdown_table(*table(result, groups, base), left=(0, 1)), "",
            legend(result, groups, base), "", *(f"- {x}" for x in lines)]


def plain(result, groups, base):
    heads, rows = table(result, groups, base)
    return [*result.cautions(groups=groups), *text_table([heads, *rows], left=(0, 1)), "",
            legend(result, groups, base), "", *faster(groups, base), *notes(result, groups)]


def main():
    parser = Arguments(__doc__)
    parser.add_result()
    parser.add_argument("--base", default="cpu_fused", help="kernel to compare with")
    parser.add_argument("--markdown", action="store_true")
    add_precision(parser)
    section.add_arguments(parser, "peers")
    parser.add_argument("--picture", metavar="FILE", help="shown above the table of a page")
    args = parser.parse_args()
    result = load(args.result, args.precision)
    groups = by_rule(result, result.mode(args.mode))
    lines = (page(result, groups, args.base, args.picture) if args.markdown or args.update
             else plain(result, groups, args.base))
    section.print_or_update(args, "\n".join(lines))


if __name__ == "__main__":
    program.run(main)
