#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks over MPI: bench checks every result at a place of ranks, counts bytes, and ends in one line if a rank dies, stops
or is another program; train saves and loads with any number of ranks, and a rank that dies, whose disk is full or that
lacks memory leaves the states that were there. Skipped without Open MPI."""
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
TRAIN = os.path.abspath(os.path.join(BUILD, "ranks", "train"))
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
    """On threads tests/ranks/test_ranks.c runs all of them, with all kernels."""
    need_mpi()
    for i, cut in enumerate(("table", "row", "row-modulo", "column", "table-row", "data", "data-dense", "auto")):
        ranks, out = 2 + i % 2, os.path.join(folder, cut)
        done = bench(ranks, out, f"--sharding={cut}", "--modes=cold iteration", "--rule=adagrad forward",
                     "--filter=cpu_(fused|lookup)")
        assert done.returncode == 0 and "not run" not in done.stderr, (cut, ranks, done.stderr)
        context, found = rows(out)
        assert (context["emb_ranks"], context["emb_sharding"]) == (str(ranks), cut), context
        assert len(found) >= 4 and not any(r.get("error_occurred") for r in found), (cut, found)
        for row in found:  # what each rank did is in the record, too
            own = [row[f"rank{r}_ms"] for r in range(ranks)]
            assert min(own) > 0 and f"rank{ranks}_ms" not in row, row
            for what in ("ids", "output", "gradient"):
                if f"exchange_{what}_ms" in row:
                    sent = [row[f"rank{r}_exchange_{what}_sent_mib"] for r in range(ranks)]
                    assert max(sent) == row[f"exchange_{what}_sent_mib"], row
                    assert abs(sum(sent) - row[f"exchange_{what}_all_mib"]) < 1e-9, row


def test_help_has_the_options_of_ranks(folder):
    need_mpi()
    done = bench(2, folder, "--help")
    assert done.returncode == 0 and "usage: bench" in done.stdout, done
    for option in ("--sharding", "--all-rows", "--overlap", "--staged", "--rule"):
        assert done.stdout.count(f"  {option} ") == 1, (option, done)


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
    done = bench(0, folder)
    assert (done.returncode, done.stderr) == (1, "launch.py: -np 0: at least 1 rank\n"), done
    done = bench(2, folder, "--sharding=rows", "--rule=adagrad")
    assert done.returncode == 1 and "sharding 'rows': there are table, row" in done.stderr, done
    done = bench(2, folder, "--sharding=column", "--rule=rowwise_adagrad", "--filter=cpu_fused")
    assert done.returncode == 1 and "its rule works on whole rows" in done.stderr, done


# --- train

TABLE = ["--dims=32", "--alpha=1.05", "--batch=100", "--pooling=4", "--ring=2", "--threads=1"]


def train(ranks, *options, program=TRAIN):
    return subprocess.run([sys.executable, LAUNCH, "-np", str(ranks), program, *TABLE, *options], capture_output=True,
                          text=True, timeout=120, check=False)


def limited(folder, limit):
    """A script that runs train, with a limit of the shell on rank 1."""
    return tap.script(folder, "limited", f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && {{ {limit}; }}\n'
                                         f'exec {TRAIN} "$@"\n')


def manifest(folder, number):
    """It has the checksums of all files."""
    with open(os.path.join(folder, f"state-{number:08}", "manifest"), encoding="utf-8") as file:
        return file.read()


def test_a_training_goes_on_with_other_ranks(folder):
    need_mpi()
    way, parts, whole = ["--rows=3000", "--rule=adam"], os.path.join(folder, "parts"), os.path.join(folder, "whole")
    for ranks, *options in ((3, "--sharding=row", "--steps=2", f"--save={parts}"),
                            (2, "--sharding=column", "--steps=3", f"--load={parts}", f"--save={parts}"),
                            (1, "--steps=5", f"--save={whole}")):
        done = train(ranks, *way, *options)
        assert done.returncode == 0 and not done.stderr, done
    assert "steps 1 to 5" in done.stdout, done
    assert manifest(parts, 2) == manifest(whole, 1) and " steps 5\n" in manifest(whole, 1), manifest(parts, 2)


def test_columns_that_are_dealt_out_are_saved_as_whole_rows(folder):
    """More rows than a block of the files has, so that several ranks write and read several blocks."""
    need_mpi()
    way = ["--rows=1.2e5", "--rule=rowwise_adagrad", "--kernel=cpu_sort"]
    parts, whole = os.path.join(folder, "parts"), os.path.join(folder, "whole")
    for ranks, *options in ((5, "--sharding=column-modulo", "--steps=1", f"--save={parts}"),
                            (2, "--sharding=column-modulo", "--steps=1", f"--load={parts}", f"--save={parts}"),
                            (3, "--sharding=row", "--steps=1", f"--load={parts}", f"--save={parts}"),
                            (1, "--steps=3", f"--save={whole}")):
        done = train(ranks, *way, *options)
        assert done.returncode == 0 and not done.stderr, done
    assert max(map(os.path.getsize, glob.glob(os.path.join(whole, "state-00000001", "*.npy")))) > 3 * 2**22
    assert manifest(parts, 3) == manifest(whole, 1), manifest(parts, 3)


def test_a_rank_that_dies_or_cannot_write_leaves_the_last_state(folder):
    """Rank 1 may not write behind the first 20 MB of a file of 38 MB: a signal, or an error."""
    need_mpi()
    to = os.path.join(folder, "states")
    way = ["--rows=3e5", "--rule=sgd", "--sharding=row", f"--save={to}"]
    assert train(2, *way).returncode == 0
    before = manifest(to, 1)
    done = train(2, *way, program=limited(folder, "ulimit -f 45000"))
    assert done.returncode == 4 and done.stderr.count("\n") == 1, done
    assert "ranks: rank 1 was ended by SIGXFSZ in phase 'saving: writing rows'" in done.stderr, done
    assert not os.path.exists(os.path.join(to, "state-00000002"))
    done = train(2, *way, f"--load={to}", program=limited(folder, "ulimit -f 45000; trap '' XFSZ"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    assert "ranks: rank 1, saving: writing rows: " in done.stderr and "File too large" in done.stderr, done
    assert os.listdir(to) == ["state-00000001"] and manifest(to, 1) == before


def test_a_rank_that_lacks_memory_ends_the_run_in_one_line(folder):
    need_mpi()
    begin = time.monotonic()
    done = train(2, "--rows=2e7", "--rule=sgd", "--sharding=table@1", program=limited(folder, "ulimit -v 1500000"))
    assert time.monotonic() - begin < 10 and done.returncode == 4 and done.stderr.count("\n") == 1, done
    assert done.stderr.startswith("ranks: rank 1, opening: "), done


def test_what_train_refuses(folder):
    need_mpi()
    for options, said in ((["--reps=3"], "unknown option '--reps=3'"), ([f"--load={folder}"], "no saved state")):
        done = train(1, "--rows=100", "--rule=sgd", *options)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and said in done.stderr, done


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ranks over MPI"))
