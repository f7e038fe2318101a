#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A rule, a kernel and an operation are added to a copy of the tree as CONTRIBUTING.md says, with no edit elsewhere: the
suite builds and runs them."""
import json
import os
import shutil
import subprocess
import sys

import tap

RULE, KERNEL, OPERATION = "a_rule_with_quite_a_long_name", "cpu_added", "added_operation"
# What runs takes no time, so the copy is compiled quickly. (At -O0 every inlined switch over rules keeps all rules.)
COMMON = "-O1 -MMD -MP -fopenmp -fPIC -ffp-contract=off -Wall -Wextra -Werror -Wno-missing-field-initializers -I. -Ibuild"


def copy(folder, path, to, *replaced):
    """Copies a file of the tree with words replaced."""
    with open(os.path.join(folder, path), encoding="utf-8") as file:
        text = file.read()
    for old, new in replaced:
        assert old in text, (path, old)
        text = text.replace(old, new)
    with open(os.path.join(folder, to), "w", encoding="utf-8") as file:
        file.write(text)


def call(folder, *command):
    done = subprocess.run(command, cwd=folder, env=os.environ | {"EMBFUSE_LOCK": folder + "/lock"}, capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def good(folder, *command):
    status, text = call(folder, *command)
    assert status == 0, f"{command}: status {status}: {text[-2000:]}"
    return text


def test_added_rule_kernel_and_operation(folder):
    tree = os.path.join(folder, "tree")
    shutil.copytree(tap.ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns("build", ".git", "results"))
    for path in "rules/%s.h", "harness/check/rules/%s.h", "tests/rules/%s.inc":
        copy(tree, path % "sgd", path % RULE, ("sgd", RULE))
    copy(tree, "kernels/cpu/cpu_sort.c", f"kernels/cpu/{KERNEL}.c", ("cpu_sort", KERNEL))
    copy(tree, "kernels/kernel.h", "kernels/kernel.h", (", OPERATIONS", ", OP_ADDED, OPERATIONS"))
    copy(tree, "harness/registry.c", "harness/registry.c", ('"weight_grad"}', f'"weight_grad", "{OPERATION}"}}'))
    for kernel in os.listdir(os.path.join(tree, "kernels/cpu")):  # the others are compiled long
        if kernel not in ("cpu_dense.c", f"{KERNEL}.c"):
            os.unlink(os.path.join(tree, "kernels/cpu", kernel))
    good(tree, "make", "-j2", "NVCC=", "COMMON=" + COMMON, "build/bench", "build/embfuse")

    good(tree, "build/bench", "--smoke", "--threads=2", f"--rule={RULE} adagrad", "--filter=^(mixed|max)/", "--out=out")
    with open(os.path.join(tree, "out/bench.json"), encoding="utf-8") as file:
        names = {row["name"] for row in json.load(file)["benchmarks"]}
    for rule in RULE, "adagrad":
        for kernel in "cpu_dense", KERNEL:
            assert any(name.startswith(f"mixed/{rule}/{kernel}/cold") for name in names), (rule, kernel, names)
    assert "matches none" in call(tree, "build/bench", "--rule=" + OPERATION)[1]
    known = call(tree, "build/bench", "--rule=other")[1]
    assert f" {RULE} " in known and known.endswith(f" weight_grad {OPERATION} all\n"), known

    listed = good(tree, "build/embfuse", "list")
    assert RULE in listed and KERNEL in listed, listed
    good(tree, "build/embfuse", "gen", "datasets/smoke.spec", "--workload=mixed", "--initial-tables", "--out=b")
    good(tree, "build/embfuse", "step", "--batch=b", "--kernel=" + KERNEL, "--rule=" + RULE, "--out=b")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "add"))
