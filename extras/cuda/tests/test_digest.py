#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Only a change of a file or flag that nvcc reads makes test-cuda run again. Prints TAP."""
import os
import shutil
import sys

import tap

import digest

OTHER_SOURCES = ("kernels/rng.h", "harness/error.h", "kernels/device/reduce.cu", "kernels/device/row.cuh", "rules/adam.h")
SAME_SOURCES = "kernels/cpu/fused.h", "harness/check/oracle.c", "tests/run.sh", "harness/device/device_cuda.c"
OTHER_FLAGS = ("-fmad=false", "-fmad=true"), ("-warn-spills%", "%"), ("#define RULES", "#define ALL_RULES")
SAME_FLAGS = (",90)", ",80)"), ("-gencode arch=compute_$a,code=sm_$a", ""), ("-O1", "-O2")


def copy(folder):
    """The sources, in a folder that becomes the current one."""
    for part in "kernels", "harness", "rules":
        shutil.copytree(os.path.join(tap.ROOT, part), os.path.join(folder, part))
    os.makedirs(os.path.join(folder, "extras", "cuda", "tests"))
    os.makedirs(os.path.join(folder, "tests"))
    for part in "Makefile", "tests/run.sh":
        shutil.copy(os.path.join(tap.ROOT, part), os.path.join(folder, part))
    os.chdir(folder)


def changes(path, old, new):
    """True if the digest differs while the file has `new` for `old`."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert old in text, f"{old} is not in {path}"
    before = digest.digest()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
    now = digest.digest()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return now != before


def test_only_what_nvcc_reads_changes_the_digest(folder):
    copy(folder)
    for path in OTHER_SOURCES + SAME_SOURCES:
        assert changes(path, "\n", " \n") == (path in OTHER_SOURCES), path
    for flag in OTHER_FLAGS + SAME_FLAGS:
        assert changes("Makefile", *flag) == (flag in OTHER_FLAGS), flag
    before = digest.digest()
    shutil.copy("rules/sgd.h", "rules/new.h")
    assert digest.digest() != before


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "digest of device code"))
