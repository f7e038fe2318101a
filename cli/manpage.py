# SPDX-License-Identifier: MIT
"""Makes the manual page of embfuse from the help of the program:

    python3 cli/manpage.py build/embfuse >man/embfuse.1; man man/embfuse.1

tests/programs/test_cli.py fails if the page is out of date.
"""
import re
import subprocess
import sys

ABOUT = """embfuse applies one kernel of the suite to a batch and tables in .npy files, and checks every row
against an oracle before it writes anything. So you can compare any kernel with any framework. embfuse also
makes batches, and prints statistics of the ids of a workload or a trace. cli/README.md and datasets/README.md
describe the file formats."""

EXAMPLES = """embfuse list
embfuse stats datasets/standard.spec
embfuse gen datasets/zipf.spec --out /tmp/b --initial-tables
embfuse step --kernel cpu_fused --batch /tmp/b --out /tmp/r
embfuse step --kernel cpu_fused --batch /tmp/b --tables /tmp/r --out /tmp/r"""


def said(program, *args):
    return subprocess.run([program, *args], capture_output=True, text=True, check=True).stdout


def roff(text):
    """Escapes what troff would interpret."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def entry(line):
    """Formats a line "  --flag VALUE   what it does" or "  name   what it does"."""
    form, _, does = line.strip().partition("  ")
    return f".TP\n.B {roff(form)}\n{roff(does.strip()) or '~'}"


def command(program, name):
    """The section of one command: its usage, its flags, and the text after them."""
    usage, *lines = said(program, name, "--help").splitlines()
    flags = [line for line in lines if line.startswith("  --")]
    more = [line for line in lines if not line.startswith("  --")]
    return "\n".join([f".SS {roff(usage.removeprefix('usage: '))}", *map(entry, flags),
                      *([".PP", roff("\n".join(more))] if more else [])])


def page(program):
    usage, *lines = said(program, "--help").splitlines()
    indented = [line for line in lines if line.startswith("  ")]
    names = [line.split()[0] for line in indented]
    commands = [n for n in names if n != "help" and not n.startswith("-")]
    ends = "\n".join(line for line in lines if not line.startswith("  "))
    environment, _, status = ends.partition("exit status: ")
    return "\n".join([
        '.TH EMBFUSE 1 "" embfuse "User Commands"',
        ".SH NAME", r"embfuse \- apply kernels of embedding backward to your own batch",
        ".SH SYNOPSIS", roff(usage.removeprefix("usage: ")),
        ".SH DESCRIPTION", roff(ABOUT), *map(entry, indented),
        ".SH COMMANDS", *(command(program, name) for name in commands),
        ".SH ENVIRONMENT", roff(environment.removeprefix("environment: ").strip()),
        ".SH EXIT STATUS", roff(status.strip()),
        ".SH EXAMPLES", ".nf", roff(EXAMPLES), ".fi"])


if __name__ == "__main__":
    print(page(sys.argv[1] if len(sys.argv) > 1 else "build/embfuse"))
