#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what the kernels of objects of nvcc compile to, and the promises that they break. Needs no GPU.

Usage: judge.py [--arch 90] [--kernel REGEX] [--source kernels/device/runs.cu] OBJECT...
Without --source the promises of an object build/kernels/device/runs.o are those of kernels/device/runs.cu, and those of
an object elsewhere are found by its name. Status: 0 promises hold, 1 one is broken, 2 bad usage or missing tools.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from objects import kernels_of_object, tools
from promises import read_promises
from table import ALL, number

PROMISES = os.path.join(ROOT, "tests", "golden", "sass_promises.txt")


def source_of(path, promises):
    """The source whose promises an object has to keep: the one that fits most of its path."""
    stem = os.path.splitext(os.path.abspath(path))[0]
    fits = [p.source for p in promises if stem.endswith("/" + os.path.splitext(p.source)[0])
            or os.path.basename(stem).split(".")[0] == os.path.basename(os.path.splitext(p.source)[0])]
    return max(fits, key=len, default=None)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].split("\n")[0])
    parser.add_argument("objects", nargs="+")
    parser.add_argument("--arch", type=int)
    parser.add_argument("--kernel", default="")
    parser.add_argument("--source")
    asked = parser.parse_args()
    tool = tools(os.path.join(ROOT, "build", "sass", "venv"))
    if not tool:
        print("judge.py: no cuobjdump and nvdisasm; make sass-tools installs them", file=sys.stderr)
        sys.exit(2)
    promises, broken = read_promises(PROMISES), False
    for path in asked.objects:
        try:
            found = kernels_of_object(path, tool, asked.arch, asked.kernel)
        except (OSError, subprocess.CalledProcessError):
            print(f"judge.py: {path} is no object of nvcc", file=sys.stderr)
            sys.exit(2)
        for (name, arch), m in sorted(found.items()):
            print(f"{name} sm_{arch}:", *(f"{what} {number(m[what])}" for what in ALL if m.get(what)))
        source = asked.source or source_of(path, promises)
        kernels = {(source, *key): m for key, m in found.items()}
        for p in promises:
            if p.source == source and (not p.archs or asked.arch is None or asked.arch in p.archs):
                lines = [line for line in p.broken(kernels) if not (asked.kernel and "has no kernel like" in line)]
                broken |= bool(lines)
                print(f"{'BROKEN' if lines else 'kept'}: {p.text}", *(f"    {line}" for line in lines), sep="\n")
    sys.exit(1 if broken else 0)


main()
