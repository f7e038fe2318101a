#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a request stands for in machine code, and loads in flight at most, in planted kernels. Needs neither nvcc nor
NVIDIA's tools."""
import os
import re
import sys

import tap

sys.path.insert(0, os.path.join(tap.TESTS, "cuda", "sass"))
from issue import merged, read, sources
from planted import LOADS, loop, sass, same


def code(lines):
    """What read() says of instructions on lines of main.cu: "7: LDG.E ..." is on line 7, and so are those after it."""
    text, controls = sass("\n".join(re.sub(r"^\s*\d+: ", "", line) for line in lines.splitlines()))
    told, numbers = [], [re.match(r"\s*(\d+): ", line) for line in lines.splitlines() if line.strip()]
    for line, number in zip(text.splitlines(), numbers):
        told += [f'\t//## File "/home/x/./main.cu", line {number[1]}'] if number else []
        told.append(line)
    return read("\n".join(told), controls)


def shares(lines):
    return {(line, kind): round(share, 2) for (_, line, kind), share in code(lines)["shares"].items()}


def flights(lines):
    found = code(lines)["flights"]
    return found and {line: most for (_, line), most in found.items()}


def test_lines(folder):
    same(sources('  //## File "/a/b/./c.cuh", line 7\n    /*0000*/  NOP ;\n    /*0010*/  NOP ;\n'
                 '//## File "/a/x.cu", line 8 inlined at "/a/y.cu", line 9\n    /*0020*/  NOP ;\n'),
         {0: ("c.cuh", 7), 16: ("c.cuh", 7), 32: ("/a/x.cu", 8)})


# Code, and the instructions that a request of a line and kind stands for.
SHARES = {
    "requests share their block": ("""
        1: IADD3 R0, R0, 0x1, RZ
        2: LDG.E R4, desc[UR4][R2.64]
        3: FADD R5, R4, R4
        4: STG.E desc[UR4][R2.64], R5
        5: EXIT""", {(2, "load"): 2.5, (4, "store"): 2.5}),
    # Two copies of line 2: one in a block of 4 instructions, and one in a block of 2.
    "the least share of a line": ("""
        1: IADD3 R0, R0, 0x1, RZ
        1: IADD3 R0, R0, 0x1, RZ
        2: LDG.E R4, desc[UR4][R2.64]
        3: @P0 BRA `(.L_end)
        2: LDG.E R5, desc[UR4][R2.64]
        3: @P1 BRA `(.L_end)
        4: STG.E desc[UR4][R2.64], R5
        .L_end:
        5: EXIT""", {(2, "load"): 2, (4, "store"): 1}),
    "shared memory is no request": ("1: LDS R4, [R2]\n2: LDG.E R4, desc[UR4][R2.64]\n3: STS [R2], R4\n4: EXIT",
                                    {(2, "load"): 4}),
    "a loop without a request": (loop("1: IADD3 R3, R3, 0x1, RZ") + "\n2: LDG.E R4, desc[UR4][R2.64]\n3: EXIT", {}),
    "a block without a request": ("1: LDG.E R4, desc[UR4][R2.64]\n2: @P0 EXIT\n3: FADD R1, R1, R1\n4: EXIT",
                                  {(1, "load"): 2}),
    "a way for parted lanes is no shorter": ("""
        1: FADD R1, R1, R1
        2: BRA.DIV UR4, `(.L_parted)
        3: SHFL.IDX PT, R4, R5, R6, R7
        .L_back:
        4: FADD R1, R1, R4
        5: EXIT
        .L_parted:
        3: WARPSYNC.COLLECTIVE R15, `(.L_all)
        .L_all:
        3: SHFL.IDX PT, R4, R5, R6, R7
        3: BRA `(.L_back)""", {(3, "shuffles"): 5}),
}


def test_shares(folder):
    for name, (lines, expected) in SHARES.items():
        same((name, shares(lines)), (name, expected))


CALL = """
    1: LDG.E R4, desc[UR4][R2.64] | set 0
    2: CALL.REL.NOINC `($called) | wait
    3: FADD R1, R4, R8 | wait 0 1
    4: EXIT | wait
    $called:
    5: IADD3 R0, R0, 0x1, RZ | wait
    6: LDG.E R8, desc[UR4][R6.64] | set 1
    7: RET.REL.NODEC R20 `(main) | wait"""


def test_called_functions(folder):
    same(shares(CALL), {(1, "load"): 4, (6, "load"): 3})
    same(flights(CALL), {1: 2, 6: 2})


def test_most_loads_in_flight(folder):
    eight = LOADS.replace("\n", "\n1: ")
    same(flights(f"1: {eight}\n2: FADD R40, R40, R7\n3: LDG.E R50, desc[UR4][R60.64]\n4: EXIT"), {1: 8, 3: 8})
    # Line 1 is waited for before line 3 loads.
    same(flights("""
        1: LDG.E R4, desc[UR4][R2.64] | set 0
        2: FADD R5, R4, R4 | wait 0
        3: LDG.E R8, desc[UR4][R2.64] | set 0
        3: LDG.E R9, desc[UR4][R2.64] | set 0
        4: EXIT | wait"""), {1: 1, 3: 2})


def test_turns_of_a_loop_overlap(folder):
    """The load of a turn is in flight when that of the next one is issued, into the other register."""
    same(flights(loop("""
        1: LDG.E R4, desc[UR4][R2.64]
        2: FADD R6, R6, R5
        3: LDG.E R5, desc[UR4][R2.64]
        4: FADD R6, R6, R4""")), {1: 2, 3: 2})


def test_either_way_counts(folder):
    same(flights("""
        1: @P0 BRA `(.L_two)
        2: LDG.E R4, desc[UR4][R2.64]
        3: BRA `(.L_end)
        .L_two:
        4: LDG.E R5, desc[UR4][R2.64]
        4: LDG.E R6, desc[UR4][R2.64]
        .L_end:
        5: LDG.E R7, desc[UR4][R2.64]
        6: EXIT"""), {2: 4, 4: 4, 5: 4})


def test_asynchronous_copies_tell_nothing(folder):
    same(flights("1: LDG.E R4, desc[UR4][R2.64]\n2: LDGSTS.E [R5], desc[UR4][R2.64]\n3: EXIT"), None)


def test_of_one_name_what_is_certain(folder):
    a = {"shares": {("f", 1, "load"): 4, ("f", 2, "load"): 3}, "flights": {("f", 1): 2}}
    b = {"shares": {("f", 1, "load"): 2.5}, "flights": {("f", 1): 5, ("f", 2): 1}}
    same(merged(a, b), {"shares": {("f", 1, "load"): 2.5, ("f", 2, "load"): 0}, "flights": {("f", 1): 5, ("f", 2): 1}})
    same(merged(a, {"shares": {}, "flights": None})["flights"], None)


sys.exit(tap.run(globals(), "sass_issue"))
