#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks on nodes that are network namespaces, with shaped links: results are right, a cable that is pulled ends the run
in one line, and no namespace stays. Skipped where a machine does not allow such a network (it takes root), and
without Open MPI. The rates of links are a matter of the study of scale, which calibrates each."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import launched
import tap

import network

NETWORK = os.path.join(tap.ROOT, "extras", "ranks", "network.py")
SMALL = ["--sharding=row", "--rule=adagrad", "--filter=cpu_fused", "--modes=iteration", "--rows=1e5", "--dims=64",
         "--batch=8192", "--pooling=8", "--threads=1"]


def bench():
    """Its path, on a machine that has nodes."""
    path = launched.program("extras/ranks/bench")
    try:
        with network.Network(1, "1gbit") as one, tempfile.TemporaryDirectory() as work:
            done = subprocess.run(network.command(one, 1, ["/bin/true"], work), capture_output=True, text=True, check=False)
    except network.NetworkError as e:
        raise tap.Skip(str(e)[:200]) from None
    if done.returncode:
        raise tap.Skip(f"this machine has no nodes: {done.stderr.strip()[:200]}")
    return path


def start(*words):
    return subprocess.Popen([sys.executable, NETWORK, "-np", "2", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True)


def namespaces(pid):
    """Those that a process has made; other tests may have theirs at the same time."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return [line.split()[0] for line in listed.splitlines() if re.match(f"embfuse{pid}[ns]", line)]


def test_results_over_a_link_are_right(folder):
    job = start(bench(), *SMALL, "--reps=1", f"--out={folder}")
    said = job.communicate()[1]
    assert job.returncode == 0 and "WRONG" not in said, said
    with open(os.path.join(folder, "bench.json"), encoding="utf-8") as file:
        data = json.load(file)
    assert data["context"]["emb_nodes"] == "2" and data["benchmarks"], data["context"]
    assert not namespaces(job.pid)


def test_a_cable_that_is_pulled_ends_the_run_in_one_line(folder):
    path = bench()
    with network.Network(2, "1gbit") as nodes, tempfile.TemporaryDirectory() as work:
        job = subprocess.Popen(network.command(nodes, 2, [path, *SMALL, "--reps=1000", f"--out={folder}"], work),
                               stderr=subprocess.PIPE, text=True)
        launched.process_of(job, 0)
        nodes.cut(1)
        said = job.communicate()[1]
    lines = [line for line in said.splitlines() if line.startswith("ranks: ")]
    assert job.returncode == 4 and len(lines) == 1, (job.returncode, said)
    assert " has not answered" in lines[0] and "rank 0 was in phase '" in lines[0], lines
    assert not os.path.exists(os.path.join(folder, "bench.json")) and not namespaces(os.getpid())


def test_nothing_stays_after_an_interruption(folder):
    job = start(bench(), *SMALL, "--reps=1000", f"--out={folder}")
    while len(namespaces(job.pid)) < 3:
        assert job.poll() is None, job.communicate()
    job.send_signal(signal.SIGTERM)
    job.communicate()
    assert job.returncode != 0 and not namespaces(job.pid)


def test_bad_words_are_one_line(_folder):
    for words, wanted in ((("--link=fast", "/bin/true"), "'fast' is no rate"),
                          (("--nodes=2", "-np", "3", "/bin/true"), "3 ranks on 2 nodes")):
        done = subprocess.run([sys.executable, NETWORK, *words], capture_output=True, text=True, check=False)
        launched.refused(done, 1, wanted)


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "links"))
