#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The study of parameter servers over MPI: counts and bounds of its runs, the page, and the end when a server dies.
Skipped without Open MPI."""
import json
import os
import signal
import subprocess
import sys

import launched
import tap


def test_runs_and_page(folder):
    done = launched.run(4, launched.program("extras/ranks/study/server"), 2, 6, "rowwise_adagrad")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 10
    for x in found:
        assert x["pushed"] == x["applied"] > 0, x
        assert sum(x["versions"]) == sum(x["ahead"]) == 2 * 2 * 6, x  # servers, workers, clocks
        assert x["staleness"] < 0 or len(x["ahead"]) - 1 <= x["staleness"], x
        assert (x["refused"] > 0) == (x["mode"][0] in "ab"), x
        if x["mode"] == "synchronous":
            assert x["drift"] == 0 and x["loss"] == found[0]["loss"], x  # the same bits each time
    lines = tap.script(folder, "server.jsonl", done.stdout)
    page = [sys.executable, tap.tool("server.py"), lines, folder]
    subprocess.run(page, check=True, capture_output=True)
    with open(os.path.join(folder, "server.md"), encoding="utf-8") as file:
        text = file.read()
    assert "2 servers" in text and "rowwise_adagrad" in text and text.count("| x 10 |") == 4, text
    tap.script(folder, "server.jsonl", done.stdout + "{}\n")
    launched.refused(subprocess.run(page, capture_output=True, text=True, check=False), 1, "server.jsonl:11: not a line of")


def test_bad_words_are_one_line(_folder):
    launched.refused(launched.run(2, launched.program("extras/ranks/study/server"), 1, 5, "nothing"), 1)


def test_a_server_dies_or_stops_answering(_folder):
    words = launched.command(3, launched.program("extras/ranks/study/server"), 1, 100000, "adagrad")
    for number, said in ((signal.SIGKILL, ("rank 0 was ended by SIGKILL", "'serving'")),
                         (signal.SIGSTOP, ("0 has not answered for",))):
        status, lines = launched.ended_by(number, 0, words, phase="serving")
        assert status == 4 and len(lines) == 1 and all(text in lines[0] for text in said), (status, lines)


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "server_mpi"))
