#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks with emulated devices, over MPI: tests/ranks/mpi/ranks_device.c runs every sharding with rows that travel through host
memory and by NCCL's stand-in. Skipped without Open MPI."""
import concurrent.futures
import os
import shutil
import subprocess
import sys

import tap

BUILD = os.environ.get("BUILD", "build")
PROGRAMS = os.path.abspath(os.path.join(BUILD, "emulated"))
LAUNCH = os.path.join(tap.ROOT, "ranks", "launch.py")


DEFECTS = {"no group": "outside of a group", "no end": "a group has no end", "sizes": "which sends 999 of type",
           "host memory": "not in one allocation", "past the end": "not in one allocation",
           "no send": "which sends none", "no receive": "of 1 messages", "two numbers": "another number of the ranks"}


def run(ranks, name, *options, patience=60):
    """(exit status, stdout, stderr)"""
    program = os.path.join(PROGRAMS, name)
    if not os.path.exists(program) or not shutil.which("mpirun"):
        raise tap.Skip("no Open MPI (Debian: openmpi-bin, libopenmpi-dev)")
    done = subprocess.run([sys.executable, LAUNCH, "-np", str(ranks), program, *options], capture_output=True, text=True,
                          timeout=120, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1", EMULATION_PATIENCE=str(patience)))
    return done.returncode, done.stdout, done.stderr


def right(ranks):
    status, out, said = run(ranks, "ranks_device")
    lines = out.splitlines()
    assert status == 0 and not said, (status, out, said)
    assert len(lines) == 12 and all(l.endswith(f", {ranks} ranks: right") for l in lines), lines


def test_one_rank(folder):
    right(1)


def test_two_ranks(folder):
    right(2)


def test_three_ranks(folder):
    right(3)


def test_a_device_that_fails_ends_the_run_in_one_line(folder):
    program = os.path.join(PROGRAMS, "ranks_device")
    script = tap.script(folder, "one", f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export EMULATION_FAIL_LAUNCH=move_rows\n'
                                       f'exec {program}\n')
    status, _, said = run(2, script)
    assert status == 4 and "ranks: rank 1, opening: moving rows" in said and said.count("\n") == 1, (status, said)


def test_the_stand_in_for_nccl_finds_defects(folder):
    assert run(2, "nccl_misuse") == (0, "", "")

    def found(defect):
        return run(2, "nccl_misuse", defect, patience=0.5 if defect == "no send" else 60)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for defect, (status, _, said) in zip(DEFECTS, pool.map(found, DEFECTS)):
            assert status != 0 and DEFECTS[defect] in said, (defect, status, said)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ranks with devices"))
