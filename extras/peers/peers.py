#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures PyTorch and FBGEMM beside the suite's CPU kernels, and writes one result. Kernels and peers
take turns in random order within every round, with the same batch, weights and threads.

The script drives two processes line by line: extras/peers/session with the suite's kernels, and worker.py
with the peers. While one works, the other waits for its next line. It also takes the options of
build/bench.
"""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "reports"))
import program
from program import Arguments, ResultError, say, write_whole
from results import WRONG, Sample, add_not_run, read_not_run, words

PEERS = ("torch_sparse", "torch_dense", "fbgemm")
PINNED = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}  # as build/bench does by itself
IN_FAVOUR = {
    "THP_MEM_ALLOC_ENABLE": "1",  # huge pages for tensors
    # The heap keeps its pages from one step to the next, as the kernels keep their scratch.
    "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 62),
    # Without it FBGEMM reads a copy of cpuinfo's results that stays empty: see README.md.
    "TORCH_USE_RTLD_GLOBAL": "1"}
CEILINGS = ("copy_gbs", "rmw_gbs", "gather_gbs", "pingpong_ns")  # measured before a kernel's sample
SHARED = ("tables", "rows", "dim", "alpha", "in_bag_duplicates", "bags", "empty_bags",
          "longest_bag", "line_mib", "gather_mib")  # facts of the batch


class Program:
    """One of the two processes. A question is a line, and so is an answer."""

    def __init__(self, name, command, env):
        self.name = name
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            text=True, env=os.environ | env)
        except OSError as e:
            raise ResultError(f"{command[0]}: {e.strerror}") from None

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            why = signal.Signals(-status).name if status < 0 else f"status {status}"
            why += ": out of memory?" if why == "SIGKILL" else ""
            raise ResultError(f"{self.name} ended early ({why})")
        return json.loads(line)

    def good_answer(self):
        out = self.answer()
        if "error" in out:
            raise ResultError(out["error"])
        return out

    def ask(self, line):
        with contextlib.suppress(BrokenPipeError):  # good_answer() reports it
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.good_answer()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Run:
    def __init__(self, args):
        self.args, self.rows, self.wrong = args, [], False
        self.folder, self.random = os.path.join(args.out, "work"), random.Random(1)
        self.session, self.worker = None, None
        os.makedirs(self.folder, exist_ok=True)

    def start(self, options):
        """Starts both processes and keeps the context that they send."""
        args = self.args
        self.session = Program("session", [args.session, *options], PINNED)
        self.context = self.session.good_answer()["context"]
        self.reps, threads = int(self.context["emb_var_REPS"]), self.context["emb_threads"]
        env = PINNED | IN_FAVOUR | {"OMP_NUM_THREADS": threads}
        self.worker = Program("worker", [args.python, "-W", "ignore", os.path.join(HERE, "worker.py"),
                                         threads, args.embfuse], env)
        self.context |= self.worker.good_answer()["context"] | {"num_cpus": os.cpu_count()}

    def do(self, what, **how):
        return self.worker.ask(json.dumps({"do": what, **how}))

    def not_run(self, workload, kernel, reason):
        if (workload, kernel, reason) not in read_not_run(self.context):
            add_not_run(self.context, [(workload, kernel, reason)])
            say(f"not run: {workload}, {kernel}: {reason}")
        self.wrong |= reason.startswith(WRONG)

    def all(self):
        while not (point := self.session.answer()).get("end"):
            if "error" in point:
                self.not_run("*", "a workload", point["error"])
                continue
            say(f"{point['workload']}, {point['rule']}")
            self.context[f"emb_workload_{point['workload']}"] = point["text"]
            rows = self.measure(point)
            failed = self.session.ask("next")["refused"]
            for kernel, why in failed.items():
                self.not_run(point["workload"], kernel, why)
            self.rows += [r for r in rows if words(r)["kernel"] not in failed]
            if self.rows:
                self.write()  # so that an interrupted run leaves a result

    def peer_cases(self, point):
        modes = sorted({c["mode"] for c in point["cases"]})
        name = lambda k, m: f"{point['workload']}/{point['rule']}/{k}/{m}"
        return [(k, m) for k in PEERS for m in modes
                if re.search(self.context["emb_var_FILTER"], name(k, m))]

    def open_peers(self, point, wanted):
        """Gives the peers batches and weights as .npy files; returns the cases they can run."""
        prefix = os.path.join(self.folder, "batch")
        self.session.ask(f"batches {prefix}")
        key = json.dumps([point["tables"], point["seed"]])
        if self.do("open", prefixes=[f"{prefix}{b}" for b in range(point["ring"])],
                   rule=point["rule"], key=key)["weights"]:
            prefix = os.path.join(self.folder, "tables")
            self.session.ask(f"weights {prefix}")
            paths = [f"{prefix}.weight.{t}.npy" for t in range(len(point["tables"]))]
            self.do("weights", paths=paths)
            for path in paths:
                os.unlink(path)
        answer = self.do("check", kernels=sorted({k for k, _ in wanted}, key=PEERS.index))
        for kernel, peer in answer["peers"].items():
            if peer["note"]:
                self.context[f"emb_peer_{kernel}_{point['rule']}"] = peer["note"]
        for kernel, why in answer["refused"].items():
            no_such = "no such optimizer" in why or "not supported in CPU" in why
            self.not_run("*" if no_such else point["workload"], kernel, why)
        return [(k, m) for k, m in wanted if k in answer["peers"]]

    def measure(self, point):
        wanted, peers = self.peer_cases(point), []
        try:
            if wanted:
                peers = self.open_peers(point, wanted)
        except ResultError as e:
            if self.worker.process.poll() is not None:
                raise
            self.not_run(point["workload"], "peers", str(e))
        turns = [("kernel", i) for i in range(len(point["cases"]))] + [("peer", p) for p in peers]
        rows = []
        for r in range(self.reps):
            order = self.random.sample(turns, len(turns))
            own, others = [], []
            for kind, what in order:
                if kind == "kernel":
                    own.append(self.session.ask(f"sample {what} {r}"))
                else:
                    others.append(self.do("sample", kernel=what[0], mode=what[1], round_=r))
            complete(others, own)
            rows += [row | {"repetitions": self.reps} for row in own + others]
        if wanted:
            self.do("close")
        return rows

    def write(self):
        order = {k: i for i, k in enumerate(self.context)}
        self.rows.sort(key=lambda r: order.get("emb_kernel_" + words(r)["kernel"], 0))
        write_whole(os.path.join(self.args.out, "bench.json"),
                    json.dumps({"context": self.context, "benchmarks": self.rows}, indent=1))

    def end(self):
        for program in filter(None, (self.session, self.worker)):
            program.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def complete(others, own):
    """Copies facts of machine and batch from the kernels' rows of a round to the peers' rows."""
    for row in others:
        same = [r for r in own if words(r)["mode"] == words(row)["mode"]]
        for r in same:
            if words(r)["fingerprint"] != words(row)["fingerprint"]:
                raise ResultError(f"{row['name']}: other ids than {r['name']}")
        for key in CEILINGS:
            seen = [r[key] for r in same if key in r]
            row |= {key: statistics.median_high(seen)} if seen else {}
        row |= {k: same[0][k] for k in same[0] if k in SHARED or k.startswith("run_lookups")}
        if "line_mib" not in row and "roof_ms" in same[0]:  # the roof of an iteration is not the longer of two terms
            row["roof_ms"] = same[0]["roof_ms"]
            row["share_roof"] = row["roof_ms"] / row["real_time"]
        row["share_copy"] = row["traffic_gbs"] / row["copy_gbs"]
        row["share_rmw"] = row["traffic_gbs"] / row["rmw_gbs"]
        roof = Sample(row["real_time"], "", "", row).roof()
        if roof:
            row["roof_ms"] = max(roof) * row["lookups"] / 1e6
            row["share_roof"] = row["roof_ms"] / row["real_time"]
        row["label"] += f" placement={words(same[0])['placement']}"


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("--session", default="build/extras/peers/session")
    parser.add_argument("--embfuse", default="build/embfuse")
    parser.add_argument("--python", default="build/peers/venv/bin/python", metavar="PYTHON",
                        help="a Python with torch and fbgemm_gpu")
    parser.add_argument("--out", default="build/results/peers", help="folder for bench.json")
    args, options = parser.parse_known_args()
    if not shutil.which(args.python):
        raise ResultError(f"{args.python} is missing: 'make peers' installs PyTorch and FBGEMM; "
                          "nothing else in the suite needs them")
    args.out = os.path.abspath(args.out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run(args)
    try:
        run.start(options)
        run.all()
        if not run.rows:
            raise ResultError("nothing was measured: no kernel of the suite matches the filter")
        say(f"wrote {args.out}/bench.json")
    finally:
        run.end()
    return 2 if run.wrong else 0


if __name__ == "__main__":
    program.run(main, "interrupted; bench.json has the finished workloads, if any")
