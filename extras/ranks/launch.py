#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Starts a program of several ranks with mpirun, and says in one line what ended it.

    extras/ranks/launch.py -np 4 build/extras/ranks/bench --sharding=row --rule=adagrad

Options before the program go to mpirun (--hostfile hosts, --map-by ...); without them each rank is bound to CPUs of its
own. The exit status is the program's (0 fine, 1 usage or environment, 2 a wrong result), or 4 if a rank died or stopped
answering; the line names the rank and what it did. Open MPI's own report is shown only if this program cannot read it.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

LINE = 128  # bytes of a rank in the board: extras/ranks/board.h
ALWAYS = ("--mca", "mpi_yield_when_idle", "1",  # a rank that waits leaves its CPU to others
          # A node that answers nothing for 6 seconds is lost.
          "--mca", "oob_tcp_keepalive_time", "3", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca", "oob_tcp_keepalive_probes", "3")
OWN = ("--hostfile", "--host", "--map-by", "--bind-to", "--rank-by", "--oversubscribe")  # who says one, says all
DIED = re.compile(r"process rank (\d+) .*exited on signal (\d+)")
LEFT = re.compile(r"Process name: \[\[\d+,\d+\],(\d+)\]")
CODE = re.compile(r"Exit code:\s+(\d+)")
SAYS = re.compile(r"ranks: (rank \d+[, ]|all ranks )")
ENDED = "unable to reliably start one or more daemons"
LOST = re.compile(r"lost communication with a remote daemon.*Remote daemon:\s+\S+ on node (\S+)", re.S)


def phase(board, rank):
    """What the board, an open file, says of a rank."""
    text = os.pread(board, LINE - 16, rank * LINE + 16).split(b"\0")[0].decode(errors="replace")
    return f"in phase '{text.partition(': ')[2]}'" if text else "on another node"


def split(words):
    """(options of mpirun, the program and its arguments): the program is the first word with a slash."""
    for i, word in enumerate(words):
        if "/" in word and not word.startswith("-") and os.access(word, os.X_OK) and os.path.isfile(word):
            return words[:i], words[i:]
    sys.exit("launch.py: usage: extras/ranks/launch.py -np RANKS PROGRAM [ARGUMENT ...]; no program in these words")


def placement(options):
    """Each rank gets CPUs of its own, if there are enough: ranks that the system moves about wait for each other for
    milliseconds. With more ranks than CPUs no rank is bound."""
    if any(word in OWN for word in options):
        return []
    count = [int(b) for a, b in zip(options, options[1:]) if a in ("-np", "-n") and b.isdigit()]
    cpus = len(os.sched_getaffinity(0))
    if 0 in count:
        sys.exit("launch.py: -np 0: at least 1 rank")
    if not count or count[0] > cpus:
        return ["--oversubscribe", "--bind-to", "none"]
    return ["--use-hwthread-cpus", "--map-by", f"slot:PE={cpus // count[0]}", "--bind-to", "hwthread"]


def run(command, env):
    """(status, mpirun's own lines, whether a rank has said why the run ends). All other lines pass, but only the first
    that says so: ranks of several nodes do not hear each other."""
    own, report, said = [], False, False
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, errors="replace") as job:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda n, _: job.send_signal(n))
        for line in job.stderr:
            if line.startswith("-----"):
                report = not report
                own.append(line)
            elif report or "] PMIX" in line or re.match(r"\[[\w.-]+:\d+\]", line):
                own.append(line)
            elif not said or not SAYS.match(line):
                said = said or bool(SAYS.match(line))
                sys.stderr.write(line)
                sys.stderr.flush()
    return job.returncode, "".join(own), said


def explain(status, report, board):
    """(exit status, a line or nothing)"""
    died, left, code, lost = (x.search(report) for x in (DIED, LEFT, CODE, LOST))
    # The daemon of a node that is cut off ends, too. If mpirun hears of the daemon before it misses the node, it calls that
    # a failed start and names no node. All ranks had begun: they have taken the name of the board away.
    if lost or (ENDED in report and not os.fstat(board).st_nlink):
        node = f"node {lost[1]}" if lost else "a node"
        return 4, f"{node} has not answered for 6 s, or its network is cut; rank 0 was {phase(board, 0)}"
    if died:
        rank, number = int(died[1]), int(died[2])
        why = {signal.SIGKILL: " (killed, perhaps out of memory)", signal.SIGABRT: " (out of memory?)"}.get(number, "")
        return 4, f"rank {rank} was ended by {signal.Signals(number).name}{why} {phase(board, rank)}"
    if left and code:
        own = int(code[1])
        if own in (1, 2, 4):  # the program has said why
            return own, ""
        return 4, f"rank {left[1]} ended with status {own} {phase(board, int(left[1]))}"
    if status and report:
        return 1, "mpirun: " + " ".join(l.strip() for l in report.splitlines() if l.strip("- \n"))[:400]
    return status, ""


def main():
    options, program = split(sys.argv[1:])
    mpirun = os.environ.get("MPIRUN", "mpirun")
    if not shutil.which(mpirun):
        sys.exit(f"launch.py: there is no {mpirun} (Debian: openmpi-bin)")
    # Ranks of other nodes make such a file there. All of them take its name away when all have opened it.
    board, path = tempfile.mkstemp(prefix="embfuse-ranks", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    env = dict(os.environ, EMBFUSE_RANKS_BOARD=path, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    passed = ["-x", "EMBFUSE_RANKS_BOARD", *(["-x", "EMBFUSE_RANKS_LIMIT"] if "EMBFUSE_RANKS_LIMIT" in env else [])]
    try:
        status, report, said = run([mpirun, *ALWAYS, *placement(options), *passed, *options, *program], env)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    status, why = explain(status, report, board)
    if why and not said:
        print(f"ranks: {why}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
