#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mutation testing: changes one line of the code at a time, and reports the changes that no test notices.

It works in a copy of the tree, build/mutants/, with objects and programs of its own. A mutant whose object code is
that of the original is no mutant. One that survives is a hole in the tests, or has a reason in tests/mutants.txt.
Exit status: 0, or 1 where an unexplained mutant survived or nothing could be tried.

Of the tools that exist, mull has no Debian package, and universalmutator offers 30 rewrites a line, most of which do
not compile in C, and leaves it to the user to rebuild the right objects: half a minute of compiler each.
"""
import argparse
import collections
import concurrent.futures
import filecmp
import glob
import os
import queue
import random
import re
import resource
import select
import shutil
import subprocess
import sys
import time

TARGETS = ["kernels/**/*.h", "kernels/**/*.cuh", "kernels/*/*.c", "kernels/*/*.cu", "harness/check.c", "harness/oracle.c"]
# Which tests judge a file, the fast ones first: those of the first prefix that fits.
JUDGES = [("kernels/rules.h", ("oracle", "check*", "defects", "properties*", "kernels")),
          ("kernels/", ("defects", "properties*", "kernels")),
          ("", ("check*", "oracle", "overflow", "defects"))]
REASONS = "tests/mutants.txt"
BETWEEN = " ==> "  # the line before and after
MEMORY = 12 << 30  # for data: a mutant may ask for anything

# --- mutants: every operator is a pattern and its replacements
OTHERS = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
          "!=": "==", "&&": "||", "||": "&&", "&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<",
          "+=": ("-=", "="), "-=": ("+=", "="), "*=": ("/=", "="), "/=": ("*=", "="), "|=": ("&=", "="), "&=": ("|=", "=")}
BINARY = "|".join(sorted(map(re.escape, OTHERS), key=len, reverse=True))
PLACE = r"(?:[\w>.*()&-]|\[[^\]]*\])+"  # what can be assigned to
OPERATORS = [
    (rf"(?<=\s)({BINARY})(?=\s|$)", lambda m: OTHERS[m[1]]),
    (r"(?<![\w.])(\d+)(?![\w.])", lambda m: [str(int(m[1]) + k) for k in (1, -1) if int(m[1]) + k >= 0]),
    (r"(?<![\w.])(\d+\.\d+f?)(?![\w.])", lambda m: f"({m[1]} + {m[1]} + 1)"),
    (r"\+\+|--(?=\W)", lambda m: {"++": "--", "--": "++"}[m[0]]),
    (r"\b(?:fabs|sqrt)f?\(", lambda m: "("),
    (r"\bmin(64)?(?=\()|\bmax(64)?(?=\()", lambda m: m[0].translate(str.maketrans("inax", "axin"))),
    (r"\btrue\b|\bfalse\b", lambda m: {"true": "false", "false": "true"}[m[0]]),
    (r"(?<=[\s(&|])!(?=[\w(])", lambda m: ""),
    (r"\[\w*[a-z]\w*\]", lambda m: "[0]"),
    (r"\((\w+), (\w+)\)", lambda m: f"({m[2]}, {m[1]})"),
    (r"\? ([^?:]+) : ([^?:;,]+)(?=[;,)])", lambda m: f"? {m[2]} : {m[1]}"),
    (r"< ([\w>.-]+);", lambda m: f"< {m[1]} - 1;"),
    (r"\b(if|while) (\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))",
     lambda m: [f"{m[1]} ({k})" for k in ((0, 1) if m[1] == "if" else (0,))]),
    (rf"^\s+(?:{PLACE} (?:[-+*/|&^]|<<|>>)?= [^;]*|(?!return|sizeof){PLACE}\(.*\)|\S*(?:\+\+|--)|break|continue);(?=$| \\)",
     lambda m: ";"),
]
MASKED = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\])'|^[ \t]*#[^\n]*", re.S | re.M)

Mutant = collections.namedtuple("Mutant", "path number before after")


def entry(m):
    """A mutant as reports and reasons name it: by the line's text, since numbers change."""
    return f"{m.path}: {m.before.strip()}{BETWEEN}{m.after.strip()}"


def mutants_of(path, text):
    """Every mutant of a file, once. Comments, strings and preprocessor lines are left alone."""
    masked = MASKED.sub(lambda m: re.sub(r"[^\n]", "\0", m[0]), text)
    for number, (line, code) in enumerate(zip(text.split("\n"), masked.split("\n")), 1):
        seen = {line}
        for pattern, replacements in OPERATORS:
            for m in re.finditer(pattern, code):
                found = replacements(m)
                for new in (found,) if isinstance(found, str) else found:
                    after = line[:m.start()] + new + line[m.end():]
                    if "\0" not in new and after not in seen:
                        seen.add(after)
                        yield Mutant(path, number, line, after)


def read_reasons(path):
    """{entry: reason}: a reason is the comment above its entries. An entry that ends in '==> *' is of any mutant of
    the line."""
    reasons, reason, last = {}, "", ""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(map(str.strip, file), 1):
            if line.startswith("#"):
                reason = f"{reason} {line[1:].strip()}" if last.startswith("#") else line[1:].strip()
            elif line and (not reason or BETWEEN not in line):
                sys.exit(f"mutants.py: {path}:{number}: not 'file: before{BETWEEN}after' below a comment with the reason")
            elif line:
                reasons[line] = reason
            last = line
    return reasons


def explained(m, reasons):
    return entry(m) in reasons or f"{m.path}: {m.before.strip()}{BETWEEN}*" in reasons


# --- a tree that is built once, and then mutant by mutant
class Tree:
    """A copy of the sources with a build of its own. Objects that a mutant changed are put back, not built again."""

    def __init__(self, folder, tests):
        self.folder, self.programs = folder, {t: f"build/tests/test_{t}" for t in tests}

    def at(self, *path):
        return os.path.join(self.folder, *path)

    def make(self, *targets):
        """The compiler's errors, or None. Optimised little: the same rules of floating point, built in half the time."""
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        done = subprocess.run(["make", "-s", "-C", self.folder, "NVCC=", *targets,
                               "COMMON=-O1 -w -MMD -MP -fopenmp $(ARCH) $(FP) -I. -I$(B)"], capture_output=True,
                              text=True, check=False, env=environment | {"GIT_DIR": "/nonexistent"})
        return done.stderr or "make failed" if done.returncode else None

    def objects(self, path):
        """What is compiled again when a file changes: what the compiler says that it read."""
        found = []
        for listed in glob.glob(self.at("build/**/*.d"), recursive=True):
            with open(listed, encoding="utf-8") as file:
                if path in file.read().split():
                    found.append(os.path.relpath(listed, self.folder)[:-2] + ".o")
        return sorted(found)


def kernels_of(objects):
    """The pattern for TESTS that leaves the kernels among these objects, and maybe a few more."""
    names = [m[1] for m in (re.search(r"kernels/(?!device/)\w+/(\w+)\.o$", o) for o in objects) if m]
    return os.path.commonprefix(names) + "*" if len(names) == len(objects) else "*"


def passes(program, pattern, limit):
    """Whether it ends in time, and well; stops it at the first test that fails."""
    environment = os.environ | {"CMOCKA_MESSAGE_OUTPUT": "TAP", "OMP_WAIT_POLICY": "passive", "TESTS": pattern}
    end, line = time.monotonic() + limit, b""
    with subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as run:
        try:
            while select.select([run.stdout], [], [], max(0, end - time.monotonic()))[0]:
                read = os.read(run.stdout.fileno(), 1 << 16)
                *lines, line = (line + read).split(b"\n")
                if any(x.startswith(b"not ok") and b"# SKIP" not in x for x in lines):
                    return False
                if not read:
                    return run.wait(max(1, end - time.monotonic())) == 0
            return False
        except subprocess.TimeoutExpired:
            return False
        finally:
            run.kill()


class Judge:
    """Tries mutants; knows how long the tests take when nothing is wrong."""

    def __init__(self, tests, end):
        self.tests, self.limits, self.end = tests, {}, end

    def names(self, path):
        globs = next(names for prefix, names in JUDGES if path.startswith(prefix))
        return [t for g in globs for t in self.tests if re.fullmatch(g.replace("*", r"\w*"), t)]

    def limit(self, tree, test, pattern):
        if (test, pattern) not in self.limits:
            begin = time.monotonic()
            if not passes(tree.at("clean", f"test_{test}"), pattern, 1200):
                sys.exit(f"mutants.py: test_{test} fails before anything is changed")
            self.limits[test, pattern] = 10 + 5 * (time.monotonic() - begin)
        return self.limits[test, pattern]

    def try_one(self, tree, m):
        """'killed', 'survived', 'equivalent', 'did not compile', or 'not tried' where time is over."""
        if time.monotonic() > self.end:
            return "not tried"
        objects = tree.objects(m.path)
        if not objects:
            return "not compiled by any test"
        pattern = kernels_of(objects)
        kept, saved = {}, os.stat(tree.at(m.path))
        for o in objects:
            with open(tree.at(o), "rb") as file:
                kept[o] = file.read()
        with open(tree.at(m.path), encoding="utf-8") as file:
            text = file.read()
        lines = text.split("\n")
        lines[m.number - 1] = m.after
        try:
            with open(tree.at(m.path), "w", encoding="utf-8") as file:
                file.write("\n".join(lines))
            if tree.make(*objects):
                return "did not compile"
            if all(open(tree.at(o), "rb").read() == kept[o] for o in objects):
                return "equivalent"
            for test in self.names(m.path):
                limit = self.limit(tree, test, pattern)
                if tree.make(tree.programs[test]) or not passes(tree.at(tree.programs[test]), pattern, limit):
                    return "killed"
            return "survived"
        finally:
            with open(tree.at(m.path), "w", encoding="utf-8") as file:
                file.write(text)
            os.utime(tree.at(m.path), ns=(saved.st_atime_ns, saved.st_mtime_ns))
            for o, data in kept.items():
                with open(tree.at(o), "wb") as file:
                    file.write(data)


def sources(folder):
    """The files of a tree that nobody built, from there."""
    for at, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in ("build", "clean", ".git", "__pycache__")]
        yield from (os.path.relpath(os.path.join(at, f), folder) for f in files)


def copy_sources(root, to):
    """Files that are the same keep their times, so that make builds only what changed since the last run."""
    wanted = set(sources(root))
    for path in set(sources(to)) - wanted:
        os.remove(os.path.join(to, path))
    for path in wanted:
        source, copy = os.path.join(root, path), os.path.join(to, path)
        if not os.path.exists(copy) or not filecmp.cmp(source, copy, shallow=False):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy(source, copy)


def prepare(root, jobs, tests):
    """As many built trees as there are jobs."""
    first = Tree(os.path.join(root, "build", "mutants", "tree"), tests)
    os.makedirs(first.at("clean"), exist_ok=True)
    copy_sources(root, first.folder)
    wrong = first.make(f"-j{jobs}", *first.programs.values())
    if wrong:
        sys.exit(f"mutants.py: the tests do not build:\n{wrong}")
    for program in first.programs.values():
        shutil.copy(first.at(program), first.at("clean"))
    trees = [first]
    for k in range(1, jobs):
        trees.append(Tree(f"{first.folder}{k}", tests))
        shutil.rmtree(trees[k].folder, ignore_errors=True)
        shutil.copytree(first.folder, trees[k].folder)
    return trees


def report(found, left, seed):
    """The lines of it: how many of each file, and what survived."""
    outcomes = ("killed", "survived", "equivalent", "explained", "did not compile", "not compiled by any test")
    counts = collections.Counter((m.path, outcome) for m, outcome in found)
    yield f"# seed {seed}: {len(found)} mutants tried or explained, {left} not tried in this time"
    for path in sorted({m.path for m, _ in found}):
        yield f"# {path}: " + ", ".join(f"{counts[path, o]} {o}" for o in outcomes if counts[path, o])
    yield from (f"{m.path}:{m.number}: {m.before.strip()}{BETWEEN}{m.after.strip()}"
                for m, outcome in sorted(found) if outcome == "survived")


def main():
    parser = argparse.ArgumentParser(prog="mutants.py", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*", help="patterns of files; otherwise kernels, the check and the oracle")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the order: a short run takes a fair sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--out", metavar="FILE", help="the report goes there too")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    paths = sorted({os.path.relpath(p, args.root) for g in args.files or TARGETS
                    for p in glob.glob(os.path.join(args.root, g), recursive=True)})
    if not paths:
        sys.exit(f"mutants.py: no such file: {' '.join(args.files)}")
    built = {os.path.basename(p)[5:-2] for p in glob.glob(os.path.join(args.root, "tests", "test_*.c"))}
    judge = Judge(sorted(built), end)
    judge.tests = sorted({t for p in paths for t in judge.names(p)})
    reasons = read_reasons(os.path.join(args.root, REASONS))
    everything = []
    for path in paths:
        with open(os.path.join(args.root, path), encoding="utf-8") as file:
            everything += mutants_of(path, file.read())
    random.Random(args.seed).shuffle(everything)
    print(f"{len(everything)} mutants of {len(paths)} files; building", flush=True)
    found, trees = [], queue.Queue()
    for tree in prepare(args.root, args.jobs, judge.tests):
        trees.put(tree)

    def trial(m):
        if explained(m, reasons):
            return m, "explained"
        tree = trees.get()
        try:
            return m, judge.try_one(tree, m)
        finally:
            trees.put(tree)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for m, outcome in pool.map(trial, everything):
            if outcome == "not tried":
                continue
            found.append((m, outcome))
            if outcome == "survived":
                print(f"survived: {m.path}:{m.number}: {m.before.strip()}{BETWEEN}{m.after.strip()}", flush=True)
            if len(found) % 20 == 0:
                left = max(0, end - time.monotonic()) / 60
                print(f"{len(found)} of {len(everything)} done, {left:.0f} minutes left", flush=True)
    lines = list(report(found, len(everything) - len(found), args.seed))
    print("\n".join(lines))
    if args.out:
        os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
        with open(args.out, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    tried = any(outcome != "explained" for _, outcome in found)
    return 0 if tried and not any(outcome == "survived" for _, outcome in found) else 1


if __name__ == "__main__":
    sys.exit(main())
