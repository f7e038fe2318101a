#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Has what nvcc reads changed since make test-cuda passed? Architectures, folders and time do not matter.

    digest.py              prints the digest, and the release of nvcc
    digest.py --check      compares with extras/cuda/tests/passed.txt; status 0: the same, 3: another, or no record
    digest.py --renew      writes that file, after make test-cuda

Without nvcc --check compares the digest alone. A digest is of .cu files, of what they include, directly or not, of all
rules, and of the flags in the Makefile; generated headers are lists of the names of rules."""
import glob
import hashlib
import os
import re
import sys

from ptx_record import release

RECORD, UNKNOWN = "extras/cuda/tests/passed.txt", 3
# The definition of the flags, what changes them for a file, the command, and the generated lists of rules.
READ = re.compile(r"^NVCCFLAGS .*|^\S+: NVCCFLAGS .*|^[^#\n]*\$\(NVCC\) \$\(NVCCFLAGS\).*|^\t\$\(call nvcc,.*|"
                  r"^\$\(B\)/rule_.*(?:\n\t.*)*", re.M)
ARCHITECTURES = re.compile(r"\$\(foreach a,\$\(CUDA_ARCHS\),[^)]*\)|-gencode \S*\$\(lastword \$\(CUDA_ARCHS\)\)\S*")


def sources():
    """The files of the project that nvcc reads."""
    work = [path for pattern in ("kernels/**/*.cu", "harness/device/*.cu", "rules/*.h")
            for path in glob.glob(pattern, recursive=True)]
    found = set()
    while work:
        path = os.path.normpath(work.pop())
        if path in found or not os.path.exists(path):
            continue
        found.add(path)
        with open(path, encoding="utf-8") as file:
            for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read(), re.M):
                work += [name, os.path.join(os.path.dirname(path), name)]
    return sorted(found)


def flags():
    with open("Makefile", encoding="utf-8") as file:
        text = "\n".join(READ.findall(file.read().replace("\\\n", " ")))
    return " ".join(ARCHITECTURES.sub("", text).split())


def digest():
    total = hashlib.sha256(flags().encode())
    for path in sources():
        with open(path, "rb") as file:
            total.update(f"{path} {hashlib.sha256(file.read()).hexdigest()}\n".encode())
    return total.hexdigest()


def main(option=""):
    made_by = release()
    now = f"sources {digest()}\nnvcc {made_by}\n"
    if option == "--renew":
        if not made_by:
            sys.exit("digest.py: no nvcc, so make test-cuda has judged nothing")
        with open(RECORD, "w", encoding="utf-8") as file:
            file.write(now)
    elif option == "--check":
        before = open(RECORD, encoding="utf-8").read() if os.path.exists(RECORD) else ""
        sys.exit(0 if before == now or not made_by and before.startswith(now.splitlines()[0] + "\n") else UNKNOWN)
    elif option:
        sys.exit("usage: digest.py [--check | --renew]")
    else:
        print(now, end="")


if __name__ == "__main__":
    main(*sys.argv[1:2])
