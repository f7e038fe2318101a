# SPDX-License-Identifier: MIT
"""Shared by the programs of reports/ and of extras: arguments, errors of one line, progress, and
files that are whole or not there."""
import argparse
import contextlib
import errno
import gzip
import json
import os
import re
import sys
import time
import zlib
from pathlib import Path

# Every program reads and writes UTF-8 in any locale, as pages and pipes expect.
for stream in (sys.stdin, sys.stdout, sys.stderr):
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")


class ResultError(Exception):
    """One line for the user: what was wrong, where, and what to do."""


class Arguments(argparse.ArgumentParser):
    """The arguments of a program, which the first paragraph of `doc` describes. Usage errors exit with status
    1, because 2 means wrong results here."""

    def __init__(self, doc, **how):
        super().__init__(description=doc.partition("\n\n")[0], **how)

    def error(self, message):
        self.print_usage()
        self.exit(1, f"{self.prog}: {message}\n")

    def add_result(self, outdir=False, mode=True):
        """The arguments of a report on a result: a folder for its files, and the mode."""
        self.add_argument("result", metavar="RESULT.json")
        if outdir:
            self.add_argument("outdir", metavar="OUTDIR")
        if mode:
            self.add_argument("--mode", default="", help="cold, warm or iteration (the first that there is)")


def run(main, interrupted="interrupted"):
    """Runs a program: main() returns its exit status, and an error is one line with the program's name."""
    name = os.path.basename(sys.argv[0])
    try:
        sys.exit(main())
    except (ResultError, OSError) as e:
        sys.exit(f"{name}: {e}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: {interrupted}")


def say(what, begin=time.monotonic()):
    """Tells the progress, with the seconds since the program began."""
    print(f"[{time.monotonic() - begin:.0f} s] {what}", file=sys.stderr, flush=True)


def fact(path, key):
    """The value of the first line 'key: value' in a file of the system; '' without such a line or file."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"(?m)^{re.escape(key)}[ \t]*:(.*)$", text)
    return found[1].strip() if found else ""


def cpu_model():
    """The model of this machine's CPU, as bench names it in emb_cpu_model."""
    keys = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")  # the last two are of Arm
    known = {k.removeprefix("cpu ").removeprefix("CPU "): fact("/proc/cpuinfo", k) for k in keys}
    return ", ".join(f"{k} {v}".removeprefix("vendor_id ") for k, v in known.items() if v)


def read_lines(path, study, take):
    """Calls take() with every line of JSON that a study's program prints; it raises KeyError, TypeError or ValueError if the
    line is incomplete."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    for n, line in enumerate(lines, 1):
        try:
            take(json.loads(line))
        except (ValueError, KeyError, TypeError) as e:
            raise ResultError(f"{path}:{n}: not a line of {study} ({e}); run make {study}") from None
    if not lines:
        raise ResultError(f"{path}: no lines; run make {study}")


def read_text(path):
    """The text of a file; one that ends in .gz is decompressed. OSError if it cannot be read, as where it is cut short."""
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            return file.read()
    except (EOFError, zlib.error) as e:
        raise OSError(errno.EIO, f"not whole ({e})") from None


def write_whole(path, data):
    """Writes text or bytes, compressed if the name ends in .gz; the file gets its name only when it is complete, and an error
    names it."""
    part = f"{path}.{os.getpid()}.new"
    data = data.encode() if isinstance(data, str) else data
    try:
        with open(part, "wb") as file:
            file.write(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)
        os.replace(part, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise ResultError(f"{path}: {e.strerror}") from None
