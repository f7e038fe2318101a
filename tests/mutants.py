#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mutation testing: changes one line of the code at a time, and reports the changes that no test notices.

It works in a copy of the tree, build/mutants/, with its own objects and programs. A mutant with the object
code of the original does not count. A mutant that survives is a hole in the tests, unless tests/mutants.txt
has a reason. Exit status: 1 if an unexplained mutant survived or nothing could be tried, otherwise 0.

Other tools: mull is in no Debian release; universalmutator makes 1638 mutants of the 146 lines of oracle.c,
but half of them do not compile, and its user must decide what to build again and which tests to run.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import fcntl
import filecmp
import glob
import os
import pathlib
import queue
import random
import re
import resource
import select
import shutil
import subprocess
import sys
import time

from mutate import BETWEEN, explained, mutants_of, read_reasons

TARGETS = ["rules/*.h", "kernels/**/*.h", "kernels/**/*.cuh", "kernels/*/*.c", "kernels/*/*.cu",
           "harness/check/*.c", "harness/check/num.h", "harness/check/rules/*.h"]
# Tests that judge a file, fast ones first. The first prefix that fits counts.
JUDGES = [("lib/state", ("state*",)),
          ("rules/", ("oracle*", "check*", "corners", "defects", "properties*", "kernels")),
          ("kernels/rules.h", ("oracle*", "check*", "corners", "defects", "properties*", "kernels")),
          ("kernels/host/", ("choices", "defects", "properties*", "kernels")),
          ("kernels/cpu/", ("choices", "defects", "properties*", "kernels")),
          ("kernels/", ("defects", "properties*", "kernels")),
          ("", ("check*", "oracle*", "corners", "overflow", "defects"))]
REASONS = "tests/mutants.txt"
MEMORY = 12 << 30  # limit for data, since a mutant may ask for anything


# --- a tree that is built once, and then mutant by mutant
class Tree:
    """A copy of the sources with a build of its own. Objects that a mutant changed are put back."""

    def __init__(self, folder, sanitize, tests):
        self.folder, self.sanitize = folder, sanitize
        self.programs = {t: f"build/tests/test_{t}" for t in tests}

    def at(self, *path):
        return pathlib.Path(self.folder, *path)

    def make(self, *targets):
        """Builds targets: the compiler's errors, or None. Little optimisation builds faster."""
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        done = subprocess.run(["make", "-s", "-C", self.folder, *targets, "B=build", "NVCC=",
                               f"SANITIZE={self.sanitize}",
                               "COMMON=-O1 -w -MMD -MP -fopenmp $(ARCH) $(FP) $(SAN) -I. -I$(B)"],
                              capture_output=True, text=True, check=False,
                              env=environment | {"GIT_DIR": "/nonexistent"})
        return done.stderr or "make failed" if done.returncode else None

    def objects(self, path):
        """The objects that depend on a file, from the compiler's dependency files."""
        return [d.with_suffix(".o").relative_to(self.folder)
                for d in sorted(self.at("build").rglob("*.d")) if path in d.read_text().split()]

    @contextlib.contextmanager
    def holding(self, m, objects):
        """Puts the mutant into its file; afterwards restores file and objects, with no object older."""
        source = self.at(m.path)
        before, times = source.read_text(), source.stat()
        kept = {self.at(o): self.at(o).read_bytes() for o in objects}
        lines = before.split("\n")
        lines[m.number - 1] = m.after
        try:
            source.write_text("\n".join(lines))
            yield lambda: all(o.read_bytes() == data for o, data in kept.items())
        finally:
            source.write_text(before)
            os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
            for o, data in kept.items():
                o.write_bytes(data)


def kernels_of(objects):
    """The pattern for TESTS that selects the kernels among these objects, and maybe a few more. A test that
    includes the code of a kernel has the kernel's name too."""
    objects = [o for o in objects if "tests" not in o.parts]
    names = [m[1] for m in (re.search(r"kernels/(?!device/)\w+/(\w+)\.o$", str(o)) for o in objects) if m]
    return os.path.commonprefix(names) + "*" if len(names) == len(objects) else "*"


def failure(program, pattern, patience):
    """Runs a program: None if it passes, otherwise the first test that fails, after which it is stopped; ""
    if it dies, or prints nothing for `patience` seconds."""
    changed = {"CMOCKA_MESSAGE_OUTPUT": "TAP", "OMP_WAIT_POLICY": "passive", "TESTS": pattern,
               "BUILD": str(pathlib.Path(program).parents[1])}  # files of two trees must not meet
    line = b""
    with subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=os.environ | changed) as run:
        try:
            while select.select([run.stdout], [], [], patience)[0]:
                read = os.read(run.stdout.fileno(), 1 << 16)
                *lines, line = (line + read).split(b"\n")
                for x in lines:
                    if x.startswith(b"not ok") and b"# SKIP" not in x:
                        return x.partition(b" - ")[2].decode()
                if not read:
                    return None if run.wait(patience) == 0 else ""
            return ""
        except subprocess.TimeoutExpired:
            return ""
        finally:
            run.kill()


class Judge:
    """Tries mutants. A test that kills one must pass on unchanged code, which is checked once per test."""

    def __init__(self, tests, end, patience):
        self.tests, self.end, self.patience, self.sound = tests, end, patience, set()

    def names(self, path):
        globs = next(names for prefix, names in JUDGES if path.startswith(prefix))
        return [t for g in globs for t in self.tests if re.fullmatch(g.replace("*", r"\w*"), t)]

    def kills(self, tree, test, pattern):
        if tree.make(tree.programs[test]):
            return True
        name = failure(tree.at(tree.programs[test]), pattern, self.patience)
        if name and (test, name) not in self.sound:
            if failure(tree.at("clean", f"test_{test}"), name, self.patience) is not None:
                sys.exit(f"mutants.py: test_{test} fails before anything is changed: {name}")
            self.sound.add((test, name))
        return name is not None

    def try_one(self, tree, m):
        """'killed', 'survived', 'equivalent', 'did not compile', 'in no test'; 'not tried' after the end."""
        if time.monotonic() > self.end:
            return "not tried"
        objects = tree.objects(m.path)
        if not objects:
            return "in no test"
        with tree.holding(m, objects) as same:
            if tree.make(*map(str, objects)):
                return "did not compile"
            if same():
                return "equivalent"
            pattern = kernels_of(objects)
            killed = any(self.kills(tree, test, pattern) for test in self.names(m.path))
            return "killed" if killed else "survived"


def sources(folder):
    """The files of a tree that are not built, relative to it."""
    for at, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in ("build", "clean", ".git", "__pycache__")]
        yield from (os.path.relpath(os.path.join(at, f), folder) for f in files)


def lock(folder):
    """Allows one run at a time, since all runs build in the same place."""
    os.makedirs(folder, exist_ok=True)
    file = open(os.path.join(folder, "lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"mutants.py: {folder} is in use by another run")
    return file


def copy_sources(root, to):
    """Unchanged files keep their times, so that make builds only what changed since the last run."""
    wanted = set(sources(root))
    for path in set(sources(to)) - wanted:
        os.remove(os.path.join(to, path))
    for path in wanted:
        source, copy = os.path.join(root, path), os.path.join(to, path)
        if not os.path.exists(copy) or not filecmp.cmp(source, copy, shallow=False):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy(source, copy)


def prepare(root, sanitize, jobs, tests):
    """As many built trees as there are jobs."""
    first = Tree(os.path.join(root, "build", "mutants", sanitize or "plain"), sanitize, tests)
    os.makedirs(first.at("clean"), exist_ok=True)
    copy_sources(root, first.folder)
    wrong = first.make(f"-j{jobs}", *first.programs.values())
    if wrong:
        sys.exit(f"mutants.py: the tests do not build:\n{wrong}")
    for program in first.programs.values():
        shutil.copy(first.at(program), first.at("clean"))
    trees = [first]
    for k in range(1, jobs):
        trees.append(Tree(f"{first.folder}-{k}", sanitize, tests))
        shutil.rmtree(trees[k].folder, ignore_errors=True)
        shutil.copytree(first.folder, trees[k].folder)
    return trees


def told(m):
    return f"{m.path}:{m.number}: {m.before.strip()}{BETWEEN}{m.after.strip()}"


def report(found, left, seed):
    """The lines of the report: counts per file, and the survivors."""
    outcomes = ("killed", "survived", "equivalent", "explained", "did not compile", "in no test")
    counts = collections.Counter((m.path, outcome) for m, outcome in found)
    known = sum(outcome == "explained" for _, outcome in found)
    yield (f"# seed {seed}: {len(found) - known} mutants tried, {known} have a reason, "
           f"{left} were not reached in time")
    for path in sorted({m.path for m, _ in found}):
        yield f"# {path}: " + ", ".join(f"{counts[path, o]} {o}" for o in outcomes if counts[path, o])
    yield from (told(m) for m, outcome in sorted(found) if outcome == "survived")


def hunt(judge, trees, mutants):
    """[(mutant, outcome)] of the mutants that are tried before time is up."""
    free, found = queue.Queue(), []
    for tree in trees:
        free.put(tree)

    def trial(m):
        tree = free.get()
        try:
            return m, judge.try_one(tree, m)
        finally:
            free.put(tree)

    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        for m, outcome in pool.map(trial, mutants):
            if outcome == "not tried":
                continue
            found.append((m, outcome))
            if outcome == "survived":
                print(f"survived: {told(m)}", flush=True)
            if len(found) % 20 == 0:
                left = max(0, judge.end - time.monotonic()) / 60
                print(f"{len(found)} of {len(mutants)} done, {left:.0f} minutes left", flush=True)
    return found


def arguments():
    parser = argparse.ArgumentParser(prog="mutants.py", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*", help="patterns (default: kernels, the check and the oracle)")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1, help="seed of the order: a short run is a fair sample")
    parser.add_argument("--patience", type=float, default=60, metavar="S",
                        help="seconds without output until a test counts as hanging")
    parser.add_argument("--sanitize", default="", metavar="ONE", help="like SANITIZE= of make")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--out", metavar="FILE", help="also write the report to this file")
    return parser.parse_args()


def main():
    args = arguments()
    end = time.monotonic() + 60 * args.minutes
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    paths = sorted({os.path.relpath(p, args.root) for g in args.files or TARGETS
                    for p in glob.glob(os.path.join(args.root, g), recursive=True)})
    if not paths:
        sys.exit(f"mutants.py: no such file: {' '.join(args.files)}")
    programs = {os.path.basename(p)[5:-2] for p in glob.glob(os.path.join(args.root, "tests", "test_*.c"))}
    judge = Judge(sorted(programs), end, args.patience)
    reasons, mutants = read_reasons(os.path.join(args.root, REASONS)), []
    for path in paths:
        with open(os.path.join(args.root, path), encoding="utf-8") as file:
            mutants += mutants_of(path, file.read())
    random.Random(args.seed).shuffle(mutants)
    known = [(m, "explained") for m in mutants if explained(m, reasons)]
    mutants = [m for m in mutants if not explained(m, reasons)]
    print(f"{len(mutants)} mutants of {len(paths)} files; building", flush=True)
    with lock(os.path.join(args.root, "build", "mutants")):
        tests = sorted({t for p in paths for t in judge.names(p)})
        trees = prepare(args.root, args.sanitize, args.jobs, tests)
        found = hunt(judge, trees, mutants)
    lines = list(report(known + found, len(mutants) - len(found), args.seed))
    print("\n".join(lines))
    if args.out:
        os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
        with open(args.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    return 0 if found and all(outcome != "survived" for _, outcome in found) else 1


if __name__ == "__main__":
    sys.exit(main())
