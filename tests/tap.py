# SPDX-License-Identifier: MIT
"""Shared code of the Python tests: paths, and a runner. Every function test_* of a file is a test and gets a
folder of its own."""
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
GOLDEN = os.path.join(HERE, "golden", "results.json")
ROOMS = [os.path.join(ROOT, room) for room in ("reports", "studies", "peers")]
sys.path[:0] = [*ROOMS, os.path.join(HERE, "golden")]


def tool(name):
    """The path of a program of reports/, studies/ or peers/."""
    return next(p for p in (os.path.join(room, name) for room in ROOMS) if os.path.exists(p))


class Skip(Exception):
    """Raised by a test that cannot run here; its text says why."""


def script(folder, name, text):
    """Writes an executable file with that text; returns its path."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def run(names, group):
    """Runs the tests among names (a file's globals()), prints TAP, and returns the exit status."""
    tests = [(n[5:].replace("_", " "), f) for n, f in names.items() if n.startswith("test_")]
    print(f"1..{len(tests)}")
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(folder)
                print(f"ok {number} - {group}: {name}")
            except Skip as e:
                print(f"ok {number} - {group}: {name} # SKIP {e}")
            except Exception as e:  # a crash is a failure like any other
                failed += 1
                where = e.__traceback__.tb_next
                print(f"not ok {number} - {group}: {name}\n"
                      f"# line {where.tb_lineno if where else '?'}: {type(e).__name__}: {e}")
    return 1 if failed else 0
