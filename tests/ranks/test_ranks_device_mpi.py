#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks with emulated devices, over MPI: tests/ranks/mpi/ranks_device.c runs every sharding with rows that travel through host
memory and by NCCL's stand-in. Skipped without Open MPI."""
import concurrent.futures
import sys

import launched
import tap

DEFECTS = {"no group": "outside of a group", "no end": "a group has no end", "sizes": "which sends 999 of type",
           "host memory": "not in one allocation", "past the end": "not in one allocation",
           "no send": "which sends none", "no receive": "of 1 messages", "two numbers": "another number of the ranks"}


def run(ranks, path, *words, patience=60):
    return launched.run(ranks, path, *words, OMP_NUM_THREADS="1", EMULATION_PATIENCE=str(patience))


def test_every_sharding_is_right(_folder):
    program = launched.program("emulated/ranks_device")
    for ranks in (2, 3):
        done = run(ranks, program)
        lines = done.stdout.splitlines()
        assert done.returncode == 0 and not done.stderr, done
        assert len(lines) == 12 and all(line.endswith(f", {ranks} ranks: right") for line in lines), lines


def test_a_device_that_fails_ends_the_run_in_one_line(folder):
    program = launched.program("emulated/ranks_device")
    script = tap.script(folder, "one", f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export EMULATION_FAIL_LAUNCH=move_rows\n'
                                       f'exec {program}\n')
    launched.refused(run(2, script), 4, "ranks: rank 1, opening: moving rows")


def test_the_stand_in_for_nccl_finds_defects(_folder):
    program = launched.program("emulated/nccl_misuse")
    done = run(2, program)
    assert (done.returncode, done.stderr) == (0, ""), done

    def found(defect):
        return run(2, program, defect, patience=0.5 if defect == "no send" else 60)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for defect, done in zip(DEFECTS, pool.map(found, DEFECTS)):
            assert done.returncode != 0 and DEFECTS[defect] in done.stderr, (defect, done)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ranks with devices"))
