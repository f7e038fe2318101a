# SPDX-License-Identifier: MIT
"""The committed table of what every kernel compiles to, extras/cuda/tests/golden/cuda_sass.txt, and what has got worse since."""
import re

MORE_IS_BETTER = "warps", "flight16", "flight8", "flight4", "flight2"
LESS_IS_BETTER = ("match", "match_in_loops", "membar", "membar_sc", "ivall", "atom", "cas", "bar", "local", "generic",
                  "double", "division", "stack", "shared")
WITHIN = {"code": 1.05, "slots": 1.05}  # may grow by this factor
# Neither better nor worse:
RECORDED = "registers", "block", "gathers", "shfl", "vote", "mufu", "red", "global", "prefetch", "async"
ALL = "code", "registers", "block", "shared", "stack", "warps", "gathers", "flight16", "flight8", "flight4", "flight2"
ALL += ("slots", *(name for name in LESS_IS_BETTER + RECORDED if name not in ALL))


def number(value):
    return str(int(value)) if value == int(value) else f"{value:g}"


HEAD = """\
# What every kernel compiles to: file, kernel, architecture, and what is not 0 of code (bytes), registers, block (its
# most threads), shared (bytes, static) and stack, warps (that an SM can hold), gathers (loops that gather rows),
# flight16 and flight8 (the fewest loads of that many bytes that they have in flight; flight4 and flight2: single
# elements), slots (instructions of a turn of such a loop per 16-byte load), and counts of instructions
# (extras/cuda/tests/sass/metrics.py). extras/cuda/tests/test_nvcc.py compares the build with this file, and `make resources` writes it.
"""


def write_table(path, kernels, release):
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD + f"# nvcc {release}\n")
        for (source, name, arch), m in sorted(kernels.items()):
            values = " ".join(f"{what} {number(m[what])}" for what in ALL if m.get(what))
            file.write(f"{source} {name} sm_{arch}: {values}\n")


def read_table(path):
    """(release of nvcc, {(source, name, architecture): metrics})"""
    release, kernels = None, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if found := re.match(r"# nvcc (\S+)$", line):
                release = found[1]
            elif found := re.match(r"([^#\s]\S*) (.*) sm_(\d+): (.*)$", line):
                words = found[4].split()
                kernels[found[1], found[2], int(found[3])] = dict(zip(words[::2], map(float, words[1::2])))
    return release, kernels


def compare(new, old):
    """([what is worse], [what is better or only other]) of one kernel, as "metric old -> new"."""
    worse, other = [], []
    for what in ALL:
        now, before = new.get(what, 0), old.get(what, 0)
        if now == before:
            continue
        bad = (now < before if what in MORE_IS_BETTER else now > before if what in LESS_IS_BETTER else
               now > before * WITHIN[what] if what in WITHIN else False)
        (worse if bad else other).append(f"{what} {number(before)} -> {number(now)}")
    return worse, other


def of_arch(kernels, arch):
    return {key: m for key, m in kernels.items() if key[2] == arch}


def compare_all(new, old):
    """(lines that fail, lines to know) of all kernels."""
    fails, notes = [], []
    for key in sorted(new.keys() | old.keys()):
        name = f"{key[0]} {key[1]} sm_{key[2]}"
        if key not in old or key not in new:
            fails.append(f"{name} is not in the {'table' if key in new else 'build'}")
            continue
        worse, other = compare(new[key], old[key])
        if worse:
            fails.append(f"{name}: {', '.join(worse)}" + (f" ({', '.join(other)})" if other else ""))
        elif other:
            notes.append(f"{name}: {', '.join(other)}")
    return fails, notes
