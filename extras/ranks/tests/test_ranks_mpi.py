#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks over MPI: bench checks results at a place of ranks, counts bytes, and ends in one line if a rank dies or
stops; train saves and loads with any number of ranks, and a rank that dies or whose disk is full leaves the state
that was there. Skipped without Open MPI."""
import json
import os
import signal
import sys

import launched
import tap

SMALL = ["--dims=16", "--rows=3000", "--batch=500", "--pooling=8", "--reps=1", "--ring=2", "--threads=1"]


def bench(ranks, out, *options):
    return launched.run(ranks, launched.program("extras/ranks/bench"), *SMALL, f"--out={out}", *options)


def test_results_are_right_and_bytes_are_counted(folder):
    """On threads extras/ranks/tests/test_ranks.c runs all shardings, with all kernels. Row-wise with all rows, as TorchRec's
    all-gather, each rank sends its bags' rows to every other rank."""
    for ranks, cut, *more in ((3, "row", "--all-rows"), (2, "table")):
        out = os.path.join(folder, cut)
        done = bench(ranks, out, f"--sharding={cut}", *more, "--modes=cold iteration", "--rule=adagrad forward",
                     "--filter=cpu_(fused|lookup)")
        assert done.returncode == 0 and "not run" not in done.stderr, (cut, done.stderr)
        with open(os.path.join(out, "bench.json"), encoding="utf-8") as file:
            data = json.load(file)
        assert (data["context"]["emb_ranks"], data["context"]["emb_sharding"]) == (str(ranks), cut), data["context"]
        found = [r for r in data["benchmarks"] if r["run_type"] == "iteration"]
        assert len(found) >= 4 and not any(r.get("error_occurred") for r in found), (cut, found)
        for row in found:  # what each rank did is in the record, too
            sent = [row[f"rank{r}_exchange_ids_sent_mib"] for r in range(ranks)] if "exchange_ids_ms" in row else [0]
            assert f"rank{ranks - 1}_ms" in row and max(sent) == row.get("exchange_ids_sent_mib", 0), row
            if more and "exchange_gradient_all_mib" in row:
                assert round(row["exchange_gradient_all_mib"] * 2**20) == (ranks - 1) * 500 * 16 * 4, row


def test_a_rank_that_is_killed_or_stops_ends_the_run_in_one_line(folder):
    out = os.path.join(folder, "out")
    words = launched.command(4, launched.program("extras/ranks/bench"), *SMALL, f"--out={out}", "--sharding=row", "--reps=1000",
                             "--rule=adagrad", "--filter=cpu_fused")
    for number, said in ((signal.SIGKILL, ("rank 1 was ended by SIGKILL", "in phase '")),
                         (signal.SIGSTOP, ("rank 1 has not answered",))):
        status, lines = launched.ended_by(number, 1, words)
        assert status == 4 and len(lines) == 1 and all(text in lines[0] for text in said), (status, lines)
        assert not os.path.exists(os.path.join(out, "bench.json"))


def test_ranks_that_cannot_go_on_end_the_run_in_one_line(folder):
    ends = launched.program("extras/ranks/tests/mpi/ends")
    launched.refused(launched.run(2, ends, "deadlock", EMBFUSE_RANKS_LIMIT="5"), 4, "ranks: all ranks have waited for "
                     "each other for 5 s: rank 0, sending; rank 1, receiving\n")
    # Beside other work Open MPI does not always tell that a message is too long: then both ranks wait.
    launched.refused(launched.run(2, ends, "truncate", EMBFUSE_RANKS_LIMIT="5"), 4, "ranks: ", "rank 1, receiving")
    launched.refused(launched.run(2, ends, "x", EMBFUSE_RANKS_LIMIT="0"), 1, "EMBFUSE_RANKS_LIMIT is a whole number from 1")
    own = tap.script(folder, "own", f'#!/bin/sh\nexec {ends} "$OMPI_COMM_WORLD_RANK"\n')
    launched.refused(launched.run(2, own), 1, "ranks: rank 1 has other arguments than rank 0; give all ranks the same")
    # Ranks of several nodes do not hear each other.
    said = "ranks: rank {}, pulling rows: the network has failed\n"
    many = tap.script(folder, "many", f"#!/bin/sh\nprintf '{said.format(2)}{said.format(4)}' >&2; exit 4\n")
    launched.refused(launched.run(2, "/bin/true", MPIRUN=many), 4, said.format(2))


def test_bad_words_are_refused(folder):
    launched.refused(bench(0, folder), 1, "launch.py: -np 0: at least 1 rank\n")
    for words, said in ((["--sharding=rows", "--rule=adagrad"], "sharding 'rows': there are table, row"),
                        (["--sharding=auto", "--rule=adagrad"], "extras/ranks/plan.py chooses the words"),
                        (["--sharding=column", "--rule=rowwise_adagrad", "--filter=cpu_fused"],
                         "its rule works on whole rows")):
        done = bench(2, folder, *words)
        assert done.returncode == 1 and said in done.stderr, done
    for word, said in (("--reps=3", "unknown option '--reps=3'"), (f"--load={folder}", "a folder, not a file")):
        launched.refused(train(1, "--rows=100", "--rule=sgd", word), 1, said)


# --- train

def train(ranks, *options, program=None):
    return launched.run(ranks, program or launched.program("extras/ranks/train"), "--dims=32", "--alpha=1.05", "--batch=100",
                        "--pooling=4", "--ring=2", "--threads=1", *options)


def limited(folder, limit):
    """A script that runs train, with a limit of the shell on rank 0."""
    return tap.script(folder, "limited", f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] && {{ {limit}; }}\n'
                                         f'exec {launched.program("extras/ranks/train")} "$@"\n')


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def test_a_training_goes_on_with_other_ranks(folder):
    """More rows than a chunk has, so that several ranks read several of them."""
    way = ["--rows=1.2e5", "--rule=rowwise_adagrad", "--kernel=cpu_sort"]
    parts, whole = os.path.join(folder, "parts"), os.path.join(folder, "whole")
    for ranks, *options in ((5, "--sharding=row-modulo", "--steps=1", f"--save={parts}"),
                            (2, "--sharding=table", "--steps=1", f"--load={parts}", f"--save={parts}"),
                            (3, "--sharding=row", "--steps=1", f"--load={parts}", f"--save={parts}"),
                            (1, "--steps=3", f"--save={whole}")):
        done = train(ranks, *way, *options)
        assert done.returncode == 0 and not done.stderr, done
    assert "steps 1 to 3" in done.stdout and rb'\"steps\":3,' in contents(whole), done
    assert os.path.getsize(whole) > 3 * 2**22
    assert contents(parts) == contents(whole)


def test_a_rank_that_dies_or_cannot_write_leaves_the_last_state(folder):
    """Rank 0 may not write behind the first 20 MB of a file of 38 MB: a signal, or an error."""
    to = os.path.join(folder, "state")
    way = ["--rows=3e5", "--rule=sgd", "--sharding=row", f"--save={to}"]
    assert train(2, *way).returncode == 0
    before = contents(to)
    done = train(2, *way, program=limited(folder, "ulimit -f 45000"))
    launched.refused(done, 4, "ranks: rank 0 was ended by SIGXFSZ in phase 'saving'")
    assert contents(to) == before
    done = train(2, *way, f"--load={to}", program=limited(folder, "ulimit -f 45000; trap '' XFSZ"))
    launched.refused(done, 1, "ranks: ", "File too large; nothing was saved")
    assert contents(to) == before and not os.path.exists(to + ".part")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ranks over MPI"))
