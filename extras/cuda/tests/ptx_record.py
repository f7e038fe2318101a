#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The record of device kernels whose tests passed with nvcc's PTX: reports/results/ptx-verified.txt.

    ptx_record.py LOGS KERNEL...    writes it after make ptx-verify; LOGS: what the tests printed

A line has, for each architecture, a digest of the PTX of all device code, since kernels share files.
extras/cuda/tests/test_ptx_verified.py compares the digests of the build, so that no kernel keeps the word after a change."""
import datetime
import glob
import hashlib
import os
import re
import subprocess
import sys

BUILD = os.environ.get("BUILD", "build")
NVCC = os.environ.get("NVCC") or "nvcc"
RECORD = "reports/results/ptx-verified.txt"
HEAD = """\
# Device kernels whose tests passed with nvcc's PTX on the CPU. make ptx-verify writes this file:
# kernel | nvcc | architectures | date | commit | digest of the PTX of each
"""


def release():
    """The release of nvcc, or None without nvcc."""
    try:
        text = subprocess.run([NVCC, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    found = re.search(r"release (\S+),", text)
    return found and found.group(1)


def plain_names(line):
    """The line without hashes that nvcc puts into names of a file, and without the architectures that CCCL puts into
    names of its own: a build for more of them has the same code. The length of a name stands before it."""
    line = re.sub(r"_INTERNAL_[0-9a-f]{8}_|_cu_[0-9a-f]{8}|_GLOBAL__N__[0-9a-f]{8}_", "_", line)
    return re.sub(r"(\d+)((CUB|THRUST)_\d+_SM_[\d_]+(?:NS)?)", lambda m: m[3] + m[2][int(m[1]):], line)


def instructions(path):
    """The PTX without lines of source."""
    for line in open(path):
        line = line.split("//", 1)[0].strip()
        if line.startswith(".section"):
            return
        if line and not line.startswith((".loc", ".file")):
            yield plain_names(line)


def digest(arch):
    """The digest of the PTX that runs for this architecture, or None if the build has none."""
    total, run = hashlib.sha256(), f"{BUILD}/ptx/{arch}"
    made = glob.glob(f"{run}/*/*/*.made")
    paths = sorted(f"{BUILD}/{os.path.relpath(p, run).removesuffix('.made')}.{arch}.ptx" for p in made)
    for path in paths:
        total.update(os.path.relpath(path, BUILD).encode())
        for line in instructions(path):
            total.update(line.encode())
    return total.hexdigest()[:16] if paths else None


def read():
    """[kernel, nvcc, [architectures], date, commit, [digests]] of each line."""
    try:
        lines = [x.strip().split(" | ") for x in open(RECORD) if x.strip() and x[0] != "#"]
    except FileNotFoundError:
        return []
    return [[*x[:2], x[2].removeprefix("sm_").split(" sm_"), *x[3:5], x[5].split()] for x in lines]


def ended(tap):
    """True if a program printed the result of every test, so it did not die."""
    plan = re.search(r"^1\.\.(\d+)", tap, re.M)
    return plan and len(re.findall(r"^(?:not )?ok ", tap, re.M)) == int(plan.group(1))


def passed(logs, kernels):
    """{kernel: architectures on which a test of it passed}, without kernels of which a test failed; empty if a program
    died or another test failed."""
    taps = [(re.search(r"(\d+)-\w+\.tap$", p).group(1), open(p).read()) for p in glob.glob(f"{logs}/[0-9]*-*.tap")]
    failed = [name for _, t in taps for name in re.findall(r"^not ok \d+ - (?:([a-z0-9_]+): )?", t, re.M)]
    if not all(ended(t) for _, t in taps) or not all(failed):
        return {}
    good = {}
    for arch, t in taps:
        for name in re.findall(r"^ok \d+ - ([a-z0-9_]+): (?!.*# ?SKIP)", t, re.M):
            good.setdefault(name, set()).add(arch)
    return {k: sorted(good[k], key=int) for k in kernels if k in good and k not in failed}


def main():
    logs, *kernels = sys.argv[1:]
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    good = passed(logs, kernels)
    if not good:
        sys.exit("no kernel counts as verified: a program died, or a test failed that is not of a single kernel")
    with open(RECORD, "w") as f:
        f.write(HEAD)
        for kernel, archs in good.items():
            names = " ".join("sm_" + a for a in archs)
            f.write(f"{kernel} | nvcc {release()} | {names} | {datetime.date.today()} | {git.stdout.strip()} | "
                    f"{' '.join(map(digest, archs))}\n")
    print(f"{RECORD}: {len(good)} of {len(kernels)} kernels")


if __name__ == "__main__":
    main()
