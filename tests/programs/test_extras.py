#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The core stands alone: it names no extra, kernels include kernels only, and an extra uses only the core and
extras/library. If any one extra is removed, the rest has a plan to build; if all are, the rest links."""
import glob
import os
import re
import shutil
import subprocess
import sys

import tap
from spoiled import equal

EXTRAS = sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob(os.path.join(tap.ROOT, "extras", "*", "extra.mk")))
INCLUDE = re.compile(r'(?m)^[ \t]*#[ \t]*include[ \t]+"extras/([a-z]+)/')
NAMED = re.compile(r"(?m)^(?![ \t]*(?:#|//|\*|/\*)).*\bextras/([a-z]+)\b")  # in a line that is no comment
COMPILED, READ = (".c", ".h", ".cpp", ".cu", ".cuh"), (".mk", ".py", ".sh")
RECORDED = {"studies": {"peers"}}  # studies name peers: a record of a machine has results of peers, too
CORE = ("Makefile", "rules", "kernels", "harness", "emulation", "cli", "reports", "datasets", "tests")


def files(*folders):
    for folder in folders:
        path = os.path.join(tap.ROOT, folder)
        found = glob.glob(os.path.join(path, "**"), recursive=True) if os.path.isdir(path) else [path]
        yield from (p for p in sorted(found) if os.path.isfile(p) and f"{os.sep}results{os.sep}" not in p)


def reached(pattern, endings, *folders):
    """The (file, extra) of all files with these endings in which the pattern finds the name of an extra."""
    found = set()
    for path in files(*folders):
        if path.endswith(endings):
            with open(path, encoding="utf-8", errors="replace") as file:
                found |= {(os.path.relpath(path, tap.ROOT), extra) for extra in pattern.findall(file.read())}
    return found


def test_the_patterns_find_what_they_should(_):
    equal(INCLUDE.findall('#include "extras/ranks/route.h"\n  # include "extras/tiers/io.h"\n'), ["ranks", "tiers"])
    equal(NAMED.findall("x := extras/ranks/a.c\n# see extras/tiers\n\t@sh extras/cuda/x.sh\nextras/*/extra.mk\n"),
          ["ranks", "cuda"])
    assert len(EXTRAS) > 5 and ("extras/tiers/resident.c", "tiers") in reached(INCLUDE, COMPILED, "extras/tiers"), EXTRAS


def test_the_core_names_no_extra(_):
    own = {("tests/programs/test_extras.py", extra) for extra in EXTRAS}
    equal(sorted(reached(INCLUDE, COMPILED, *CORE)), [])
    equal(sorted(reached(NAMED, ("Makefile", *READ), *CORE) - own), [])


def test_a_kernel_includes_kernels_alone_and_knows_no_rule(_):
    """Files directly in kernels/, which all kernels share, may name rules."""
    kernels = [os.path.relpath(path, tap.ROOT) for path in files("kernels") if path.endswith(COMPILED)]
    assert len(kernels) > 50, kernels
    rules = "|".join(os.path.basename(p)[:-2] for p in glob.glob(os.path.join(tap.ROOT, "rules", "*.h")))
    other = re.compile(r'(?m)^[ \t]*#[ \t]*include[ \t]+"(?!kernels/|rules\.h|rule_)[^"]*"')
    knows = re.compile(rf"sqrt|RULE_(?:{rules})\b")
    for path in kernels:
        with open(os.path.join(tap.ROOT, path), encoding="utf-8") as file:
            text = file.read()
        equal((path, other.findall(text)), (path, []))
        equal((path, path.count("/") > 1 and knows.findall(text) or []), (path, []))


def test_an_extra_reaches_the_core_and_the_library_only(_):
    for extra in EXTRAS:
        folder = os.path.join("extras", extra)
        others = {(file, other) for file, other in reached(INCLUDE, COMPILED, folder) | reached(NAMED, READ, folder)
                  if other not in {extra, "library"} | RECORDED.get(extra, set())}
        equal((extra, sorted(others)), (extra, []))


def plan(tree, *words):
    """What make would do in a copy of the tree, from nothing."""
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(["make", "--no-print-directory", "-n", "NVCC=", "B=none", "CC=gcc", "SANITIZE=", *words], cwd=tree,
                          env=environment, capture_output=True, text=True, check=False)


def copy_of(tree):
    shutil.copytree(tap.ROOT, tree, symlinks=True, ignore=lambda folder, names: {
        n for n in names if n in ("build", ".git", "results") or n.endswith((".png", ".json"))})


def test_without_an_extra_the_rest_has_all_it_needs(folder):
    """When the library is removed, all extras that include it are removed as well."""
    tree, aside = os.path.join(folder, "tree"), os.path.join(folder, "aside")
    copy_of(tree)
    os.mkdir(aside)
    users = {other for other in EXTRAS if ("library" in {to for _, to in reached(INCLUDE, COMPILED, "extras/" + other)})}
    assert {"library", "serving", "ranks"} <= users, users
    for extra in EXTRAS:
        gone = users if extra == "library" else {extra}
        for name in gone:
            shutil.move(os.path.join(tree, "extras", name), aside)
        done = plan(tree, "none/bench", "none/embfuse", "none/tests/unit/tests", "none/tests/kernels/tests")
        assert done.returncode == 0 and "none/cli/embfuse.o" in done.stdout, (extra, done.stderr[-500:])
        equal((extra, [line for line in done.stdout.splitlines() for name in gone if f"extras/{name}/" in line]), (extra, []))
        for name in gone:
            shutil.move(os.path.join(aside, name), os.path.join(tree, "extras"))


def test_without_extras_embfuse_links_and_has_its_own_commands(folder):
    if not os.path.exists(os.path.join(tap.BUILD, "cli", "embfuse.o")):
        raise tap.Skip("no objects of embfuse in this build")
    tree = os.path.join(folder, "tree")
    copy_of(tree)
    shutil.rmtree(os.path.join(tree, "extras"))
    for part in "cli", "harness", "kernels":  # with the times of this build's objects, so that make recompiles little
        shutil.copytree(os.path.join(tap.BUILD, part), os.path.join(tree, "build", part))
    for path in glob.glob(os.path.join(tap.BUILD, "*.h")) + glob.glob(os.path.join(tap.BUILD, "*.inc")):
        shutil.copy2(path, os.path.join(tree, "build"))
    done = subprocess.run(["make", "--no-print-directory", "-o", "build/build_info.h", "NVCC=", "build/embfuse"], cwd=tree,
                          capture_output=True, text=True, check=False,
                          env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")})
    assert done.returncode == 0, done.stderr[-800:]
    said = subprocess.run([os.path.join(tree, "build", "embfuse"), "help"], capture_output=True, text=True, check=False).stdout
    assert "  step " in said and "  monitor " not in said and "  export " not in said, said


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "extras"))
