#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finds the fastest prefetches of this machine: runs extras/studies/tune/tune.c, shows what it tried and the setting
to use, and writes OUTDIR/tune.json.

Exit status: 0 fine, 1 usage or environment.
"""
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from merge import read
from program import Arguments, ResultError, write_whole
from results import words
from style import markdown_table, number, text_table

KERNEL, RULE = "cpu_fused", "rowwise_adagrad"
LAST = "the choice beside the default"  # the name of the last part


def read_lines(lines):
    """(context, samples) of the JSON that a program prints: a sample names its part."""
    found = [json.loads(line) for line in lines]
    context = {"num_cpus": os.cpu_count()}
    for x in found:
        context |= {} if "part" in x else x
    return context, [x for x in found if "part" in x]


def result(lines):
    """The usual schema, from the lines of the program; kernels are named KERNEL@CHOICE."""
    (context, samples), rows = read_lines(lines), []
    for x in samples:
        kernel = f"{KERNEL}@{x['choice']}"
        name = f"{x['workload']}/{RULE}/{kernel}/turns"
        label = {"workload": x["workload"], "rule": RULE, "kernel": kernel, "mode": "turns", "place": "host"}
        rows.append({"name": name, "run_name": name, "run_type": "iteration", "iterations": 1,
                     "real_time": x["ns_per_lookup"], "time_unit": "ns", "ns_per_lookup": x["ns_per_lookup"],
                     "label": " ".join(f"{k}={v}" for k, v in label.items()), "part": x["part"]})
    return {"context": context, "benchmarks": rows}


def parts(data):
    """{part: {choice: {workload: times}}}, in the order of measurement"""
    found = {}
    for row in data["benchmarks"]:
        label = words(row)
        by = found.setdefault(row["part"], {}).setdefault(label["kernel"].partition("@")[2], {})
        by.setdefault(label["workload"], []).append(row["ns_per_lookup"])
    return found


def geometric_mean(by):
    return statistics.geometric_mean(map(statistics.median, by.values()))


def rows_of(part):
    """(choice, time per workload ..., time over the fastest's) of a part."""
    least = min(map(geometric_mean, part.values()))
    for choice, by in part.items():
        times = (number(statistics.median(t)) for t in by.values())
        yield choice, *times, f"{geometric_mean(by) / least:.2f}"


def heads(data):
    workloads = dict.fromkeys(words(row)["workload"] for row in data["benchmarks"])
    return ["choice", *(f"{w}, ns" for w in workloads), "over the fastest"]


def gain(data):
    """One line: what to use, and what it gains over the default."""
    chosen, default = data["context"]["emb_tune_chosen"], data["context"]["emb_tune_default"]
    last = parts(data)[LAST]
    ratio = {choice: geometric_mean(by) / geometric_mean(last[default]) for choice, by in last.items()}
    if chosen != default:
        return f"EMBFUSE_PREFETCH={chosen} takes {ratio[chosen]:.2f} of the time of the default."
    others = [r for choice, r in ratio.items() if choice != default]
    if not others:
        return "Keep the default: it was the fastest."
    return f"Keep the default: the fastest other takes {others[0]:.2f} of its time, and a change must gain 2 %."


def page(path):
    """The lines of a section: every part."""
    data = read(path)
    out = [gain(data), ""]
    for name, part in parts(data).items():
        out += [f"**{name}**", "", *markdown_table(heads(data), rows_of(part)), ""]
    return out[:-1]


def measured(command, result_of, path):
    """What a program prints, as a result, which the file keeps."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ResultError(f"{command[0]} ended with status {done.returncode}")
    data = result_of(done.stdout.splitlines())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_whole(path, json.dumps(data, indent=1))
    return data


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--tune", default="build/extras/studies/tune/tune", help="the program")
    parser.add_argument("--threads", default=str(len(os.sched_getaffinity(0))))
    parser.add_argument("--rows", default="4000000", help="of the table, 256 bytes each")
    parser.add_argument("--seconds", default="8.5")
    args = parser.parse_args()
    data = measured([args.tune, args.threads, args.seconds, args.rows], result, os.path.join(args.outdir, "tune.json"))
    for name, part in parts(data).items():
        print(f"\n{name}")
        print("\n".join(text_table([heads(data), *rows_of(part)])))
    print(f"\n{gain(data)}")
    return 0


if __name__ == "__main__":
    program.run(main)
