#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the house may weigh. A commit that raises a number says why; one that makes something smaller lowers it."""
import os
import re
import subprocess
import sys

import tap

# Lines, words or files: at most.
BUDGETS = {
    "core": 37750,                # lines of code outside of its tests
    "core tests": 14150,
    "extras": 36350,
    "extras tests": 15060,
    "words of Markdown": 30000,   # outside of results: reports/results/ and the study/ of an extra
    "lines of README.md": 120,
    "lines of make help": 30,
    "files that cpu_fused reaches": 24,  # rules and generated lists aside
    "lines that cpu_fused reaches": 3900,
    "lines of a file": 555,
    "lines of a function in C": 73,
}
CODE = (".c", ".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".mk", ".inc", ".gp", ".js", ".css", ".html", ".spec", ".map", ".in", ".yml")
UNCOUNTED = re.compile(r"^reports/results/|/golden/|/seeds/|^man/")


def tracked():
    done = subprocess.run(["git", "ls-files"], cwd=tap.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise tap.Skip("no git here, so there is no list of files")
    return [f for f in done.stdout.splitlines() if not UNCOUNTED.search(f) and os.path.exists(os.path.join(tap.ROOT, f))]


def text(file):
    with open(os.path.join(tap.ROOT, file), encoding="utf-8", errors="replace") as opened:
        return opened.read()


def lines(file):
    return text(file).count("\n")


def is_code(file):
    return file.endswith(CODE) or os.path.basename(file) == "Makefile" or file.startswith(".ci/")


def of_code(files):
    found = {"core": 0, "core tests": 0, "extras": 0, "extras tests": 0}
    for file in filter(is_code, files):
        found[("extras" if file.startswith("extras/") else "core") + " tests" * ("tests" in file.split("/")[:-1])] += lines(file)
    return found


def reached(file):
    """The files of this tree that a kernel includes, and those that hold the functions which it shares with others."""
    work, found = [file, *(os.path.join("kernels/host", f) for f in ("update.c", "row.c"))], set()
    while work:
        path = work.pop()
        if path in found or not os.path.exists(os.path.join(tap.ROOT, path)):
            continue
        found.add(path)
        work += re.findall(r'(?m)^# *include "(kernels/[^"]+)"', text(path))
    return found


def longest_function(files):
    """(lines, where) of the longest function in C or CUDA. clang-format puts its last line at the margin, and its first."""
    most = (0, "")
    for file in files:
        begin, number = None, 0
        for number, line in enumerate(text(file).splitlines(), 1):
            if begin is None and line.endswith(") {") and not re.match(r"[ \t]+(if|for|while|switch)\b|#|extern", line):
                begin = number
            elif line == "}" and begin:
                most, begin = max(most, (number - begin + 1, f"{file}:{begin}")), None
    return most


def test_budgets(_):
    files = tracked()
    reach = reached("kernels/cpu/cpu_fused.c")
    largest = max((lines(f), f) for f in filter(is_code, files))
    function = longest_function(f for f in files if f.endswith((".c", ".h", ".cu", ".cuh")))
    told = subprocess.run(["make", "-s", "help"], cwd=tap.ROOT, capture_output=True, text=True, check=True,
                          env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")}).stdout
    weighed = of_code(files) | {
        "words of Markdown": sum(len(text(f).split()) for f in files if f.endswith(".md") and "/study/" not in f),
        "lines of README.md": lines("README.md"), "lines of make help": told.count("\n"),
        "files that cpu_fused reaches": len(reach), "lines that cpu_fused reaches": sum(map(lines, reach)),
        "lines of a file": largest[0], "lines of a function in C": function[0]}
    print("".join(f"# {what}: {weighed[what]} of {BUDGETS[what]}\n" for what in BUDGETS) + f"# {largest}, {function}")
    over = [f"{what}: {weighed[what]}, the budget is {most}" for what, most in BUDGETS.items() if weighed[what] > most]
    assert not over, "; ".join(over) + f"; largest file {largest[1]}, longest function {function[1]}"


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "budgets"))
