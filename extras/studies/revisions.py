# SPDX-License-Identifier: MIT
"""Other revisions of this repository, each built in a clone of its own. What a revision measures with is its own
program; workloads and options are those of this checkout."""
import os
import subprocess
import sys

from program import ResultError, say
from turns import Build

PROGRAM = "build/bench"


def git(*words):
    """The output of git in this checkout, or None if it failed."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except OSError as e:
        raise ResultError(f"git: {e.strerror}; other revisions come from it") from None
    return None if done.returncode else done.stdout.strip()


def resolve(name):
    """The full hash of a revision."""
    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}")
    if not found:
        raise ResultError(f"'{name}' is no revision of this repository; git log lists them")
    return found


def build(name, folder, make):
    """A Build of the host's kernels at a revision, in FOLDER/HASH; what an earlier call has built is used again."""
    revision = resolve(name)
    clone = os.path.join(folder, revision)
    if not os.path.isdir(clone):
        os.makedirs(folder, exist_ok=True)
        if git("clone", "--quiet", "--shared", "--no-checkout", ".", clone) is None:
            raise ResultError(f"{clone}: git cannot clone this repository there")
    if git("-C", clone, "checkout", "--quiet", "--force", "--detach", revision) is None:
        raise ResultError(f"{clone}: git cannot check out {revision}; remove the folder")
    say(f"building {name} ({revision[:12]})")
    # close_fds=False hands on make's job server; CC= and NATIVE= of the command line reach it, too.
    if subprocess.run([*make.split(), "--no-print-directory", "-C", clone, "NVCC=", "B=build", PROGRAM],
                      close_fds=False, stdout=sys.stderr, check=False).returncode:
        raise ResultError(f"'{name}' does not build: make -C {clone} NVCC= B=build {PROGRAM}")
    return Build(name, os.path.join(clone, PROGRAM))
