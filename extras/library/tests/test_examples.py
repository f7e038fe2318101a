#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""extras/library/examples/dlrm.c learns; and libembfuse.py beside it has all of the header: its functions, and structs
and enums as a C compiler has them. These equal tests/golden/abi.txt: after an intended change, RENEW=1 writes that file
anew."""
import ctypes
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import BUILD, ROOT

DLRM = os.path.join(BUILD, "examples", "dlrm")
LINE = r"step \d+: log loss ([\d.]+), [\d.]+ ms per iteration"
PROGRAM = """#include <stdio.h>
#include <embfuse.h>
#define SIZE(s) printf("%s %zu\\n", #s, sizeof(struct embfuse_##s));
#define AT(s, f) __builtin_offsetof(struct embfuse_##s, f), sizeof(((struct embfuse_##s *)0)->f)
#define FIELD(s, f) printf("%s.%s %zu %zu\\n", #s, #f, AT(s, f));
#define CONSTANT(c) printf("%s %d\\n", #c, (int)EMBFUSE_##c);
int main(void) { LINES return 0; }
"""


def run(*args):
    return subprocess.run(args, capture_output=True, text=True, check=False)


def losses(*args):
    done = run(DLRM, *map(str, args))
    assert done.returncode == 0, done.stderr
    lines = [re.fullmatch(LINE, line) for line in done.stdout.splitlines()]
    assert lines and all(lines), done.stdout
    return [float(line[1]) for line in lines]


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def test_the_loss_falls_on_drawn_ids(_):
    first, *_, last = losses(300)
    assert last < 0.5 * first < 0.5, (first, last)


def exported():
    said = run("nm", "-D", "--defined-only", os.environ["EMBFUSE_LIBRARY"]).stdout
    return sorted(re.findall(r" T (embfuse_[^@]*)@@(.*)", said))


def test_all_of_the_header_is_read(_):
    """Found here by the names alone; the library exports no other functions."""
    import libembfuse as embfuse
    unread = r"/\*.*?\*/|^#(?!define EMBFUSE_VERSION_).*?[^\\]$"  # comments, and directives with their next lines
    text = re.sub(unread, "", embfuse.HEADER.read_text(), flags=re.S | re.M)
    assert set(embfuse.struct) == set(re.findall(r"struct embfuse_(\w+) \{", text))
    assert set(embfuse.constant) == set(re.findall(r"\bEMBFUSE_([A-Z0-9_]+)\b", text)) - {"API"}
    functions = set(re.findall(r"\b(embfuse_\w+)\(", text))
    assert functions == {name for name, _ in exported()} and len(functions) > 30, functions
    for name in functions:
        assert getattr(embfuse.lib, name).argtypes is not None, name


def test_structs_and_enums_are_those_of_c_and_as_before(folder):
    """Sizes; offsets and sizes of fields; numbers of enums."""
    import libembfuse as embfuse
    want, lines = [], []
    for name, kind in embfuse.struct.items():
        lines.append(f"SIZE({name})")
        want.append(f"{name} {ctypes.sizeof(kind)}")
        for field, *_ in kind._fields_:
            lines.append(f"FIELD({name}, {field})")
            want.append(f"{name}.{field} {getattr(kind, field).offset} {getattr(kind, field).size}")
    lines += [f"CONSTANT({name})" for name in embfuse.constant]
    want += [f"{name} {value}" for name, value in embfuse.constant.items()]
    source = write(folder, "layout.c", PROGRAM.replace("LINES", "\n".join(lines)))
    program = os.path.join(folder, "layout")
    done = run("cc", f"-I{ROOT}/extras/library", source, "-o", program)
    assert done.returncode == 0, done.stderr
    got = run(program).stdout.splitlines()
    assert got == want, set(got) ^ set(want)
    abi = [f"{name} {version}" for name, version in exported()] + [x for x in got if not x.startswith("VERSION_")]
    path = os.path.join(tap.TESTS, "golden", "abi.txt")
    if os.environ.get("RENEW"):
        write(os.path.dirname(path), "abi.txt", "\n".join(abi) + "\n")
    with open(path, encoding="ascii") as file:
        before = file.read().splitlines()
    assert abi == before, set(abi) ^ set(before)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "examples"))
