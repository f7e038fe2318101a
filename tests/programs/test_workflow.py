#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of .github/workflows/bench.yml: its targets, variables and files are those of make help; what decides about
a pull request, and what only tells. Its scripts run with a stand-in for make."""
import glob
import os
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from spoiled import equal

try:
    import yaml
except ImportError:
    tap.skip_all("workflow", "no PyYAML; it is in Debian's python3-yaml")

WORKFLOW = os.path.join(tap.ROOT, ".github", "workflows", "bench.yml")
FOLDER = "build/results"  # OUT of make, as long as nobody sets it
# Ends with a status, after it has written the files of a comparison.
MAKE = """#!/bin/sh
echo "$@" >>"$LOG"
case $1 in bench-against) [ -z "$WRITES" ] || { mkdir -p build/results/against; echo "$WRITES" >build/results/against/compare.md; } ;; esac
exit "$STATUS"
"""


def workflow():
    with open(WORKFLOW, encoding="utf-8") as file:
        return yaml.safe_load(file)


def steps(job):
    return workflow()["jobs"][job]["steps"]


def scripts():
    """The shell text of all steps."""
    return [s["run"] for job in workflow()["jobs"] for s in steps(job) if "run" in s]


def make_words(text):
    """The arguments of every call of make in a script."""
    calls = re.findall(r"(?m)(?:^|&&|\|\|)\s*make\s+([^|&;]*?)\s*(?=$|&&|\|\||;)", text)
    return [shlex.split(call) for call in calls]


def help_text():
    with open(os.path.join(tap.ROOT, "Makefile"), encoding="utf-8") as file:
        return "".join(line[2:] for line in file if line.startswith("#|"))


def phony():
    """All targets that the makefiles call phony."""
    found = set()
    for path in [os.path.join(tap.ROOT, "Makefile"), *glob.glob(os.path.join(tap.ROOT, "*", "*.mk"))]:
        with open(path, encoding="utf-8") as file:
            found.update(*(names.split() for names in re.findall(r"(?m)^\.PHONY:(.*)", file.read())))
    return found


def unknown(words):
    """Targets and variables among the arguments of make that do not exist, or that make help does not have."""
    told, targets = help_text(), phony()
    for word in words:
        name, is_variable, _ = word.partition("=")
        if is_variable and not re.search(rf"\b{name}=", told):
            yield f"{name}="
        if not is_variable and not (name in targets and re.search(rf"\bmake {name}(?![\w-])", told)):
            yield name


def test_targets_and_variables_are_those_of_make_help(_folder):
    calls = [words for text in scripts() for words in make_words(text)]
    equal({w[0] for w in calls}, {"deps", "test", "ci-metrics", "bench-against", "medians"})
    equal([name for words in calls for name in unknown(words)], [])
    equal(list(unknown(["bench", "no-such-target", "RESULT=a", "NO_SUCH=1"])), ["no-such-target", "NO_SUCH="])
    equal(make_words('make a B="$c" || test -s d\ncd e && make f'), [["a", "B=$c"], ["f"]])


def test_files_are_those_of_make_help(_folder):
    used = set(re.findall(rf"{FOLDER}/[\w./-]+", "\n".join(scripts()) + str(steps("compare"))))
    assert f"{FOLDER}/against" in used and len(used) > 2, used
    own = {f"{FOLDER}/against/bench-new.json"}  # studies/against.py writes it
    missing = [path for path in used - own if path.replace(FOLDER, "OUT", 1) not in help_text()]
    equal(missing, [])


def test_no_value_of_the_event_is_in_a_script(_folder):
    """Whoever opens a pull request chooses the name of its branch: it comes by the environment, or not at all."""
    equal([text for text in scripts() if "${{" in text], [])
    equal(set(workflow()[True]), {"pull_request"})  # YAML 1.1 reads `on` as true
    equal(workflow()["permissions"], {"contents": "read", "pull-requests": "write"})


def ran(folder, text, status=0, writes=""):
    """(the exit status of a script with a make that ends with a status, the calls of make)"""
    tap.script(folder, "make", MAKE)
    log = os.path.join(folder, "log")
    open(log, "w", encoding="utf-8").close()
    done = subprocess.run(["sh", "-e", "-c", text], cwd=folder, capture_output=True, text=True, check=False,
                          env=os.environ | {"PATH": folder + os.pathsep + os.environ["PATH"], "LOG": log, "BASE": "a b",
                                            "STATUS": str(status), "WRITES": writes,
                                            "GITHUB_STEP_SUMMARY": os.path.join(folder, "summary")})
    with open(log, encoding="utf-8") as file:
        return done.returncode, file.read().splitlines()


def test_tests_and_metrics_decide(folder):
    gate = [s for s in steps("gate") if s.get("run", "").startswith("make")]
    equal([s["run"] for s in gate], ["make deps", "make test", "make ci-metrics"])
    for step in gate:
        assert not {"continue-on-error", "if"} & set(step), step
        equal(ran(folder, step["run"], status=2)[0] != 0, True)
        equal(ran(folder, step["run"], status=0)[0], 0)


def test_times_do_not_decide(folder):
    text = next(s["run"] for s in steps("compare") if "bench-against" in s.get("run", ""))
    equal(ran(folder, text, status=2, writes=""), (1, ["bench-against REF=a b"]))
    equal(ran(folder, text, status=2, writes="SLOWER"), (0, ["bench-against REF=a b"]))
    after = next(s["run"] for s in steps("compare") if "make medians" in s.get("run", ""))
    equal(ran(folder, after)[0], 0)
    with open(os.path.join(folder, "summary"), encoding="utf-8") as file:
        equal(file.read(), "SLOWER\n")


def test_the_comment_is_the_comparison(_folder):
    comment = next(s for s in steps("compare") if "github-script" in s.get("uses", ""))
    assert f"readFileSync('{FOLDER}/against/compare.md'" in comment["with"]["script"]
    upload = next(s for s in steps("compare") if "upload-artifact" in s.get("uses", ""))
    equal((upload["if"], upload["with"]["path"]), ("always()", f"{FOLDER}/against"))


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "workflow"))
