#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of bench-against, noise and history: whole runs in a small repository, with stand-ins for make and for
what it builds, and change points by hand."""
import os
import random
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import tool
import compare
import fake_bench
import history
import noise_floor
import results
import verdict
from spoiled import equal, made_up, save, series

try:
    verdict.scipy_stats()
except Exception as e:
    tap.skip_all("against", str(e))

def git(folder, *words):
    return subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words], cwd=folder, check=True,
                          text=True, capture_output=True).stdout.strip()


class Project:
    """A repository with one commit for each speed, and what a run needs."""

    def __init__(self, folder, *speeds):
        self.folder, self.log = os.path.join(folder, "repository"), os.path.join(folder, "log")
        self.out = os.path.join(folder, "out")
        os.makedirs(self.folder)
        git(self.folder, "init", "--quiet")
        self.revisions = []
        for i, speed in enumerate(speeds):
            save(f"{speed} {i:040x}\n", self.folder, "SPEED")
            git(self.folder, "add", ".")
            git(self.folder, "commit", "--quiet", "-m", f"speed {speed}")
            self.revisions.append(git(self.folder, "rev-parse", "HEAD"))
        install, speed, times = fake_bench.install, speeds[-1], {"cpu_a": 1000.0, "cpu_b": 1000.0}
        self.make = install(folder, "make", "make_revision", log=self.log)
        self.here = ["--embfuse", install(folder, "embfuse", "embfuse"),
                     "--bench", install(folder, "bench", "bench", log=self.log, who=speed, speed=speed, noise=0.01,
                                        times=times, context={"emb_load_worst": "0"})]

    def run(self, name, *args):
        with_make = [] if name == "noise.py" else ["--make", self.make, "--builds", os.path.join(self.folder, "builds")]
        return subprocess.run([sys.executable, tool(name), *self.here, *with_make, "--out", self.out, *args], text=True,
                              cwd=self.folder, capture_output=True, check=False,
                              env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})

    def calls(self):
        return [(who, given) for who, _, given in fake_bench.calls(self.log)]

    def path(self, name):
        return os.path.join(self.out, name)


def error(done, *words):
    equal(done.returncode, 1)
    last = [x for x in done.stderr.strip().splitlines() if not x.startswith("[")]
    equal(len(last), 1)
    for word in words:
        assert word in last[0], f"{word!r} not in {last[0]!r}"


# --- bench-against
def test_both_sides_take_turns(folder):
    project = Project(folder, 1.0, 1.2)
    done = project.run("against.py", "HEAD~1", "--reps", "5")
    equal(done.returncode, 0)
    equal([speed for speed, _ in project.calls()], [1.0, 1.2, 1.2, 1.0, 1.0, 1.2, 1.2, 1.0, 1.0, 1.2])
    given = project.calls()[0][1]
    equal((given["reps"], given["place"], given["modes"]), ("1", "host", "cold"))
    found = compare.compared(*(results.load(project.path(f"bench-{n}.json")) for n in ("old", "new")))
    equal([(r.key[2], r.word) for r in found.rows], [("cpu_a", "SLOWER"), ("cpu_b", "SLOWER")])
    equal(found.old.context["emb_commit"], f"{0:040x}")
    equal(sorted(os.listdir(project.out)), ["bench-new.json", "bench-old.json"])


def test_a_revision_that_is_not_there_or_does_not_build(folder):
    project = Project(folder, "broken", 1.0)
    error(project.run("against.py", "none"), "'none' is no revision")
    error(project.run("against.py", "--", "--help"), "'--help' is no revision")
    error(project.run("against.py", "HEAD~1"), "'HEAD~1' does not build", "make -C")
    error(project.run("against.py", "HEAD", "--reps", "0"), "REPS: '0'")
    error(project.run("against.py", "HEAD", "--filter", "none"), "FILTER='none'")
    assert not os.path.exists(project.log)  # all of them before the work


# --- noise
def test_the_noise_of_identical_code(folder):
    project = Project(folder, 1.0)
    done = project.run("noise.py", "--reps", "6", "--comparisons", "3")
    equal(done.returncode, 0)
    equal(len(project.calls()), 2 * 6 * 3)
    noise = noise_floor.read(project.path("noise.json"))
    equal((noise.samples, len(noise.pairs), {p.comparison for p in noise.pairs}), (6, 6, {0, 1, 2}))
    equal({p.key for p in noise.pairs}, {("w", "sgd", k, "cold") for k in ("cpu_a", "cpu_b")})
    assert 0 < noise.floor < 0.02, noise.floor
    with open(project.path("noise.md"), encoding="utf-8") as file:
        text = file.read()
    assert "**0 of 3 comparisons of identical code had a false verdict.**" in text
    rows = {x.split(" | ")[0].strip("| "): x.split(" | ")[1:] for x in text.splitlines() if x.startswith("| ")}
    equal(rows["0 %"][:4], ["0.0 %", "0.0 %", "100.0 %", "0.0 %"])
    equal(rows["20 %"][:1], ["100.0 %"])
    again = project.run("noise.py", "--comparisons", "0")
    error(again, "COMPARISONS: 0")


# --- history
def points(*speeds, seed=1, spread=0.02, count=7):
    draw = random.Random(seed)
    return [[s * draw.uniform(1 - spread, 1 + spread) for _ in range(count)] for s in speeds]


def test_change_points_by_hand(folder):
    at = lambda *speeds, **how: [(i, w) for i, _, w in history.changes(points(*speeds, **how), 0.05)]
    equal(at(1, 1, 1, 1), [])
    equal(at(1, 1, 2, 2), [(2, "SLOWER")])
    equal(at(2, 2, 1, 1, 1, 1.5, 1.5), [(2, "FASTER"), (5, "SLOWER")])
    equal(at(1, 1, 3, 1, 1), [(2, "SLOWER"), (3, "FASTER")])
    equal(at(1, 1.02, 1.01, 1), [])  # below the least effect
    equal(at(1, 1, 1.2, 1.2, spread=0.6), [])  # in the noise
    ratio = history.changes(points(2, 2, 1, 1), 0.05)[0][1].ratio
    assert 0.48 < ratio < 0.52, ratio


def test_a_history_of_revisions(folder):
    project = Project(folder, 1.0, 1.01, "broken", 0.5, 0.5)
    done = project.run("history.py", "--revisions", " ".join(project.revisions), "--reps", "6")
    equal(done.returncode, 0)
    assert f"left out: '{project.revisions[2]}' does not build" in done.stderr, done.stderr
    equal([n for n in sorted(os.listdir(project.out)) if n.endswith(".json")],
          [f"{i:03d}-{r[:12]}.json" for i, r in enumerate(r for r in project.revisions if r != project.revisions[2])])
    rows = [x for x in done.stdout.splitlines() if x.endswith("FASTER |")]
    equal(len(rows), 2)  # one for each kernel
    assert f" {project.revisions[3][:7]} speed 0.5 | w | cpu_a | 0.5" in rows[0], rows
    assert "all took turns: 6 samples" in done.stdout
    again = project.run("history.py")  # only reads
    equal((again.returncode, again.stdout), (0, done.stdout))
    error(project.run("history.py", "--revisions", "HEAD"), "REVS: fewer than two")
    equal(project.run("history.py").stdout, done.stdout)  # nothing is lost
    os.unlink(project.path(f"000-{project.revisions[0][:12]}.json"))
    assert "all took turns" not in project.run("history.py").stdout
    equal(project.run("history.py", "--revisions", " ".join(project.revisions[3:]), "--reps", "5").returncode, 0)
    equal(sorted(n for n in os.listdir(project.out) if n.endswith(".json")),
          [f"{i:03d}-{r[:12]}.json" for i, r in enumerate(project.revisions[3:])])


def test_bad_histories(folder):
    project = Project(folder, 1.0)
    error(project.run("history.py"), "has 0 results", "make history REVS=")
    os.makedirs(project.out)
    result = lambda name, cpu, mark="aa": made_up(project.out, name, series("w", "a", mark=mark), emb_cpu=cpu)
    result("1", "A")
    result("2", "B")
    error(project.run("history.py"), "2.json", "times of two machines")
    result("2", "A", "bb")
    error(project.run("history.py"), "different work")
    save("{", project.out, "2.json")
    error(project.run("history.py"), "2.json", "not JSON")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "against"))
