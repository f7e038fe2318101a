#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables of what device kernels do, from what build/ptx/ARCH/counts wrote. Counted, not timed.

show       prints a table for every workload
lines      prints the lines of the source that move most, of counts --lines
write      writes extras/cuda/tests/golden/cuda_counts.txt again
compare    says what has got better and worse since then; status 3 if anything has changed"""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path[:0] = [os.path.join(ROOT, "reports"), os.path.join(ROOT, "extras", "cuda", "tests", "sass")]
from objects import demangle  # noqa: E402
from style import text_table  # noqa: E402

GOLDEN = os.path.join(ROOT, "extras", "cuda", "tests", "golden", "cuda_counts.txt")
CHANGED = 3
MEMORY = ("load", "store", "atomic", "reduction", "prefetch")
# Name in the golden file, and its value for a record. Of all but `used`, less is better.
COLUMNS = {
    "launches": lambda r: r["launches"],
    **{kind + ("es" if kind == "prefetch" else "s"): lambda r, kind=kind: r[kind]["requests"] for kind in MEMORY},
    "sectors": lambda r: sum(r[kind]["sectors"] for kind in MEMORY if kind != "prefetch"),
    "used": lambda r: sum(r[kind]["used"] for kind in MEMORY if kind != "prefetch"),
    "read": lambda r: r["compulsory_read"],
    "written": lambda r: r["compulsory_written"],
    "atomic_ops": lambda r: r["atomics"],
    "per_address": lambda r: r["most_per_address"],
    "chain": lambda r: r["chain"],
    "shared": lambda r: r["shared"]["requests"],
    "conflicts": lambda r: r["shared"]["ways"] - r["shared"]["least"],
    "barriers": lambda r: r["barriers"],
    "syncs": lambda r: r["syncs"],
    "shuffles": lambda r: r["shuffles"],
    "votes": lambda r: r["votes"] + r["reduces"],
    "matches": lambda r: r["matches"],
    "fences": lambda r: r["fences"],
    "lanes": lambda r: r["lanes"],
    "scratch": lambda r: r["scratch"],
}
COLUMN_LINE = "# " + " ".join(COLUMNS) + " function"
COLLECTIVES = ("shared", "conflicts", "barriers", "syncs", "shuffles", "votes", "matches", "fences")
MOST = ("per_address", "chain", "scratch")  # of several functions, the largest counts
MORE_IS_BETTER = ("used",)
NEUTRAL = ("lanes",)
HEAD = """\
# What device kernels do on the workloads of extras/cuda/counts/counts.spec: counted on the PTX lane, not timed. Exact: `make
# counts-renew` writes this file, extras/cuda/tests/test_counts.py compares. docs/cuda.md explains the columns. Functions of CUB
# are one line per kernel. Below each workload, rule and kernel stand its functions.
"""


def read_json(path):
    """The records, with the names of functions instead of symbols."""
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    names = demangle({r["function"] for r in records})
    return [{**r, "function": names[r["function"]]} for r in records]


def short(function):
    return "CUB" if function.startswith(("cub::", "_ZN3cub")) or "cub::" in function.split("<")[0] else function


def counted(records):
    """{(workload, rule, kernel): {function: {column: value}}}, in order."""
    result = {}
    for r in records:
        kernel = result.setdefault((r["workload"], r["rule"], r["kernel"]), {})
        values = {name: value(r) for name, value in COLUMNS.items()}
        sums = kernel.setdefault(short(r["function"]), dict.fromkeys(COLUMNS, 0))
        for name in COLUMNS:
            sums[name] = max(sums[name], values[name]) if name in MOST else sums[name] + values[name]
    return result


def text_of(counts, made_by):
    lines = [HEAD + f"# {made_by}", COLUMN_LINE]
    for key, functions in counts.items():
        lines.append(" ".join(key))
        lines += ["  " + " ".join(str(c[name]) for name in COLUMNS) + " " + f for f, c in functions.items()]
    return "\n".join(lines) + "\n"


def counts_in(text):
    """(made_by, counts) of a golden file; ends the program if its columns are others."""
    if COLUMN_LINE not in text.splitlines():
        sys.exit("table.py: the golden file has other columns; make counts-renew writes it again")
    result, kernel, made_by = {}, None, ""
    for line in text.splitlines():
        if line.startswith("# nvcc"):
            made_by = line[2:]
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" "):
            kernel = result.setdefault(tuple(line.split()), {})
            continue
        fields = line.split(None, len(COLUMNS))
        kernel[fields[-1]] = dict(zip(COLUMNS, map(int, fields)))
    return made_by, result


def judged(name, before, after):
    if name in NEUTRAL:
        return "other"
    return "better" if (after > before) == (name in MORE_IS_BETTER) else "worse"


def differences(before, after):
    """One line for each value that differs, the worst first."""
    found = []
    for key in [*before, *(k for k in after if k not in before)]:
        old, new = before.get(key), after.get(key)
        where = " ".join(key)
        if old is None or new is None:
            found.append((0, f"{where}: " + ("is new" if old is None else "is gone")))
            continue
        for f in [*old, *(f for f in new if f not in old)]:
            if f not in old or f not in new:
                found.append((0, f"{where} {f}: " + ("is new" if f not in old else "is gone")))
                continue
            for name in COLUMNS:
                a, b = old[f][name], new[f][name]
                if a != b:
                    share = f"{100 * (b / a - 1):+.1f} %" if a else "from 0"
                    found.append((-abs(b - a) / max(a, 1), f"{where} {f}: {name} {a} -> {b} "
                                  f"({judged(name, a, b)}, {share})"))
    return [line for _, line in sorted(found, key=lambda x: x[0])]


def percent(part, whole):
    return f"{100 * part / whole:.0f}" if whole else "-"


def shown(records):
    """The lines of a table for each workload and rule."""
    lines, per_workload = [], {}
    for r in records:
        per_workload.setdefault((r["workload"], r["rule"]), []).append(r)
    for (workload, rule), own in per_workload.items():
        rows = [["kernel", "function", "requests: load", "store", "atomic", "reduction", "prefetch", "MB", "used %",
                 "least MB", "atomics", "per address", "chain", *COLLECTIVES, "lanes"]]
        for (_, _, kernel), functions in counted(own).items():
            for f, c in functions.items():
                requests = sum(r["requests"] for r in own if (r["kernel"], short(r["function"])) == (kernel, f))
                rows.append([kernel if f == next(iter(functions)) else "", f,
                             *(str(c[n]) for n in ("loads", "stores", "atomics", "reductions", "prefetches")),
                             f"{c['sectors'] * 32 / 1e6:.3f}", percent(c["used"], 32 * c["sectors"]),
                             f"{(c['read'] + c['written']) * 32 / 1e6:.3f}", str(c["atomic_ops"]),
                             str(c["per_address"]), str(c["chain"]), *(str(c[n]) for n in COLLECTIVES),
                             f"{c['lanes'] / requests:.1f}" if requests else "-"])
        first = own[0]
        lines += [f"{workload}, {rule}: {first['lookups']} lookups, {first['unique']} unique rows (counted, not timed)",
                  *text_table(rows, left=(0, 1)), ""]
    return lines


def by_line(records, most=12):
    """The lines of a table of the source lines whose requests move the most sectors; of counts --lines."""
    rows = [["workload", "kernel", "function", "line", "requests", "sectors", "used %", "lanes"]]
    for r in records:
        sectors = lambda x: sum(x[kind]["sectors"] for kind in MEMORY)
        for x in sorted(r.get("lines", []), key=sectors, reverse=True)[:most]:
            if sectors(x):
                rows.append([f"{r['workload']} {r['rule']}", r["kernel"], short(r["function"])[:40],
                             "/".join(x["source"].split("/")[-3:]) + f":{x['line']}", str(x["requests"]), str(sectors(x)),
                             percent(sum(x[kind]["used"] for kind in MEMORY), 32 * sectors(x)),
                             f"{x['lanes'] / x['requests']:.1f}"])
    return text_table(rows, left=(0, 1, 2, 3)) if len(rows) > 1 else []


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=("show", "lines", "write", "compare"))
    p.add_argument("counts")
    p.add_argument("--made-by", default="nvcc unknown")
    p.add_argument("--golden", default=GOLDEN)
    o = p.parse_args()
    records = read_json(o.counts)
    if o.command == "show":
        print("\n".join(shown(records)))
    elif o.command == "lines":
        print("\n".join(by_line(records)))
    elif o.command == "write":
        with open(o.golden, "w", encoding="utf-8") as file:
            file.write(text_of(counted(records), o.made_by))
    else:
        found = differences(counts_in(open(o.golden, encoding="utf-8").read())[1], counted(records))
        print("\n".join(found))
        sys.exit(CHANGED if found else 0)


if __name__ == "__main__":
    main()
