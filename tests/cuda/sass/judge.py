#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what the kernels of objects of nvcc compile to, and the promises that they break. Needs no GPU.

Usage: judge.py [--arch 90] [--kernel REGEX] [--source kernels/device/runs.cu] OBJECT...
Without --source the promises of an object build/kernels/device/runs.o are those of kernels/device/runs.cu, and those of
an object elsewhere are found by its name. Status: 0 promises hold, 1 one is broken, 2 bad usage, missing tools, or
machine code that cannot be judged.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from flight import NoWait
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


def complain(why):
    print(f"judge.py: {why}", file=sys.stderr)
    return 2


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].split("\n")[0])
    parser.add_argument("objects", nargs="+")
    parser.add_argument("--arch", type=int)
    parser.add_argument("--kernel", default="")
    parser.add_argument("--source")
    asked = parser.parse_args()
    tool = tools(os.path.join(ROOT, "build", "sass", "venv"))
    if not tool:
        sys.exit(complain("no cuobjdump and nvdisasm; make sass-tools installs them"))
    promises, broken = read_promises(PROMISES), False
    for path in asked.objects:
        try:
            found = kernels_of_object(path, tool, asked.arch, asked.kernel)
        except (OSError, subprocess.CalledProcessError):
            sys.exit(complain(f"{path} is no object of nvcc"))
        except NoWait as e:
            sys.exit(complain(e))
        if not found:
            sys.exit(complain(f"{path} has no such kernel"))
        for (name, arch), m in sorted(found.items()):
            print(f"{name} sm_{arch}:", *(f"{what} {number(m[what])}" for what in ALL if m.get(what)))
        source = asked.source or source_of(path, promises)
        kernels = {(source, *key): m for key, m in found.items()}
        for promise in promises:
            if promise.source == source and promise.of(kernels):
                lines = promise.broken(kernels)
                broken |= bool(lines)
                print(f"{'BROKEN' if lines else 'kept'}: {promise.text}", *(f"    {line}" for line in lines), sep="\n")
    sys.exit(1 if broken else 0)


main()
