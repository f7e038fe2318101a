#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of parameter servers over MPI: counts and bounds of its runs, the page, and the end when a server dies.
Skipped without Open MPI."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import tap

PROGRAM = os.path.join(tap.BUILD, "studies", "server", "server")
LAUNCH = os.path.join(tap.ROOT, "ranks", "launch.py")


def command(ranks, *arguments):
    if not os.path.exists(PROGRAM) or not shutil.which("mpirun"):
        raise tap.Skip("no Open MPI (Debian: openmpi-bin, libopenmpi-dev)")
    return [sys.executable, LAUNCH, "-np", str(ranks), PROGRAM, *map(str, arguments)]


def test_runs_and_page(folder):
    done = subprocess.run(command(4, 2, 6, "rowwise_adagrad"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 10
    for x in found:
        assert x["pushed"] == x["applied"] > 0, x
        assert sum(x["versions"]) == sum(x["ahead"]) == 2 * 2 * 6, x  # servers, workers, clocks
        assert x["staleness"] < 0 or len(x["ahead"]) - 1 <= x["staleness"], x
        assert x["loss"][-1] < 1.1 * x["loss"][0] and (x["refused"] > 0) == (x["mode"][0] in "ab"), x
        if x["mode"] == "synchronous":
            assert x["drift"] == 0 and x["loss"] == found[0]["loss"], x  # the same bits each time
        elif x["refused"] == 0:
            assert 0 < x["drift"] < 1, x
    lines = os.path.join(folder, "server.jsonl")
    with open(lines, "w", encoding="utf-8") as file:
        file.write(done.stdout)
    page = [sys.executable, os.path.join(tap.ROOT, "studies", "server.py"), lines, folder]
    subprocess.run(page, check=True, capture_output=True)
    with open(os.path.join(folder, "server.md"), encoding="utf-8") as file:
        text = file.read()
    assert "2 servers" in text and "rowwise_adagrad" in text and text.count("| x 10 |") == 4, text
    assert os.path.getsize(os.path.join(folder, "server.png")) > 10000
    with open(lines, "a", encoding="utf-8") as file:
        file.write("{}\n")
    bad = subprocess.run(page, capture_output=True, text=True, check=False)
    assert bad.returncode == 1 and bad.stderr.count("\n") == 1 and "server.jsonl:11: not a line of" in bad.stderr, bad


def test_usage(_folder):
    for ranks, arguments in ((1, (1, 5, "sgd")), (2, (1, 5, "nothing"))):
        done = subprocess.run(command(ranks, *arguments), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done


def ended_by(number):
    """(status, stderr) of a long run of one server and two workers, whose server gets a signal."""
    job = subprocess.Popen(command(3, 1, 100000, "adagrad"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    own = subprocess.run(["pgrep", "-f", f"^{PROGRAM} 1 100000"], capture_output=True, text=True, check=False)
    ranks = {}
    for pid in own.stdout.split():
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read().split(b"\0")
        ranks |= {int(v.partition(b"=")[2]): int(pid) for v in text if v.startswith(b"OMPI_COMM_WORLD_RANK=")}
    assert sorted(ranks) == [0, 1, 2], (ranks, job.poll())
    began = time.monotonic()
    os.kill(ranks[0], number)
    _, err = job.communicate(timeout=60)
    assert time.monotonic() - began < 10, err
    return job.returncode, err


def test_a_server_dies(_folder):
    status, err = ended_by(signal.SIGKILL)
    assert status == 4 and err.count("\n") == 1 and "rank 0 was ended by SIGKILL" in err and "'serving'" in err, (status, err)


def test_a_server_stops_answering(_folder):
    status, err = ended_by(signal.SIGSTOP)
    assert status == 4 and err.count("\n") == 1 and "0 has not answered for" in err, (status, err)


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "server_mpi"))
