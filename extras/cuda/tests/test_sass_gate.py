#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The gate over SASS in extras/cuda/tests/sass: which planted kernels it rejects, what it calls worse, and how many warps an SM
holds. Needs neither nvcc nor NVIDIA's tools."""
import io
import os
import sys
from contextlib import redirect_stdout

import tap
import test_nvcc as nvcc

sys.path.insert(0, os.path.join(tap.ROOT, "extras", "cuda", "tests", "sass"))
from metrics import measure
from occupancy import warps_of_sm
from planted import LOADS, USES, loop, same, sass
from promises import Promise
from table import compare, compare_all, read_table, write_table


def broken(line, lines):
    text, controls = sass(lines)
    m = measure(text, controls)
    m.update(registers=32, warps=64)
    return Promise("a.cu  sum  " + line).broken({("a.cu", "sum<1>", 90): m})


GOOD = loop(LOADS + "\n" + USES)


def test_measures_of_a_kernel(folder):
    """Two gather loops, one with a load in flight."""
    serial = loop("LDG.E.128 R4, desc[UR4][R60.64]\nFADD R4, R4, R8").replace("turn", "other")
    m = measure(*sass(GOOD.replace("EXIT", "") + serial + "\nNOP\nNOP"))
    same((m["gathers"], m["flight16"], m["code"], m["slots"]), (2, 1, 16 * (19 + 6), 2.4))
    m = measure(*sass(loop((LOADS + "\n" + USES).replace(".128", ""))))
    same((m["flight16"], m["flight4"], m["flight2"], m["slots"]), (0, 8, 0, 0))


def test_promises_that_hold(folder):
    for line in ("flight16 >= 8", "match == 0", "local == 0", "membar <= 1", "atom == 0", r"LDG\.E\.128 == 8",
                 "slots <= 2.4"):
        same(broken(line, GOOD.replace("EXIT", "MEMBAR.SC.GPU\nRED.E.ADD.F32 [R2.64], R4\nEXIT")), [])
    same(broken("flight16 >= 9  sm_80", GOOD), ["a.cu has no kernel like sum"])


def test_promises_that_are_broken(folder):
    one = loop(LOADS.split("\n")[0] + "\n" + USES)
    same(broken("flight16 >= 8", one), ["sum<1> sm_90: flight16 is 1, promised >= 8"])
    for line, planted in (("match == 0", "MATCH.ANY R50, R48"), ("match_in_loops == 0", "MATCH.ANY R50, R48"),
                          ("local == 0", "@P0 LDL R4, [R1+0x8]"), ("membar <= 1", "MEMBAR.SC.GPU\nMEMBAR.ALL.GPU"),
                          ("ivall == 0", "CCTL.IVALL"), ("atom == 0", "ATOMG.E.ADD.STRONG.GPU PT, R4, [R2.64], R5"),
                          ("cas == 0", "ATOMS.CAST.SPIN P1, [R2], R4, R5"), ("double == 0", "F2F.F64.F32 R2, R4"),
                          ("division == 0", "CALL.REL.NOINC `($k$__internal_0_$__cuda_sm20_div_s64)"),
                          ("generic == 0", "LD.E R2, [R4.64]"), ("prefetch == 0", "CCTL.E.PF2 [R4.64]")):
        same(len(broken(line, GOOD.replace("IADD3 R0", planted + "\nIADD3 R0"))), 1)
    same(broken("match_in_loops == 0", GOOD.replace("EXIT", "MATCH.ANY R50, R48\nEXIT")), [])


def test_what_is_worse(folder):
    old = {"code": 1000, "warps": 20, "flight16": 8, "membar": 2, "registers": 90, "slots": 20.0}
    for change, expected in (({"flight16": 4}, "flight16 8 -> 4"), ({"warps": 16, "registers": 97}, "warps 20 -> 16"),
                             ({"membar": 3}, "membar 2 -> 3"), ({"local": 1}, "local 0 -> 1"),
                             ({"code": 1100}, "code 1000 -> 1100"), ({"slots": 21.5}, "slots 20 -> 21.5")):
        same(compare({**old, **change}, old)[0], [expected])
    for change in {"flight16": 9}, {"code": 1040}, {"registers": 96}, {"membar": 1}:
        worse, other = compare({**old, **change}, old)
        same((worse, len(other)), ([], 1))


def test_the_table_comes_back(folder):
    kernels = {("a.cu", "sum<1, false>", arch): {"code": 1834672, "slots": 47.5, "match": 0} for arch in (80, 100)}
    path = os.path.join(folder, "table.txt")
    write_table(path, kernels, "13.0")
    release, read = read_table(path)
    same(release, "13.0")
    same(compare_all(kernels, read), ([], []))
    same(compare_all({("a.cu", "other", 80): {}, **kernels}, read)[0], ["a.cu other sm_80 is not in the table"])
    same(len(compare_all({}, read)[0]), 2)


def test_only_what_is_built_is_judged(folder):
    """The table has sm_80 and sm_90; built are sm_75 and sm_90."""
    def judged(warps):
        with redirect_stdout(io.StringIO()) as out:
            nvcc.check_table({("a.cu", "sum", 90): {"warps": warps}}, "13.0", {75, 90})
            nvcc.check_promise(Promise("a.cu  sum  warps >= 8  sm_80"), {}, {75, 90})
        return [line.partition("# SKIP ")[2] or line.startswith("ok") for line in out.getvalue().splitlines()
                if not line.startswith("#")]

    nvcc.TABLE = os.path.join(folder, "table.txt")
    write_table(nvcc.TABLE, {("a.cu", "sum", arch): {"warps": 8} for arch in (80, 90)}, "13.0")
    same(judged(8), ["not in the table", "not built", True, "not built"])
    same(judged(4), ["not in the table", "not built", False, "not built"])


def test_warps_of_an_sm(folder):
    """cuda_occupancy.h of CUDA gives these numbers. Registers, shared memory and the number of blocks limit them."""
    same([warps_of_sm(90, 128, 8, 128), warps_of_sm(90, 129, 8, 128), warps_of_sm(90, 32, 102400, 128),
          warps_of_sm(90, 16, 0, 32), warps_of_sm(75, 16, 0, 32)], [16, 12, 8, 32, 16])


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "sass gate"))
