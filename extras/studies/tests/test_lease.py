#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""extras/studies/gpu/lease.py with stand-ins for the programs that it runs: each writes its call down."""
import json
import os
import shutil
import subprocess
import sys

import tap

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>calls
case "$(basename "$0") $*" in
    "tests max") [ -e again ] || { touch again; exit 1; } ;; # fails once
esac
"""


def packed(folder, commit):
    """A folder as extras/studies/gpu/pack.sh makes it, with stand-ins: (folder, environment)."""
    for name in ("extras/studies/gpu", "reports"):
        shutil.copytree(os.path.join(tap.ROOT, name), os.path.join(folder, name), dirs_exist_ok=True)
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    for name in ("bench", "embfuse", "tests", "ncu", "compute-sanitizer", "python3", "nvidia-smi"):
        path = os.path.join(folder, "bin", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho 'NVIDIA X, 1.2'\n" if name == "nvidia-smi" else STAND_IN)
        os.chmod(path, 0o755)
    with open(os.path.join(folder, "commit.txt"), "w", encoding="utf-8") as file:
        file.write(f"commit: {commit}\n")
    return os.environ | {"PATH": os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]}


def lease(folder, environment, *options):
    """(status, what it said, the calls that it made)"""
    calls = os.path.join(folder, "calls")
    if os.path.exists(calls):
        os.remove(calls)
    out = os.path.join(folder, "results")
    done = subprocess.run([sys.executable, os.path.join(folder, "extras", "studies", "gpu", "lease.py"), f"--out={out}", *options],
                          capture_output=True, text=True, env=environment, check=False)
    made = open(calls, encoding="utf-8").read().splitlines() if os.path.exists(calls) else []
    return done.returncode, done.stdout + done.stderr, made


def statuses(folder):
    with open(os.path.join(folder, "results", "lease.json"), encoding="utf-8") as file:
        steps = json.load(file)["steps"]
    assert {(s["device"], s["commit"]) for s in steps.values()} == {("NVIDIA X, 1.2", "abc")}, steps
    return {key: step["status"] for key, step in steps.items()}


def test_goes_on_where_it_stopped(folder):
    environment = packed(folder, "abc")
    status, said, calls = lease(folder, environment, "--parts=verify", "--seconds=0")
    assert status == 3 and not calls and "steps are not done" in said, (status, said, calls)
    status, said, calls = lease(folder, environment, "--parts=verify")
    assert status == 3 and calls[:2] == ["tests defects", "tests kernels"], (status, said, calls)
    assert statuses(folder)["verify/max"] == 1 and "verify/max: 1" in said and "1 steps are not done" in said, said
    status, said, calls = lease(folder, environment, "--parts=verify")
    assert (status, calls) == (0, ["tests max"]), (status, said, calls)
    assert lease(folder, environment, "--parts=verify")[::2] == (0, [])
    packed(folder, "def")  # another commit begins anew
    status, said, calls = lease(folder, environment, "--parts=verify")
    assert status == 0 and "tests defects" in calls, (status, said)


def test_a_step_beyond_its_limit_is_stopped(folder):
    sys.path.insert(0, os.path.join(tap.ROOT, "extras", "studies", "gpu"))
    import lease as script
    assert script.run("echo begun; sleep 600", folder, 0.5) == "limit"
    assert script.run("exit 7", folder, 600) == 7


def test_every_part_runs_what_it_says(folder):
    environment = packed(folder, "abc")
    status, said, calls = lease(folder, environment, "--parts=peers why time")
    assert status == 0, said
    first = next(c for c in calls if c.startswith("bench"))
    assert "^dynamicemb-one-table/" in first and "--rule=sgd" in first, first
    assert calls[0].startswith("embfuse gen datasets/dynamicemb.spec"), calls[0]
    assert any(c.startswith("ncu --csv") and "smsp__inst_executed.sum" in c for c in calls), calls
    assert any(c.startswith("python3 extras/peers/torch_peer.py") for c in calls), calls
    assert "time/zipf-rowwise_adagrad" in lease(folder, environment, "--list")[1]


def test_wrong_parts_are_refused(folder):
    status, said, calls = lease(folder, packed(folder, "abc"), "--parts=time whi")
    assert status == 1 and "no part whi: verify, time, why, peers" in said and not calls, (status, said)


def test_steps_name_what_there_is(folder):
    """Specs, workloads, rules and groups of tests; folder: unused."""
    sys.path.insert(0, os.path.join(tap.ROOT, "extras", "studies", "gpu"))
    import lease as script
    for spec, workload, rules, *_ in (*script.TIMES, *script.WHY, *script.PEERS):
        with open(os.path.join(tap.ROOT, "datasets", f"{spec}.spec"), encoding="utf-8") as file:
            assert f"workload {workload.split('/')[0]}\n" in file.read(), (spec, workload)
        for rule in rules.split():
            assert os.path.exists(os.path.join(tap.ROOT, "rules", f"{rule}.h")), rule
    with open(os.path.join(tap.ROOT, "tests", "test.mk"), encoding="utf-8") as file:
        groups = next(line for line in file if line.startswith("gpu_groups")).split()
    assert set(script.GROUPS) <= set(groups), set(script.GROUPS) - set(groups)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "lease"))
