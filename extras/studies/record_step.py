# SPDX-License-Identifier: MIT
"""What one step of a record needs: the recorded id streams of a folder, and a run of make that ends with all
its processes."""
import contextlib
import gzip
import os
import re
import signal
import subprocess
import time
import zlib

from program import ResultError

CHATTER = re.compile(r"\s*(\[|make|not run: |$)")  # lines of stderr that explain no failure
RECIPE = re.compile(r"make.*\*\*\*.* Error (\d+)$")  # the first such line has the true status
PROGRESS_SECONDS = 30
STOP_SECONDS = 30


class Skipped(Exception):
    """This machine has no input for a step."""


# --- traces
def lines_in(path):
    try:
        with gzip.open(path, "rb") as file:
            return sum(1 for _ in file)
    except (OSError, EOFError, zlib.error) as e:
        raise ResultError(f"{path}: {e}") from None


def traces(folder, work):
    """TRACE= with every stream in a folder; after them, as features of one input, streams with the same first
    word in their names and equally many bags. A link hides the folder, so that no result names it."""
    there = os.listdir(folder) if os.path.isdir(folder) else []
    names = [n for n in there if re.fullmatch(r"[\w.-]+\.txt\.gz", n)]
    if not names:
        raise Skipped(f"no *.txt.gz in TRACES={folder}")
    names.sort(key=lambda n: (-os.path.getsize(os.path.join(folder, n)), n))
    link = os.path.join(work, "traces")
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(os.path.abspath(folder), link)
    inputs, path = {}, lambda name: os.path.join(link, name)
    for name in names:
        inputs.setdefault((name.partition("_")[0], lines_in(path(name))), []).append(path(name))
    return " ".join([*map(path, names), *(",".join(own) for own in inputs.values() if len(own) > 1)])


# --- make
def run(command, log):
    """(exit status, the last line that explains it). make itself exits with 2 on any failure and prints the
    true status. All processes of the step end with this one."""
    reason, status, said = "", None, time.monotonic()
    with open(log, "w", encoding="utf-8") as file, subprocess.Popen(
            command, stdout=file, stderr=subprocess.PIPE, text=True, errors="replace", close_fds=False,
            start_new_session=True, env=os.environ | {"LC_ALL": "C.UTF-8"}) as child:
        try:
            for line in child.stderr:
                file.write(line)
                file.flush()
                found = RECIPE.match(line)
                status = int(found[1]) if found and status is None else status
                if not CHATTER.match(line):
                    reason = line.strip()
                elif line.lstrip().startswith("[") and time.monotonic() - said >= PROGRESS_SECONDS:
                    print("        ", line.strip(), flush=True)
                    said = time.monotonic()
        except BaseException:
            stop(child)
            raise
    return child.returncode and (status or 1), reason


def stop(child):
    """Ends a step by SIGTERM, so that it can keep what it has; a second Ctrl-C does not wait for that."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(child.pid, number)
            child.wait(STOP_SECONDS)
