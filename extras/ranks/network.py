#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a program of several ranks on nodes that are network namespaces of this machine, with shaped links.

    extras/ranks/network.py --link=1gbit --nodes=2 -np 4 build/extras/ranks/bench --sharding=row --rule=adagrad

Each node has a host name, a /dev/shm and a share of the CPUs of its own, and a cable to a switch, which has that rate
in both directions. All other options go to launch.py. It needs root, and iproute2's ip and tc. The namespaces are
gone when it ends, also if it is interrupted. The exit status is launch.py's; 1 also if this machine does not allow
such a network.

A token bucket filter (tc-tbf(8)) makes the rates and counts bytes of frames, with headers. Messages below its burst
pass at once, so only larger messages show the rate.

Open MPI has one connection for two ranks. Its answer to a large message stands behind the data of its own that it has
begun to send, so the two directions of an exchange sometimes come one after the other. Then one rank is done before the
other, and waits for it in the next exchange. So exchanges of 1 MiB at 100mbit take 88, 171 or 255 ms.
"""
import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")
NET = "10.77.0"
BURST = 1e-4  # seconds of the link; at least 64 KiB, which is a segment that the kernel has not cut yet
QUEUE = 0.1  # seconds that a frame may wait
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
# A shell in node $1 runs the other words, split again, as mpirun wants it of a remote shell.
AGENT = """#!/bin/sh
node=$1
shift
exec ip netns exec "$node" unshare --uts --mount /bin/sh -c "hostname $node
mount -t tmpfs -o size=1g none /dev/shm
exec taskset -c $(cat {work}/$node) $*"
"""


class NetworkError(Exception):
    """This machine does not allow it; one line says why."""


def bits(rate):
    """Bits per second of '1gbit'."""
    for unit, factor in UNITS.items():
        number = rate[:-len(unit)] if rate.endswith(unit) else ""
        if number.replace(".", "", 1).isdigit() and float(number) > 0:
            return float(number) * factor
    raise NetworkError(f"'{rate}' is no rate; say 100mbit, 1gbit or 10gbit")


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"{' '.join(words)}: {done.stderr.strip()} (it needs root, and a kernel with namespaces)")


class Network:
    """with Network(2, "1gbit") as network: network.nodes are the names of the namespaces."""

    def __init__(self, nodes, rate):
        self.rate = bits(rate)
        prefix = f"embfuse{os.getpid()}"
        self.switch, self.nodes = f"{prefix}s", [f"{prefix}n{i}" for i in range(nodes)]

    def __enter__(self):
        for tool in ("ip", "tc"):
            if not shutil.which(tool):
                raise NetworkError(f"there is no {tool} (Debian: iproute2)")
        try:
            self.build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def build(self):
        call("ip", "netns", "add", self.switch)
        call("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "switch", "up")
        for i, node in enumerate(self.nodes):
            call("ip", "netns", "add", node)
            call("ip", "-n", node, "link", "add", "cable", "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
            call("ip", "-n", node, "addr", "add", f"{NET}.{i + 1}/24", "dev", "cable")
            call("ip", "-n", node, "link", "set", "lo", "up")
            call("ip", "-n", node, "link", "set", "cable", "up")
            call("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "switch", "up")
            self.shape(node, "cable")
            self.shape(self.switch, f"port{i}")

    def shape(self, namespace, device):
        burst = max(1 << 16, int(self.rate / 8 * BURST))
        call("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.rate:.0f}bit", "burst",
             str(burst), "limit", str(burst + int(self.rate / 8 * QUEUE)))

    def cut(self, node):
        """Pulls the cable of a node."""
        call("ip", "-n", self.switch, "link", "set", f"port{node}", "down")

    def remove(self):
        for name in (*self.nodes, self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def cpus_of(nodes):
    """CPUs of each node, as taskset wants them: a share, or all if there are more nodes than CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    share = len(cpus) // nodes
    parts = [cpus[i * share:(i + 1) * share] if share else cpus for i in range(nodes)]
    return [",".join(map(str, part)) for part in parts]


def command(network, ranks, words, work):
    """launch.py on the first node. mpirun reaches the others by the agent."""
    agent = os.path.join(work, "agent")
    with open(agent, "w", encoding="utf-8") as file:
        file.write(AGENT.format(work=work))
    os.chmod(agent, 0o755)
    for node, cpus in zip(network.nodes, cpus_of(len(network.nodes))):
        with open(os.path.join(work, node), "w", encoding="utf-8") as file:
            file.write(cpus)
    on_node = ranks // len(network.nodes)
    options = ["-np", str(ranks), "--host", ",".join(f"{node}:{on_node}" for node in network.nodes), "--bind-to", "none",
               "--mca", "plm_rsh_agent", agent]
    for name in ("oob_tcp_if_include", "btl_tcp_if_include"):
        options += ["--mca", name, f"{NET}.0/24"]
    options += ["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"]
    return [agent, network.nodes[0], *map(shlex.quote, [sys.executable, LAUNCH, *options, *words])]


def run(network, ranks, words):
    """The exit status of launch.py."""
    with tempfile.TemporaryDirectory(prefix="embfuse-network") as work:
        with subprocess.Popen(command(network, ranks, words, work)) as job:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda n, _: job.send_signal(n))
            return job.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="1gbit", help="rate of a cable in each direction (1gbit)")
    parser.add_argument("--nodes", type=int, default=2, help="number of nodes (2)")
    parser.add_argument("-np", type=int, default=2, metavar="RANKS", help="number of ranks, a multiple of the nodes (2)")
    args, words = parser.parse_known_args()
    if not 1 <= args.nodes <= 64 or args.np < 1 or args.np % args.nodes:
        sys.exit(f"network.py: {args.np} ranks on {args.nodes} nodes: say 1 to 64 nodes, and as many ranks on each of them")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also before the program runs, nothing stays
    try:
        with Network(args.nodes, args.link) as network:
            return run(network, args.np, words)
    except NetworkError as e:
        sys.exit(f"network.py: {e}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
