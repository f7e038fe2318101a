#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks with emulated devices, over MPI: extras/ranks/tests/mpi/ranks_device.c runs every sharding with rows that travel
through host memory and by NCCL's stand-in. Skipped without Open MPI."""
import sys

import launched
import tap


def run(ranks, path):
    return launched.run(ranks, path, OMP_NUM_THREADS="1", EMULATION_PATIENCE="60")


def test_every_sharding_is_right(_folder):
    program = launched.program("emulated/ranks_device")
    for ranks in (2, 3):
        done = run(ranks, program)
        lines = done.stdout.splitlines()
        assert done.returncode == 0 and not done.stderr, done
        assert len(lines) == 11 and all(line.endswith(f", {ranks} ranks: right") for line in lines), lines


def test_a_device_that_fails_ends_the_run_in_one_line(folder):
    program = launched.program("emulated/ranks_device")
    script = tap.script(folder, "one", f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export EMULATION_FAIL_LAUNCH=move_rows\n'
                                       f'exec {program}\n')
    launched.refused(run(2, script), 4, "ranks: rank 1, opening: moving rows")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ranks with devices"))
