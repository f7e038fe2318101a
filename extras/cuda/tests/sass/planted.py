# SPDX-License-Identifier: MIT
"""Small kernels in SASS, written by hand, for tests."""
import re

LOADS = "\n".join(f"LDG.E.128 R{4 * k}, desc[UR4][R{60 + 2 * k}.64]" for k in range(1, 9))
USES = "\n".join(f"FADD R40, R40, R{4 * k + 3}" for k in range(1, 9))


def sass(lines):
    """(text as nvdisasm prints it, {address: control}) of labels and instructions, one a line. "| set 5 wait 0 3" tells
    the barrier of an instruction and those it waits for; without any "|" nothing is told."""
    text, controls, told = [], {}, "|" in lines
    for line in filter(None, map(str.strip, lines.splitlines())):
        if line.endswith(":"):
            text.append(line)
            continue
        line, _, control = line.partition("|")
        at = 16 * sum("/*" in t for t in text)
        text.append(f"        /*{at:04x}*/  {line.strip()} ;")
        barrier = re.search(r"set (\d)", control)
        waits = re.search(r"wait ([\d ]+)", control)
        controls[at] = (int(barrier[1]) if barrier else None,
                        sum(1 << int(b) for b in waits[1].split()) if waits else 0)
    return "\n".join(text) + "\n", controls if told else None


def loop(body):
    return ".L_turn:\n" + body + "\nIADD3 R0, R0, -0x1, RZ\nISETP.NE.AND P0, PT, R0, RZ, PT\n@P0 BRA `(.L_turn)\nEXIT"


def same(found, expected):
    assert found == expected, f"{found}, expected {expected}"
