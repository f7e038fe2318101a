# SPDX-License-Identifier: MIT
"""Programs of several ranks, as extras/ranks/launch.py starts them."""
import glob
import os
import re
import subprocess
import sys

import tap

LAUNCH = os.path.join(tap.ROOT, "extras", "ranks", "launch.py")
LINE = 128  # bytes of a rank in the board: extras/ranks/board.h


def program(name):
    """The path of a program of the build, which has it if Open MPI was there."""
    path = os.path.join(tap.BUILD, name)
    if not os.path.exists(path):
        raise tap.Skip("built without Open MPI (Debian: openmpi-bin, libopenmpi-dev; then build again)")
    return path


def command(ranks, path, *words):
    return [sys.executable, LAUNCH, "-np", str(ranks), path, *map(str, words)]


def run(ranks, path, *words, **variables):
    return subprocess.run(command(ranks, path, *words), capture_output=True, text=True, check=False,
                          env=os.environ | variables)


def refused(done, status, *said):
    """It ended with that status, and one line says why."""
    assert done.returncode == status and done.stderr.count("\n") == 1, done
    assert all(text in done.stderr for text in said), done


def process_of(job, rank, phase=""):
    """The process of a rank, as soon as it is in that phase. The board, which launch.py has open, names both."""
    while job.poll() is None:
        for path in glob.glob(f"/proc/{job.pid}/fd/*"):
            try:
                if not re.search(r"/embfuse-ranks.* \(deleted\)$", os.readlink(path)):  # not all ranks have begun
                    continue
                with open(path, "rb") as board:
                    line = board.read()[rank * LINE + 16:(rank + 1) * LINE].split(b"\0")[0].decode()
            except OSError:
                continue
            found = re.match(r"pid (\d+): (.+)", line)
            if found and phase in found[2]:
                return int(found[1])
    raise AssertionError("it ended before that")


def ended_by(number, rank, words, phase=""):
    """The exit status and the lines of ranks, of a long run, one of whose ranks gets a signal."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        os.kill(process_of(job, rank, phase), number)
        said = job.communicate()[1]
    return job.returncode, [line for line in said.splitlines() if line.startswith("ranks: ")]
