#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of `make record` (extras/studies/record.py, recorded.py). Whole records run with a stand-in for make;
the results are made up."""
import gzip
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import tool
import fake_studies
import merge
import program
import recorded
import results
from spoiled import equal

STEPS = [s.name for s in recorded.STEPS]

# No other work, so that nothing waits.
PRELUDE = "import sys; sys.path.insert(0, {studies!r}); import quiet; quiet.busy = lambda: 0.0; " \
          "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


class Setting:
    """A folder to record into, with a stand-in for make."""

    def __init__(self, folder, bad=None, noise=()):
        os.makedirs(folder, exist_ok=True)
        self.root, self.log = folder, os.path.join(folder, "log")
        self.folder, self.make = os.path.join(folder, "m-2core"), os.path.join(folder, "make")
        self.now(bad, noise)

    def now(self, bad=None, noise=()):
        fake_studies.install(self.root, "make", "make_record", log=self.log, bad=bad or {}, noise=list(noise),
                           cpu=recorded.cpu_name())
        if os.path.exists(self.log):
            os.unlink(self.log)

    def command(self, *more):
        prelude = PRELUDE.format(studies=os.path.dirname(tool("quiet.py")))
        return [sys.executable, "-B", "-c", prelude, tool("record.py"), self.folder,
                f"--work={self.root}/work", f"--make={self.make}", "--kernel=a", "--below=b", *more]

    def record(self, *more):
        done = subprocess.run(self.command(*more), capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def calls(self):
        return fake_studies.calls(self.log)

    def targets(self):
        return [target for target, _ in self.calls()]

    def context(self, name):
        return merge.read(recorded.stored(self.folder, name))["context"]

    def there(self):
        return sorted(n.removesuffix(".json.gz") for n in os.listdir(self.folder))

    def traces(self, **bags):
        os.makedirs(os.path.join(self.root, "t"), exist_ok=True)
        for name, count in bags.items():
            with gzip.open(os.path.join(self.root, "t", name + ".txt.gz"), "wt") as file:
                file.write("1 2\n" * count)
        return f"--traces={self.root}/t"


def change(path, **context):
    data = merge.read(path)
    data["context"] = {k: v for k, v in (data["context"] | context).items() if v is not None}
    program.write_whole(path, json.dumps(data))


# --- make record
def test_all_steps_in_their_order_then_nothing(folder):
    s = Setting(folder)
    status, said = s.record()
    assert (status, s.there()) == (0, ["forward", "small-batches", "standard", "standard-1-thread"]), said
    equal(s.context("forward")["emb_record_kernels"], recorded.kernels())
    s = Setting(os.path.join(folder, "all"))
    status, said = s.record("--steps=all", s.traces(a_x=3))
    assert status == 0, said
    assert s.targets() == ["bench"] * 8 + ["peers", "peers", "ladder", "tune", "memory", "sweep", "crossover", "noise",
                                           "bench-compilers", "bench-isa", "scaling"]
    assert s.there() == sorted(recorded.RESULTS), s.there()
    assert all(f"step {i} of 19: {n} " in said for i, n in enumerate(STEPS, 1)), said
    s.now()
    status, said = s.record("--steps=all", s.traces(a_x=3))
    assert (status, s.calls()) == (0, []) and f"there already: {' '.join(STEPS)}" in said, said


def test_a_step_that_fails_is_named_and_the_others_go_on(folder):
    s = Setting(folder, {"peers": "fails", "sweep": "cut"})
    status, said = s.record("--steps=standard peers sweep ladder")
    assert status == 3 and s.there() == ["ladder", "standard"], said
    assert "FAILED: peers: pip could not install it (no network?) (log:" in said and "sweep: cut short" in said, said
    s.now({"peers": "wrong"})
    status, said = s.record("--steps=standard peers ladder")
    assert (status, s.targets(), s.there()) == (2, ["peers"], ["ladder", "peers", "peers-1-thread", "standard"]), said
    assert "WRONG in peers: other on w: WRONG RESULT: row 3" in said


def test_a_disturbed_step_is_measured_again_and_the_better_one_stays(folder):
    for noise, kept in (((0.5, 0.05), 3.0), ((0.2, 0.6), 2.0)):  # ms of the second and of the first call
        s = Setting(os.path.join(folder, f"{kept:g}"), noise=noise)
        status, said = s.record("--steps=ladder")
        assert status == 0 and s.targets() == ["ladder"] * 2 and "% disturbed, so once more" in said, said
        result = results.load(recorded.stored(s.folder, "ladder"))
        assert {x.ms for x in result.series[0].samples} == {kept}
        low, high = sorted(round(100 * n) for n in noise)
        assert result.context["emb_record_attempts"] == f"the less disturbed of two: {low} and {high} %"


def test_results_of_other_code_are_said_and_measured_again_when_forced(folder):
    s = Setting(folder)
    s.record("--steps=standard ladder")
    change(recorded.stored(s.folder, "ladder"), emb_record_code="0")
    s.now()
    status, said = s.record("--steps=standard ladder")
    assert status == 0 and not s.calls(), said
    assert "measured with other code than is here: ladder of commit c0ffee; FORCE='ladder'" in said, said
    s.record("--force=ladder")
    assert "ladder" in s.targets() and "standard" not in s.targets()


def test_comments_and_layout_are_no_code(_):
    same = ("int f(int a, int b); // one", "/* two */ int f(int a,\n      int b);")
    assert len({recorded.without_comments("x.c", text) for text in same}) == 1
    assert recorded.without_comments("x.c", 'f("a // b");') == 'f("a // b");'
    assert recorded.without_comments("x.py", "# one\nif a:\n    b  # two\n") == "if a:\n    b  # two"


def test_a_folder_of_another_machine_is_left_alone(folder):
    s = Setting(folder)
    s.record("--steps=standard")
    change(recorded.stored(s.folder, "standard"), emb_record_machine=None, emb_cpu="Other CPU")
    s.now()
    status, said = s.record("--steps=ladder")
    assert status == 1 and not s.calls() and "of another machine (Other CPU)" in said, said
    status, said = s.record("--steps=standard", "--force=standard")
    assert status == 0 and s.targets() == ["bench"], said


def test_bad_choices_have_one_line(folder):
    s = Setting(folder)
    for words, line in ((("--steps=standart",), "STEPS: there is no step 'standart'"),
                        (("--force=x",), "FORCE: there is no step 'x'"), (("--wait=soon",), "invalid float")):
        status, said = s.record(*words)
        assert status == 1 and line in said and not s.calls(), said
    s.folder = os.path.join(folder, "a b")
    status, said = s.record()
    assert status == 1 and "NAME='a b'" in said and not s.calls()


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "record"))
