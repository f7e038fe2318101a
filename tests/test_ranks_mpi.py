#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks over MPI: bench checks every result at a place of ranks, counts bytes, and ends in one line if a rank dies, stops
or is another program. Skipped without Open MPI."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import tap

BUILD = os.environ.get("BUILD", "build")
BENCH = os.path.abspath(os.path.join(BUILD, "ranks", "bench"))
LAUNCH = os.path.join(tap.ROOT, "ranks", "launch.py")
SMALL = ["--dims=16", "--rows=3000", "--batch=500", "--pooling=8", "--reps=1", "--ring=2", "--threads=1"]


def need_mpi():
    if not os.path.exists(BENCH) or not shutil.which("mpirun"):
        raise tap.Skip("no Open MPI (Debian: openmpi-bin, libopenmpi-dev)")


def command(ranks, out, *options, program=BENCH):
    return [sys.executable, LAUNCH, "-np", str(ranks), program, *SMALL, f"--out={out}", *options]


def bench(ranks, out, *options, program=BENCH):
    return subprocess.run(command(ranks, out, *options, program=program), capture_output=True, text=True, timeout=120,
                          check=False)


def rows(out):
    with open(os.path.join(out, "bench.json"), encoding="utf-8") as file:
        data = json.load(file)
    return data["context"], [r for r in data["benchmarks"] if r["run_type"] == "iteration"]


def test_every_sharding_is_right(folder):
    """On threads tests/test_ranks.c runs all of them, with all kernels."""
    need_mpi()
    for i, cut in enumerate(("table", "row", "row-modulo", "column", "table-row", "data", "data-dense", "auto")):
        ranks, out = 2 + i % 2, os.path.join(folder, cut)
        done = bench(ranks, out, f"--sharding={cut}", "--modes=cold iteration", "--rule=adagrad forward",
                     "--filter=cpu_(fused|lookup)")
        assert done.returncode == 0 and "not run" not in done.stderr, (cut, ranks, done.stderr)
        context, found = rows(out)
        assert (context["emb_ranks"], context["emb_sharding"]) == (str(ranks), cut), context
        assert len(found) >= 4 and not any(r.get("error_occurred") for r in found), (cut, found)


def test_overlap_is_right(folder):
    need_mpi()
    done = bench(3, folder, "--spec=datasets/smoke.spec", "--sharding=row", "--overlap", "--rule=adagrad",
                 "--filter=cpu_fused/cold")
    assert done.returncode in (0, 1) and "WRONG" not in done.stderr, done.stderr


def test_bytes_of_gradients(folder):
    """Row-wise with all rows, as TorchRec's all-gather: each rank sends its bags' rows to every other rank."""
    need_mpi()
    for ranks in (2, 3):
        out = os.path.join(folder, str(ranks))
        done = bench(ranks, out, "--sharding=row", "--all-rows", "--modes=cold", "--rule=adagrad", "--filter=cpu_fused")
        assert done.returncode == 0, done.stderr
        for row in rows(out)[1]:
            assert round(row["exchange_gradient_all_mib"] * 2**20) == (ranks - 1) * 500 * 16 * 4, row


def pid_of(rank, out):
    """The process of a rank of the run that writes to out."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
            with open(path.replace("environ", "cmdline"), "rb") as file:
                arguments = file.read().split(b"\0")
        except OSError:
            continue
        if b"OMPI_COMM_WORLD_RANK=%d" % rank in words and f"--out={out}".encode() in arguments:
            return int(path.split("/")[2])
    return None


def ended_by(folder, number):
    """(status, stderr, seconds from the signal to the end) of a long run of 4 ranks whose rank 1 gets a signal."""
    out = os.path.join(folder, "out")
    long_run = command(4, out, "--sharding=row", "--reps=1000", "--rule=adagrad", "--filter=cpu_fused")
    with subprocess.Popen(long_run, stderr=subprocess.PIPE, text=True) as job:
        end, pid = time.monotonic() + 30, None
        while pid is None and time.monotonic() < end:
            time.sleep(0.1)
            pid = pid_of(1, out)
        assert pid, "rank 1 was not found"
        time.sleep(1)
        begin = time.monotonic()
        os.kill(pid, number)
        _, said = job.communicate(timeout=60)
    assert not os.path.exists(os.path.join(out, "bench.json"))
    return job.returncode, [l for l in said.splitlines() if l.startswith("ranks: ")], time.monotonic() - begin


def test_a_rank_that_is_killed_ends_the_run_in_one_line(folder):
    need_mpi()
    status, lines, seconds = ended_by(folder, signal.SIGKILL)
    assert status == 4 and len(lines) == 1 and seconds < 10, (status, lines, seconds)
    assert "rank 1 was ended by SIGKILL" in lines[0] and "in phase '" in lines[0], lines


def test_a_rank_that_stops_ends_the_run_in_one_line(folder):
    need_mpi()
    status, lines, seconds = ended_by(folder, signal.SIGSTOP)
    assert status == 4 and len(lines) == 1 and seconds < 10, (status, lines, seconds)
    assert "rank 1 has not answered" in lines[0], lines


def test_ranks_of_two_programs_do_not_start(folder):
    need_mpi()
    other = os.path.join(folder, "other")
    shutil.copy(BENCH, other)
    with open(other, "ab") as file:
        file.write(b"\0")
    both = tap.script(folder, "both", f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec {other} "$@"\n'
                                      f'exec {BENCH} "$@"\n')
    done = bench(2, os.path.join(folder, "out"), "--rule=adagrad", program=both)
    assert done.returncode != 0 and "ranks: rank 1 runs another program than rank 0" in done.stderr, done
    assert not os.path.exists(os.path.join(folder, "out", "bench.json"))


def test_words_that_nobody_knows_are_refused(folder):
    need_mpi()
    done = bench(2, folder, "--sharding=rows", "--rule=adagrad")
    assert done.returncode == 1 and "sharding 'rows': there are table, row" in done.stderr, done
    done = bench(2, folder, "--sharding=column", "--rule=rowwise_adagrad", "--filter=cpu_fused")
    assert done.returncode == 1 and "its rule works on whole rows" in done.stderr, done


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ranks over MPI"))
