#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks what nvcc makes of the kernels, in their machine code (SASS); needs no GPU. Prints TAP.

Kernels have to keep their promises (extras/cuda/tests/golden/sass_promises.txt), and must not get worse than recorded
(extras/cuda/tests/golden/cuda_sass.txt; `make resources` writes it again). Another release of nvcc may compile differently: then
only the promises are judged. Architectures that are not built or not in the table are skipped.
Spills are errors of the build.
"""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "sass"))
from flight import NoWait
from objects import remembered, tools
from promises import read_promises
from ptx_record import release
from table import compare_all, of_arch, read_table, write_table

BUILD = os.environ.get("BUILD", "build")
TABLE, PROMISES, VENV = "extras/cuda/tests/golden/cuda_sass.txt", "extras/cuda/tests/golden/sass_promises.txt", "build/sass/venv"

count = 0


def tell(fine, name, why=(), skip=None):
    global count
    count += 1
    print(f"{'ok' if fine else 'not ok'} {count} - {name}" + (f" # SKIP {skip}" if skip else ""))
    for line in why:
        print(f"# {line}")


def objects():
    """{object: source} of every .cu file that nvcc compiled."""
    found = {}
    for folder, _, files in os.walk(BUILD):
        for name in files:
            source = os.path.join(os.path.relpath(folder, BUILD), name[:-2] + ".cu")
            if name.endswith(".o") and os.path.exists(source):
                found[os.path.join(folder, name)] = source
    return found


def measured(tool):
    """{(source, name, architecture): metrics}"""
    found = objects()
    largest_first = sorted(found, key=os.path.getsize, reverse=True)
    with concurrent.futures.ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        results = pool.map(remembered, largest_first, [tool] * len(largest_first))
        return {(found[path], *key): m for path, kernels in zip(largest_first, results) for key, m in kernels.items()}


def built():
    """The architectures that make builds here."""
    with open(os.path.join(BUILD, "cuda_archs"), encoding="utf-8") as file:
        return set(map(int, file.read().split()))


def check_table(kernels, made_by, archs):
    recorded_by, table = read_table(TABLE)
    for arch in sorted(archs | {key[2] for key in table}):
        name, new, old = f"no kernel is worse than in {TABLE}, sm_{arch}", of_arch(kernels, arch), of_arch(table, arch)
        if recorded_by != made_by:
            tell(True, name, skip=f"recorded with nvcc {recorded_by}, this is {made_by}")
        elif not old or arch not in archs:
            tell(True, name, skip="not built" if old else "not in the table")
        else:
            fails, notes = compare_all(new, old)
            tell(not fails, name, [f"worse: {line}" for line in fails] + [f"not worse: {line}" for line in notes] +
                 ["`make resources` records what is meant"] * bool(fails or notes))


def check_promise(promise, kernels, archs):
    name = f"SASS of {promise.text}".replace("#", "")
    if not promise.binds(archs):
        tell(True, name, skip="not built")
        return
    broken = promise.broken(kernels)
    tell(not broken, name, broken)


def missing():
    """Names what is missing for this test, or None."""
    if not release():
        return "no nvcc"
    if not tools(VENV):
        return "no cuobjdump and nvdisasm; make sass-tools installs them"
    return None if objects() else "nvcc compiled nothing for this flavour of the build"


def check():
    try:
        kernels = measured(tools(VENV))
    except NoWait as e:
        tell(False, "control bits agree with registers", [e])
        return
    tell(True, "control bits agree with registers")
    archs = built()
    check_table(kernels, release(), archs)
    for promise in read_promises(PROMISES):
        check_promise(promise, kernels, archs)


def main():
    why = missing()
    if "--renew" in sys.argv:
        # A table of fewer architectures would lose what it says of the others.
        gone = {key[2] for key in read_table(TABLE)[1]} - built() if not why and os.path.exists(TABLE) else set()
        if gone:
            why = f"{TABLE} also has sm_{min(gone)}: build for it, too, with CUDA_ARCHS, or remove the file"
        if why:
            sys.exit(f"test_nvcc.py: {why}")
        write_table(TABLE, measured(tools(VENV)), release())
        return
    if why:
        tell(True, "nvcc's output", skip=why)
    else:
        check()
    print(f"1..{count}")


if __name__ == "__main__":
    main()
