#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of .github/workflows and .ci: every target of make and every file that they name exists, and no value that
whoever opens a pull request chooses is in a script."""
import glob
import os
import re
import sys

sys.dont_write_bytecode = True
import tap
from spoiled import equal, make

FILES = sorted(glob.glob(os.path.join(tap.ROOT, ".github", "workflows", "*.yml"))
               + [p for p in glob.glob(os.path.join(tap.ROOT, ".ci", "*")) if os.path.isfile(p)])


def contents():
    """{file: its text without comments}"""
    assert len(FILES) > 2, FILES
    found = {}
    for path in FILES:
        with open(path, encoding="utf-8") as file:
            found[os.path.relpath(path, tap.ROOT)] = re.sub(r"(?m)(^|\s)#.*$|^.*\bapt-get .*$", "", file.read())
    return found


def targets(text):
    """The targets of every call of make in a script."""
    for call in re.findall(r"(?m)(?:^|[\s;&|])make((?: +(?:'[^']*'|\"[^\"]*\"|[^\s;&|'\"]+)+)+)", text):
        words = re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", call)
        yield from (w for w in words if re.fullmatch(r"[a-z][a-z0-9-]*", w))


def test_every_target_exists(_):
    equal(list(targets("run: make -j2 a B=\"$c d\" e-f || test -s g\nstep x make h I='j k'; make l\n")),
          ["a", "e-f", "h", "l"])
    known = set(re.findall(r"(?m)^([a-z][\w-]*):", make("-pn", "help").stdout))
    for path, text in contents().items():
        equal((path, [t for t in targets(text) if t not in known]), (path, []))
    assert {"deps", "test"} <= {t for text in contents().values() for t in targets(text)}


def test_every_file_exists(_):
    for path, text in contents().items():
        named = re.findall(r"(?<![\w./$}-])(?:\.ci|tests|reports|extras|datasets|docs)/[\w./-]*\w", text)
        equal((path, [n for n in named if not os.path.exists(os.path.join(tap.ROOT, n))]), (path, []))


def test_no_value_of_the_event_is_in_a_script(_):
    """The name of a branch comes by the environment, or not at all."""
    for path, text in contents().items():
        scripts = re.findall(r"(?m)^( *)(?:- )?run: *(?:\|\n((?:\1 .*\n?| *\n)*)|(.*))", text)
        equal((path, [s for s in scripts if re.search(r"\$\{\{ *(github|inputs)\b", "".join(s))]), (path, []))


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "workflow"))
