# SPDX-License-Identifier: MIT
"""Shared code of the Python tests: paths, and a runner. Every function test_* of a file is a test and gets a
folder of its own."""
import glob
import os
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
GOLDEN = os.path.join(TESTS, "golden", "results.json")
ROOMS = [os.path.join(ROOT, "reports")] + [
    p for folder in ("extras/*", "extras/*/study", "extras/*/examples") for p in sorted(glob.glob(os.path.join(ROOT, folder)))]
sys.path[:0] = [*ROOMS, TESTS, os.path.join(TESTS, "golden")]
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
TRACES = os.environ.get("EMBFUSE_TRACES", os.path.join(ROOT, "..", "shared", "traces"))
os.environ["EMBFUSE_LIBRARY"] = os.path.join(BUILD, "libembfuse.so")  # for programs in Python that use it


def tool(name):
    """The path of a program of reports/ or an extra."""
    return next(p for p in (os.path.join(room, name) for room in ROOMS) if os.path.exists(p))


class Skip(Exception):
    """Raised by a test that cannot run here; its text says why."""


def trace(name):
    """The path of a recorded id stream."""
    path = os.path.join(TRACES, name + ".txt.gz")
    if not os.path.exists(path):
        raise Skip(f"no {path}; EMBFUSE_TRACES names the folder")
    return path


def use_torch(file):
    """Goes on with file in an interpreter that has PyTorch: $TORCH_PYTHON, or the one that make peers installs. Without
    either it is this one."""
    venv, python = os.path.join(ROOT, "build", "peers", "venv"), os.environ.get("TORCH_PYTHON")
    if not python and os.path.exists(os.path.join(venv, "complete")):
        python = os.path.join(venv, "bin", "python")
    if python and sys.argv[1:] != ["here"]:
        os.execv(python, [python, "-W", "ignore", file, "here"])


def skip_all(group, why):
    print(f"ok 1 - {group} # SKIP {why}\n1..1")
    sys.exit(0)


def call(variables, program, *args):
    """Runs a program of the build with these variables of the environment; returns what subprocess.run() does."""
    return subprocess.run([os.path.join(BUILD, program), *args], env=os.environ | variables, capture_output=True,
                          text=True, check=False)


def good(variables, program, *args):
    """The same, and the program must succeed; returns what it printed."""
    done = call(variables, program, *args)
    assert done.returncode == 0, f"{variables} {args}: status {done.returncode}: {done.stderr.strip()}"
    return done.stdout


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
