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


def noise_file(folder, ratios, samples=5, **context):
    """A result of make noise: {(workload, rule, kernel, mode): median of B / median of A}."""
    row = lambda key, side, ms: {
        "name": "/".join(key), "run_type": "iteration", "real_time": ms, "time_unit": "ms", "lookups": 1000,
        "label": "workload={} rule={} kernel={}@{} mode={} fingerprint=aa".format(*key[:3], side, key[3])}
    rows = [row(key, side, ms) for key, ratio in ratios.items() for side, ms in (("A", 1.0), ("B", ratio))
            for _ in range(samples)]
    return save({"context": golden()["context"] | {"emb_noise_samples": str(samples)} | context, "benchmarks": rows},
                folder, "noise.json")


def slowed(folder, factor, *words):
    """The golden result with other times in the rows that have these words."""
    data = golden()
    for r in rows_of(data, *words):
        r["real_time"] *= factor
    return save(data, folder, f"slow{factor}.json")
