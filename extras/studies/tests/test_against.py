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
import fake_studies
import history
import noise as noise_study
import noise_floor
import results
import verdict
from made_results import made_up, series
from spoiled import equal, one_line_error, save

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
        install, speed, times = fake_studies.install, speeds[-1], {"cpu_a": 1000.0, "cpu_b": 1000.0}
        self.make = install(folder, "make", "make_revision", log=self.log)
        self.here = ["--embfuse", install(folder, "embfuse", "embfuse"),
                     "--bench", install(folder, "bench", "bench", log=self.log, who=speed, speed=speed, noise=0.01,
                                        times=times)]

    def run(self, name, *args):
        with_make = [] if name == "noise.py" else ["--make", self.make, "--builds", os.path.join(self.folder, "builds")]
        return subprocess.run([sys.executable, tool(name), *self.here, *with_make, "--out", self.out, *args], text=True,
                              cwd=self.folder, capture_output=True, check=False,
                              env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})

    def calls(self):
        return [(who, given) for who, _, given in fake_studies.calls(self.log)]

    def path(self, name):
        return os.path.join(self.out, name)


# --- bench-against
def test_both_sides_take_turns(folder):
    project = Project(folder, 1.0, 1.2)
    done = project.run("turns.py", "HEAD~1", "--reps", "5")
    equal(done.returncode, 0)
    equal([speed for speed, _ in project.calls()], [1.0, 1.2, 1.2, 1.0, 1.0, 1.2, 1.2, 1.0, 1.0, 1.2])
    given = project.calls()[0][1]
    equal((given["reps"], given["place"], given["modes"]), ("1", "host", "cold"))
    found = compare.compared(*(results.load(project.path(f"bench-{n}.json")) for n in ("old", "new")))
    equal([(r.key[2], r.word) for r in found.rows], [("cpu_a", "SLOWER"), ("cpu_b", "SLOWER")])


def test_a_revision_that_is_not_there_or_does_not_build(folder):
    project = Project(folder, "broken", 1.0)
    one_line_error(project.run("turns.py", "none"), "'none' is no revision")
    one_line_error(project.run("turns.py", "HEAD~1"), "'HEAD~1' does not build", "make -C")
    one_line_error(project.run("turns.py", "HEAD", "--reps", "0"), "REPS: '0'")
    one_line_error(project.run("turns.py", "HEAD", "--filter", "none"), "FILTER='none'")
    assert not os.path.exists(project.log)  # all of them before the work


# --- noise
def test_the_noise_of_identical_code(folder):
    project = Project(folder, 1.0)
    done = project.run("noise.py", "--reps", "6", "--comparisons", "3")
    equal(done.returncode, 0)
    equal(len(project.calls()), 2 * 6 * 3)
    noise = noise_floor.read(project.path("noise.json"))
    equal((noise.samples, len(noise.pairs), {p.comparison for p in noise.pairs}), (6, 6, {0, 1, 2}))
    assert 0 < noise.floor < 0.02, noise.floor
    with open(project.path("noise.md"), encoding="utf-8") as file:
        text = file.read()
    assert "**0 of 3 comparisons of identical code had a false verdict.**" in text
    one_line_error(project.run("noise.py", "--comparisons", "0"), "COMPARISONS: 0")


def test_pairs_of_whole_runs(folder):
    """Two runs agree on a row if their intervals overlap. The second run of a pair may have other times of a kernel."""
    def runs(*speeds, noise=0.002):
        draw, own = random.Random(1), []
        for i, speed in enumerate(speeds):
            times = lambda ns: [ns * draw.uniform(1 - noise, 1 + noise) for _ in range(9)]
            rows = series("w", "a", times(10)), series("w", "b", times(20 * speed))
            own.append(results.load(made_up(folder, str(i), *rows)))
        return own
    rows = lambda *pair: [(quotable, agree) for quotable, agree, _ in noise_study.compared(*pair)]
    equal(rows(*runs(1, 1)), [(True, True)] * 2)
    equal(rows(*runs(1, 1.02)), [(True, True), (True, False)])
    equal(rows(*runs(1, 1.02, noise=0.1)), [(False, True)] * 2)
    lines = noise_study.agreement([runs(1, 1), runs(1, 1.02)])
    equal([x.split(" | ")[1:3] for x in lines[-2:]], [["4", "75.0 %"], ["0", "-"]])
    project = Project(folder, 1.0)
    done = project.run("noise.py", "--pairs", "2", "--reps", "7", "--visits", "7", "--seconds", "5", "--precision", "4")
    equal(done.returncode, 0)
    equal([[given[o] for o in ("reps", "visits", "seconds", "precision")] for _, given in project.calls()],
          [["7", "7", "5", "4"]] * 4)
    with open(project.path("pairs.md"), encoding="utf-8") as file:
        equal(done.stdout, file.read())
    assert "| quotable in both runs | 4 | " in done.stdout and "within 4 %" in done.stdout, done.stdout
    one_line_error(project.run("noise.py", "--pairs", "-1"), "PAIRS: -1")


# --- history
def test_change_points_by_hand(_folder):
    for speeds, spread, want in (((1, 1, 1, 1), 0.02, []), ((1, 1, 2, 2), 0.02, [(2, "SLOWER")]),
                                 ((2, 2, 1, 1, 1, 1.5, 1.5), 0.02, [(2, "FASTER"), (5, "SLOWER")]),
                                 ((1, 1.02, 1.01, 1), 0.02, []),  # below the least effect
                                 ((1, 1, 1.2, 1.2), 0.6, [])):  # in the noise
        draw = random.Random(1)
        points = [[s * draw.uniform(1 - spread, 1 + spread) for _ in range(7)] for s in speeds]
        equal([(i, word) for i, _, word in history.changes(points, 0.05)], want)


def test_a_history_of_revisions(folder):
    project = Project(folder, 1.0, 1.01, "broken", 0.5, 0.5)
    done = project.run("history.py", "--revisions", " ".join(project.revisions), "--reps", "6")
    equal(done.returncode, 0)
    assert f"left out: '{project.revisions[2]}' does not build" in done.stderr, done.stderr
    rows = [x for x in done.stdout.splitlines() if x.endswith("FASTER |")]
    equal(len(rows), 2)  # one for each kernel
    cells = rows[0].split(" | ")
    equal((cells[0][-17:], cells[1:3]), (f"{project.revisions[3][:7]} speed 0.5", ["w", "cpu_a"]))
    assert 0.48 < float(cells[3]) < 0.52, rows
    assert "all took turns: 6 samples" in done.stdout
    one_line_error(project.run("history.py", "--revisions", "HEAD"), "REVS: fewer than two")
    equal(project.run("history.py").stdout, done.stdout)  # it only reads


def test_bad_histories(folder):
    project = Project(folder, 1.0)
    one_line_error(project.run("history.py"), "has 0 results", "make history REVS=")
    os.makedirs(project.out)
    result = lambda name, cpu, mark="aa": made_up(project.out, name, series("w", "a", mark=mark), emb_cpu=cpu)
    result("1", "A")
    result("2", "B")
    one_line_error(project.run("history.py"), "2.json", "times of two machines")
    result("2", "A", "bb")
    one_line_error(project.run("history.py"), "different work")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "against"))
