#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mutation testing: changes one line of the code at a time, and reports the changes that no test notices.

It works in a copy of the tree, build/mutants/, with its own objects and programs. A mutant with the object code of the
original does not count. Many that survive are no hole in the tests: a prefetch, a tuned size, spare room. The order is
drawn from a seed, so that a short run is a fair sample.
Exit status: 0 if something was tried.
"""
import argparse
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

from mutate import BETWEEN, mutants_of

TARGETS = ["rules/*.h", "kernels/**/*.h", "kernels/**/*.cuh", "kernels/*/*.c", "kernels/*/*.cu",
           "harness/check/*.c", "harness/check/num.h", "harness/check/rules/*.h"]
# Groups of a suite that judge a file, fast ones first. The first prefix that fits counts.
JUDGES = [("rules/", "unit:oracle kernels:check kernels:corners kernels:defects kernels:properties kernels:kernels"),
          ("kernels/", "kernels:choices kernels:defects kernels:properties kernels:kernels"),
          ("harness/check/", "unit:oracle kernels:check kernels:check_rows "
                             "kernels:corners kernels:overflow kernels:defects kernels:max kernels:kernels"),
          ("harness/workload/", "unit:"), ("", "unit: kernels:")]
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEMORY = 12 << 30  # limit for data, since a mutant may ask for anything


class Tree:
    """A copy of the sources with a build of its own. Objects that a mutant changed are put back."""

    def __init__(self, folder, sanitize):
        self.folder, self.sanitize = folder, sanitize

    def at(self, *path):
        return pathlib.Path(self.folder, *path)

    def make(self, *targets):
        """Builds targets: the compiler's errors, or None. Little optimisation builds faster."""
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        done = subprocess.run(["make", "-s", "-C", self.folder, *targets, "B=build", "NVCC=", f"SANITIZE={self.sanitize}",
                               "COMMON=-O1 -w -MMD -MP -fopenmp $(PIC) $(ARCH) $(FP) $(SAN) -I. -I$(B)$(deps_inc)"],
                              capture_output=True, text=True, check=False,
                              env=environment | {"GIT_DIR": "/nonexistent"})
        return done.stderr or "make failed" if done.returncode else None

    def objects(self, path):
        """The objects that depend on a file, from the compiler's dependency files."""
        found = [(d.with_suffix(".o").relative_to(self.folder), d.read_text().replace("\\\n", "").split())
                 for d in sorted(self.at("build").rglob("*.d"))]
        return [o for o, words in found if path in words and self.at(words[1]).exists()]  # an object without its source is old

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
    """The pattern for TESTS that selects the kernels among these objects, and maybe a few more."""
    objects = [o for o in objects if "kernels" in o.parts and "tests" not in o.parts]
    names = [m[1] for m in (re.search(r"kernels/(?!device/|host/)\w+/(\w+)\.o$", str(o)) for o in objects) if m]
    places = {"cuda_*" if "emulated" in o.parts else "cpu_*" for o in objects}
    if objects and len(names) == len(objects):
        return os.path.commonprefix(names) + "*"
    return places.pop() if len(places) == 1 else "*"


def passes(command, folder, patience, pattern="*"):
    """Whether the tests that fit the pattern pass in a folder. They are stopped at the first one that fails, and when they
    print nothing for `patience` seconds."""
    line, known = b"", {"CMOCKA_MESSAGE_OUTPUT": "TAP", "OMP_WAIT_POLICY": "passive", "BUILD": "build", "TESTS": pattern}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
                          env=os.environ | known) as run:
        try:
            while select.select([run.stdout], [], [], patience)[0]:
                read = os.read(run.stdout.fileno(), 1 << 16)
                *lines, line = (line + read).split(b"\n")
                if any(x.startswith(b"not ok") and b"# SKIP" not in x for x in lines):
                    return False
                if not read:
                    return run.wait(patience) == 0
            return False
        except subprocess.TimeoutExpired:
            return False
        finally:
            run.kill()


def judges(path):
    """[(program, group or nothing)] of a file."""
    if path.startswith("extras/"):
        return [("build/" + "/".join(path.split("/")[:2]) + "/tests/tests", [])]
    words = next(groups for prefix, groups in JUDGES if path.startswith(prefix)).split()
    return [(f"build/tests/{suite}/tests", [group] * bool(group)) for suite, _, group in (w.partition(":") for w in words)]


class Hunt:
    """Tries mutants, in trees that are built."""

    def __init__(self, args, end):
        self.args, self.end = args, end

    def noticed(self, tree, m, objects):
        """Whether a test notices the mutant in the tree."""
        pattern = kernels_of(objects)
        return any(tree.make(program) or
                   not passes([tree.at(program), *group], tree.folder, self.args.patience, pattern)
                   for program, group in judges(m.path))

    def outcome(self, tree, m):
        """'killed', 'survived', 'equivalent', 'did not compile', 'in no test'; None after the end."""
        if time.monotonic() > self.end:
            return None
        objects = tree.objects(m.path)
        if not objects:
            return "in no test"
        with tree.holding(m, objects) as same:
            if tree.make(*map(str, objects)):
                return "did not compile"
            return "equivalent" if same() else "killed" if self.noticed(tree, m, objects) else "survived"

    def run(self, trees, mutants):
        """[(mutant, outcome)] of the mutants that are tried before time is up."""
        free, found = queue.Queue(), []
        for tree in trees:
            free.put(tree)

        def trial(m):
            tree = free.get()
            try:
                return m, self.outcome(tree, m)
            finally:
                free.put(tree)

        with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
            for m, outcome in pool.map(trial, mutants):
                if outcome:
                    found.append((m, outcome))
                    print(f"{len(found)} of {len(mutants)}: {outcome}: {told(m)}", flush=True)
        return found


def copy_sources(root, to):
    """Unchanged files keep their times, so that make builds only what changed since the last run."""
    def sources(folder):
        for at, folders, files in os.walk(folder):
            folders[:] = [f for f in folders if f not in ("build", ".git", "__pycache__")]
            yield from (os.path.relpath(os.path.join(at, f), folder) for f in files)
    wanted = set(sources(root))
    for path in set(sources(to)) - wanted:
        os.remove(os.path.join(to, path))
    for path in wanted:
        source, copy = os.path.join(root, path), os.path.join(to, path)
        if not os.path.exists(copy) or not filecmp.cmp(source, copy, shallow=False):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy(source, copy)


def prepare(args, programs, paths):
    """As many built trees as there are jobs. All tests that judge must pass before anything is changed."""
    first = Tree(os.path.join(ROOT, "build", "mutants", args.sanitize or "plain"), args.sanitize)
    os.makedirs(first.folder, exist_ok=True)
    copy_sources(ROOT, first.folder)
    wrong = first.make(f"-j{args.jobs}", *programs)
    if wrong:
        sys.exit(f"mutants.py: the tests do not build:\n{wrong}")
    for program, group in sorted({(p, tuple(g)) for path in paths for p, g in judges(path)}):
        if not passes([first.at(program), *group], first.folder, args.patience):
            sys.exit(f"mutants.py: fails before anything is changed: {program} {' '.join(group)}")
    trees = [first]
    for k in range(1, args.jobs):
        trees.append(Tree(f"{first.folder}-{k}", args.sanitize))
        shutil.rmtree(trees[k].folder, ignore_errors=True)
        shutil.copytree(first.folder, trees[k].folder)
    return trees


def told(m):
    return f"{m.path}:{m.number}: {m.before.strip()}{BETWEEN}{m.after.strip()}"


def chosen(args, paths):
    """The mutants of the files, in an order that the seed draws."""
    mutants = []
    for path in paths:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            mutants += mutants_of(path, file.read())
    random.Random(args.seed).shuffle(mutants)
    return mutants


def arguments():
    parser = argparse.ArgumentParser(prog="mutants.py", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*", help="patterns (default: kernels, the check and the oracle)")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    parser.add_argument("--patience", type=float, default=60, metavar="S", help="seconds without output: it hangs")
    parser.add_argument("--sanitize", default="", metavar="ONE", help="like SANITIZE= of make")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", metavar="FILE", help="also write the report to this file")
    return parser.parse_args()


def main():
    args = arguments()
    end = time.monotonic() + 60 * args.minutes
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    paths = sorted({os.path.relpath(p, ROOT) for g in args.files or TARGETS
                    for p in glob.glob(os.path.join(ROOT, g), recursive=True)})
    mutants = chosen(args, paths)
    if not mutants:
        sys.exit(f"mutants.py: nothing to change in: {' '.join(args.files)}")
    os.makedirs(os.path.join(ROOT, "build", "mutants"), exist_ok=True)
    with open(os.path.join(ROOT, "build", "mutants", "lock"), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"mutants.py: {os.path.dirname(lock.name)} is in use by another run")
        used = sorted({m.path for m in mutants})
        trees = prepare(args, sorted({p for path in used for p, _ in judges(path)}), used)
        found = Hunt(args, end).run(trees, mutants)
    outcomes = [outcome for _, outcome in found]
    lines = [f"# seed {args.seed}: {len(found)} mutants tried, {len(mutants) - len(found)} not reached in time: "
             + ", ".join(f"{outcomes.count(o)} {o}" for o in sorted(set(outcomes))),
             *(told(m) for m, outcome in sorted(found) if outcome == "survived")]
    print("\n".join(lines))
    if args.out:
        os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
        with open(args.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
