#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The reader of SASS in extras/cuda/tests/sass: registers, control flow, and loads in flight in planted kernels. Needs neither
nvcc nor NVIDIA's tools."""
import os
import re
import sys

import tap

sys.path.insert(0, os.path.join(tap.ROOT, "extras", "cuda", "tests", "sass"))
from flight import NoWait, loads_in_flight
from flow import blocks_of, loops_of, nested
from gather import gather_loops
from instruction import PREDICATE, UNIFORM, load_width, parse, registers_of
from planted import LOADS, USES, loop, same, sass

P, U = PREDICATE, UNIFORM


def flights(lines, width=16):
    """Loads in flight in each gather loop, at least."""
    text, controls = sass(lines)
    blocks = blocks_of(parse(text, controls))
    return [loads_in_flight(blocks, loop, width) for loop in gather_loops(blocks, loops_of(blocks))]


def test_registers_that_instructions_write_and_read(folder):
    for name, text, written, read in (
            ("LDG.E.128", "R4, desc[UR6][R30.64+0x10]", {4, 5, 6, 7}, {30, 31, U + 6}),
            ("STG.E.128", "desc[UR6][R2.64], R20", set(), {2, 3, 20, 21, 22, 23, U + 6}),
            ("IMAD.WIDE.U32", "R42, R43, UR4, R4", {42, 43}, {43, 4, 5, U + 4}),
            ("IADD3.X", "R5, ~R40, UR7, RZ, P0, !PT", {5}, {40, U + 7, P}),
            ("ISETP.GE.AND", "P1, PT, R8, R39.reuse, P2", {P + 1}, {8, 39, P + 2}),
            ("SHFL.IDX", "PT, R39, R6, R0, R30", {39}, {6, 0, 30}),
            ("DADD", "R2, R4, -R6", {2, 3}, {4, 5, 6, 7}),
            ("ATOMG.E.ADD.STRONG.GPU", "PT, R4, desc[UR4][R2.64], R5", {4}, {2, 3, 5, U + 4}),
            ("RED.E.ADD.F32x4.FTZ.RN.STRONG.GPU", "desc[UR4][R2.64], R8", set(), {2, 3, 8, U + 4}),
            ("CS2R", "R26, SRZ", {26, 27}, set())):
        same((name, *registers_of(name, text)), (name, written, read))
    same([load_width(n) for n in ("LDG.E.128.CONSTANT", "LD.E.64", "LDG.E", "LDG.E.U16", "LDS.128", "LDC.64")],
         [16, 8, 4, 2, 0, 0])


def test_loops(folder):
    text, _ = sass("""
        MOV R1, R2
    .L_out:
        IADD3 R1, R1, 0x1, RZ
    .L_in:
        @P1 BRA `(.L_skip)
        IADD3 R2, R2, 0x1, RZ
    .L_skip:
        @P0 BRA `(.L_in)
        BRX R4 -0x10 (*"BRANCH_TARGETS .L_out,.L_end"*)
    .L_end:
        EXIT""")
    blocks = blocks_of(parse(text))
    same([(loop.depth, sorted(i.address for n in loop.own() for i in blocks[n].instructions))
          for loop in nested(loops_of(blocks))], [(1, [0x10, 0x50]), (2, [0x20, 0x30, 0x40])])


def lines_of(*groups):
    return "\n".join(line for group in groups for line in ([group] if isinstance(group, str) else group))


LOAD, USE, END = LOADS.split("\n"), USES.split("\n"), "FADD R40, R4, R8\nFADD R41, R12, R16"
FALLBACK = """@P1 BRA `(.L_single{0})
    LDG.E.128 R{1}, desc[UR4][R60.64]
    BRA `(.L_next{0})
.L_single{0}:
    LDG.E R{1}, desc[UR4][R60.64]
    @P2 BRA `(.L_next{0})
    FADD R{1}, R{1}, R4
.L_next{0}:
    IADD3 R60, R60, 0x10, RZ"""
OPEN = "LDG.E.128 R{0}, desc[UR4][R60.64]\n@P3 BRA `(.L_over{0})\nFADD R40, R40, R{0}\n.L_over{0}:"
LAST = "FADD R40, R8, R12\nFADD R41, R4, R5"
KNOWN = "@!P1 BRA `(.L_over)\nFADD R40, R40, R4\n.L_over:"
CHANGED = "ISETP.NE.AND P1, PT, R0, RZ, PT\n" + KNOWN
SET = [f"{line} | set 0" for line in LOAD]
WAIT_FIRST = [USE[0] + " | wait 0", *USE[1:]]
UPDATE = loop("LDG.E.128 R4, desc[UR4][R60.64]\nFADD R4, R4, R8\nSTG.E.128 desc[UR4][R60.64], R4").replace("EXIT", "")

# The body of a gather loop, and its loads of 16 bytes that are in flight.
IN_FLIGHT = {
    "all before the first use": (lines_of(LOAD, USE), 8),
    "younger ones stay": (lines_of(LOAD[:3], USE[:1], LOAD[3:5], USE[1:5]), 4),
    "a use after each": (lines_of(*zip(LOAD, USE)), 1),
    "all into one register": (lines_of(re.sub(r"R\d+, desc", "R4, desc", LOADS), "FADD R40, R40, R4"), 1),
    "an address that was loaded": (lines_of(LOAD[0], "LDG.E.128 R8, desc[UR4][R4.64]\nFADD R40, R8, R9"), 1),
    "the way of single elements": (lines_of([FALLBACK.format(k, 4 * k + 4) for k in range(4)], END), 4),
    "a use on one of two open ways": (lines_of([OPEN.format(4 * k) for k in (1, 2, 3)]), 1),
    "a known predicate": (lines_of(FALLBACK.format(0, 4), KNOWN, LOAD[1:3], LAST), 3),
    "it has another value": (lines_of(FALLBACK.format(0, 4), CHANGED, LOAD[1:3], LAST), 2),
    "for the next turn": (lines_of("LDG.E.128 R4, desc[UR4][R60.64]\nFADD R40, R8, R9",
                                   "LDG.E.128 R8, desc[UR4][R62.64]\nFADD R40, R4, R5"), 2),
    # A warp that waits for a shuffle with the barrier of the first load waits for the load, too.
    "a barrier that others share": (lines_of("SHFL.IDX PT, R50, R51, R52, R53 | set 0", SET[0],
                                             "IADD3 R54, R50, R54, RZ | wait 0", SET[1:], WAIT_FIRST), 7),
    "a false guard still waits": (lines_of("@P4 LDG.E.128 R4, [R60.64] | set 0\n@!P4 MOV R4, RZ | wait 0",
                                           "LDG.E.128 R8, [R62.64] | set 1\nFADD R40, R4, R8 | wait 1"), 1),
}


def test_loads_in_flight(folder):
    for name, (body, expected) in IN_FLIGHT.items():
        same((name, flights(loop(body))), (name, [expected]))
    apart = lines_of(LOAD[:4], "@!P2 BRA.DIV UR4, `(.L_apart)\n.L_back:", LOAD[4:], USE)
    same(flights(loop(apart) + "\n.L_apart:\nFADD R4, R4, R8\nBRA `(.L_back)"), [8])
    # A loop that updates rows is no gather beside one that is.
    same(flights(UPDATE + loop(LOADS + "\n" + USES).replace("turn", "other")), [8])


def test_a_use_that_waits_for_nothing_is_reported(folder):
    try:
        flights(loop("LDG.E.128 R4, desc[UR4][R60.64] | set 0\nFADD R40, R4, R5 | wait 1"))
    except NoWait:
        return
    raise AssertionError("no exception")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "sass"))
