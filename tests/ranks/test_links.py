#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks on nodes that are network namespaces, with shaped links: results are right, a link has its rate, no exchange
is faster, a cable that is pulled ends the run in one line, and no namespace stays. Skipped where a machine does not allow
such a network (it takes root), and without Open MPI."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tap

sys.path.insert(0, os.path.join(tap.ROOT, "ranks"))
import network

BENCH = os.path.abspath(os.path.join(tap.BUILD, "ranks", "bench"))
NETWORK = os.path.join(tap.ROOT, "ranks", "network.py")
SMALL = ["--sharding=row", "--rule=adagrad", "--filter=cpu_fused", "--modes=iteration", "--rows=1e5", "--dims=64",
         "--batch=8192", "--pooling=8", "--threads=1"]


def need_network():
    if not os.path.exists(BENCH) or not shutil.which("mpirun"):
        raise tap.Skip("no Open MPI (Debian: openmpi-bin, libopenmpi-dev)")
    try:
        with network.Network(1, "1gbit") as one, tempfile.TemporaryDirectory() as work:
            done = subprocess.run(network.command(one, 1, ["/bin/true"], work), capture_output=True, text=True, timeout=60,
                                  check=False)
            if done.returncode:
                raise tap.Skip(f"this machine has no nodes: {done.stderr.strip()[:200]}")
    except network.NetworkError as e:
        raise tap.Skip(str(e)[:200]) from None


def start(*words, **options):
    return subprocess.Popen([sys.executable, NETWORK, "-np", "2", *words], stderr=subprocess.PIPE, text=True, **options)


def namespaces(pid):
    """Those that a process has made; other tests may have theirs at the same time."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return [line.split()[0] for line in listed.splitlines() if re.match(f"embfuse{pid}[ns]", line)]


# Two programs. The second node's takes all bytes. The first node's sends so many, and says how long that took.
RECEIVE = """import socket, sys
server = socket.create_server((sys.argv[1], 5000))
print("ready", flush=True)
connection = server.accept()[0]
while connection.recv(1 << 16):
    pass
connection.sendall(b"!")"""
SEND = """import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5000))
begin = time.monotonic()
connection.sendall(bytes(int(sys.argv[2])))
connection.shutdown(socket.SHUT_WR)
assert connection.recv(1)
print(time.monotonic() - begin)"""


def seconds_of_a_transfer(nodes, size):
    first, second = (["ip", "netns", "exec", node, sys.executable, "-c"] for node in nodes.nodes)
    address = f"{network.NET}.2"
    with subprocess.Popen([*second, RECEIVE, address], stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout.readline() == "ready\n"
            done = subprocess.run([*first, SEND, address, str(size)], stdout=subprocess.PIPE, check=True, timeout=60)
            return float(done.stdout)
        finally:
            receiver.kill()


def least_seconds(size):
    """Of a transfer at 100mbit. Two shapers let their bursts of 64 KiB pass at once."""
    return 8 * (size - 2 * 2**16) / 1e8


def test_a_link_has_its_rate(_folder):
    """Frames have headers of 5 %, and other work may delay some transfers."""
    need_network()
    size = 4 << 20
    with network.Network(2, "100mbit") as nodes:
        times = sorted(seconds_of_a_transfer(nodes, size) for _ in range(5))
    assert least_seconds(size) <= times[0] <= 1.3 * least_seconds(size), (times, least_seconds(size))


def test_no_exchange_is_faster_than_its_link(folder):
    """A rank sends 8192 * 64 * 4 / 2 bytes of outputs to the other, and as many of gradients. How much longer that takes is
    Open MPI's matter: see ranks/network.py."""
    need_network()
    job = start("--link=100mbit", BENCH, *SMALL, "--reps=9", f"--out={folder}", stdout=subprocess.DEVNULL)
    _, said = job.communicate(timeout=120)
    assert job.returncode == 0 and "WRONG" not in said, said
    with open(os.path.join(folder, "bench.json"), encoding="utf-8") as file:
        data = json.load(file)
    assert data["context"]["emb_nodes"] == "2", data["context"]
    found = [r for r in data["benchmarks"] if r["run_type"] == "iteration"]
    assert found
    for row in found:
        for what in ("output", "gradient"):
            size = row[f"exchange_{what}_sent_mib"] * 2**20
            assert size > 1e6
            assert row[f"exchange_{what}_ms"] >= 1e3 * least_seconds(size), (what, row[f"exchange_{what}_ms"], size)
    assert not namespaces(job.pid)


def test_a_cable_that_is_pulled_ends_the_run_in_one_line(folder):
    need_network()
    with network.Network(2, "1gbit") as nodes, tempfile.TemporaryDirectory() as work:
        job = subprocess.Popen(network.command(nodes, 2, [BENCH, *SMALL, "--reps=1000", f"--out={folder}"], work),
                               stderr=subprocess.PIPE, text=True)
        time.sleep(4)
        begin = time.monotonic()
        nodes.cut(1)
        _, said = job.communicate(timeout=60)
    lines, seconds = [l for l in said.splitlines() if l.startswith("ranks: ")], time.monotonic() - begin
    assert job.returncode == 4 and len(lines) == 1 and seconds < 10, (job.returncode, said, seconds)
    assert f"node {nodes.nodes[1]} has not answered" in lines[0] and "rank 0 was in phase '" in lines[0], lines
    assert not os.path.exists(os.path.join(folder, "bench.json"))
    assert not namespaces(os.getpid())


def test_nothing_stays_after_an_interruption(folder):
    need_network()
    job = start(BENCH, *SMALL, "--reps=1000", f"--out={folder}")
    time.sleep(3)
    assert len(namespaces(job.pid)) == 3
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=30)
    assert job.returncode != 0
    assert not namespaces(job.pid)


def test_bad_words_are_one_line(_folder):
    for words, wanted in ((("--link=fast", "/bin/true"), "'fast' is no rate"), (("--nodes=2", "-np", "3", "/bin/true"),
                                                                             "3 ranks on 2 nodes")):
        done = subprocess.run([sys.executable, NETWORK, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and wanted in done.stderr and done.stderr.count("\n") == 1, done.stderr


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "links"))
