# SPDX-License-Identifier: MIT
"""The golden result, spoiled copies of it, and the tools of reports/ run on them."""
import json
import os
import subprocess
import sys

import tap
from tap import GOLDEN


def run(tool, *args, env=None):
    return subprocess.run([sys.executable, tap.tool(tool), *args], text=True,
                          capture_output=True, check=False, encoding="utf-8", errors="replace",
                          env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | (env or {}))


def golden():
    with open(GOLDEN, encoding="utf-8") as file:
        return json.load(file)


def save(data, folder, name):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(data if isinstance(data, str) else json.dumps(data))
    return path


def rows_of(data, *words):
    return [r for r in data["benchmarks"] if all(w in r["label"].split() for w in words)]


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def one_line_error(done, *words):
    equal(done.returncode, 1)
    equal(len(done.stderr.strip().splitlines()), 1)
    for word in words:
        assert word in done.stderr, f"{word!r} not in {done.stderr!r}"


def slowed(folder, factor, *words):
    """The golden result with other times in the rows that have these words."""
    data = golden()
    for r in rows_of(data, *words):
        r["real_time"] *= factor
    return save(data, folder, f"slow{factor}.json")
