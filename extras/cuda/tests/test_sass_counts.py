#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The interpreter of machine code (extras/cuda/sass/) does what code by hand says, and what it counts of the device kernel is
in extras/cuda/tests/golden/sass_counts.txt. Only the latter needs nvcc. Prints TAP."""
import os
import re
import struct
import sys

import tap

try:
    import numpy as np
except ImportError:
    tap.skip_all("sass counts", "numpy is missing: Debian's python3-numpy")
sys.path.insert(0, os.path.join(tap.ROOT, "extras", "cuda", "sass"))
sys.path.insert(0, os.path.join(tap.ROOT, "extras", "cuda", "tests", "sass"))
import counts  # noqa: E402
import kernel  # noqa: E402
from batch import entries  # noqa: E402
from machine import Machine, Stopped, library  # noqa: E402
from ptx_record import release  # noqa: E402

HERE = os.path.join(tap.BUILD, "extras", "cuda", "sass")
if not os.path.exists(os.path.join(HERE, "libsass.so")):
    tap.skip_all("sass counts", "this build has no extras/cuda/sass/libsass.so")
LIB = library(os.path.join(HERE, "libsass.so"))
IN, OUT = 0x10000, 0x20000
# Inputs of the lanes: ends of the ranges of integers and floats, and values between.
A = np.array([0, 1, 2, 3, 5, 31, 32, 33, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 0xffff, 0x10000,
              0x12345678, 0x3f800000, 0xbf800000, 0x40490fdb, 0x7f800000, 0xff800000, 0x7fc00000, 0x00000001, 0x007fffff,
              0x00800000, 0x3dcccccd, 0x4b800001, 0xcb7fffff, 0x5f3759df, 0x1e3ce508, 0x3c003c00, 0xc0004248], np.uint32)
B = np.roll(A, 7) ^ np.uint32(0x5a)


def listing(lines):
    """The text that nvdisasm would give."""
    text, at = [], 0
    for line in filter(None, map(str.strip, lines.splitlines())):
        if line.endswith(":"):
            text.append(line)
        else:
            text.append(f"        /*{at:04x}*/                   {line} ;")
            at += 16
    return "\n".join(text)


BEGIN = f"""
    S2R R0, SR_TID.X
    IMAD.WIDE.U32 R8, R0, 0x4, RZ
    LDG.E R2, desc[UR4][R8.64+{IN:#x}]
    LDG.E R3, desc[UR4][R8.64+{IN + 256:#x}]
"""
END = f"STG.E desc[UR4][R8.64+{OUT:#x}], R4\nEXIT"


def ran(lines, threads=32, blocks=(0,)):
    """(what the code stores, how often its instructions were issued)"""
    m = Machine(LIB, listing(lines), bytes(0x40), 2048, threads)
    given, out = m.memory(IN, 512), m.memory(OUT, 4096)
    given[:32], given[64:96] = A, B
    m.run(blocks)
    result = out.copy(), m.issued.copy()
    m.close()
    return result


def f(x):
    return struct.unpack("<f", struct.pack("<I", x))[0]


def s(x):
    return x - (x >> 31 << 32)


def bits(x):
    return int(np.float32(x).view(np.uint32))


# Code that computes R4 of R2 = a and R3 = b, and the same in Python.
CASES = [
    ("IADD3 R4, R2, -R3, 0x7", lambda a, b: a - b + 7),
    ("IADD3 R5, P0, R2, R3, RZ\nIADD3.X R4, R2, ~R3, RZ, P0, !PT", lambda a, b: a + ~b + (a + b >> 32)),
    ("IADD3 R5, P0, P1, R2, R3, -0x1\nIADD3.X R4, RZ, RZ, RZ, P0, P1", lambda a, b: a + b + 0xffffffff >> 32),
    ("IADD3 R5, P0, R2, -R3, RZ\nIADD3.X R4, RZ, RZ, RZ, P0, !PT", lambda a, b: a >= b),
    ("VIADD R4, R2, 0xfffffff0", lambda a, b: a - 16),
    ("IMAD R4, R2, R3, R2", lambda a, b: a * b + a),
    ("IMAD.MOV R4, RZ, RZ, -R2", lambda a, b: -a),
    ("IMAD.WIDE R4, R2, R3, RZ\nIMAD.MOV.U32 R4, RZ, RZ, R5", lambda a, b: s(a) * s(b) >> 32),
    ("CS2R R6, SRZ\nIMAD.HI.U32 R4, R2, R3, R6", lambda a, b: a * b >> 32),
    ("LEA R4, P0, R2, R3, 0x3\nLEA.HI.X R4, R2, R3, RZ, 0x3, P0", lambda a, b: (a >> 29) + b + ((a << 3 & 0xffffffff) + b >> 32)),
    ("LEA.HI R4, R2, R3, RZ, 0x5", lambda a, b: (a >> 27) + b),
    ("SHF.L.U32 R4, R2, R3, RZ", lambda a, b: a << min(b, 32)),
    ("SHF.R.S32.HI R4, RZ, R3, R2", lambda a, b: s(a) >> min(b, 32)),
    ("SHF.R.U64 R4, R2, 0xb, R3", lambda a, b: (b << 32 | a) >> 11),
    ("SHF.L.U64.HI R4, R2, 0xb, R3", lambda a, b: (b << 32 | a) << 11 >> 32),
    ("SHF.L.W.U32.HI R4, R2, R3, R2", lambda a, b: (a << 32 | a) << (b & 31) >> 32),
    ("LOP3.LUT R4, R2, R3, 0xff00ff, 0xca, !PT", lambda a, b: (a & b) | (~a & 0xff00ff)),
    ("LOP3.LUT P0, RZ, R2, R3, RZ, 0xc0, !PT\nSEL R4, R2, R3, P0", lambda a, b: a if a & b else b),
    ("PRMT R4, R2, 0x9e40, R3", lambda a, b: (a & 255) | (b & 255) << 8 | (0xff0000 if b >> 23 & 1 else 0) |
     (0xff000000 if a >> 15 & 1 else 0)),
    ("ISETP.LT.AND P0, P1, R2, R3, PT\nSEL R4, R2, R3, !P1", lambda a, b: a if s(a) < s(b) else b),
    ("ISETP.GE.U32.AND P0, PT, R2, R3, PT\nISETP.GE.AND.EX P0, PT, R3, R2, PT, P0\nSEL R4, RZ, 0x1, !P0",
     lambda a, b: (s(b) << 32 | a) >= (s(a) << 32 | b)),
    ("VIMNMX R4, R2, R3, !PT", lambda a, b: max(s(a), s(b))),
    ("VIADDMNMX.U32 R4, R2, 0x5, R3, PT", lambda a, b: min(a + 5 & 0xffffffff, b)),
    ("IABS R4, R2", lambda a, b: abs(s(a))),
    ("BREV R4, R2", lambda a, b: int(f"{a:032b}"[::-1], 2)),
    ("POPC R4, R2", lambda a, b: bin(a).count("1")),
    ("FLO.U32 R4, R2", lambda a, b: a.bit_length() - 1),
    ("FLO.U32.SH R4, R2", lambda a, b: 32 - a.bit_length() if a else -1),
    ("I2FP.F32.S32 R4, R2", lambda a, b: bits(s(a))),
    ("I2F.U32.RP R4, R2", lambda a, b: bits(np.float32(a) if float(np.float32(a)) >= a else
                                           np.nextafter(np.float32(a), np.float32(np.inf)))),
    ("F2I.FTZ.U32.TRUNC.NTZ R4, R2", lambda a, b: 0 if f(a) != f(a) else int(min(max(f(a), 0), 2**32 - 1))),
    ("FADD R4, R2, -R3", lambda a, b: bits(np.float32(f(a)) - np.float32(f(b)))),
    ("FMUL R4, R2, 0.5", lambda a, b: bits(np.float32(f(a)) * np.float32(0.5))),
    ("FMUL.FTZ R4, |R2|, 0.5", lambda a, b: 0 if a & 0x7f800000 <= 0x800000 else bits(np.float32(abs(f(a))) * np.float32(0.5))),
    ("FADD R5, RZ, 1\nFFMA R4, R5, -R2, R5", lambda a, b: bits(np.float32(1) - np.float32(f(a)))),
    ("FSETP.GEU.AND P0, PT, |R2|, R3, PT\nFSEL R4, R2, R3, P0", lambda a, b: b if abs(f(a)) < f(b) else a),
    ("HADD2.F32 R4, -RZ, R2.H1_H1", lambda a, b: bits(np.array([a >> 16], np.uint16).view(np.float16)[0])),
    ("F2FP.F16.F32.PACK_AB R4, RZ, R2", lambda a, b: int(np.array([f(a)]).astype(np.float32).astype(np.float16).view(np.uint16)[0])),
    ("P2R R4, PR, RZ, 0x7f\nR2P PR, R2, 0x6\nP2R R4, PR, R4, 0x6", lambda a, b: a & 6),
    ("VOTE.ANY R4, PT, PT", lambda a, b: 0xffffffff),
]
# Results for NaN have other payloads elsewhere; both sides count as NaN.
QUIET = ("FADD", "FMUL", "FFMA", "HADD2", "F2FP")


def same(name, got, wanted, a, b):
    if name.startswith(QUIET):
        half = name.startswith("F2FP")
        if all(x & (0x7fff if half else 0x7fffffff) > (0x7c00 if half else 0x7f800000) for x in (got, wanted)):
            return
    assert got == wanted, f"{name}: a {a:#x} b {b:#x}: {got:#x}, not {wanted:#x}"


def test_instructions(folder):
    np.seterr(all="ignore")
    for code, value in CASES:
        out, _ = ran(BEGIN + code + "\n" + END)
        for a, b, got in zip(map(int, A), map(int, B), map(int, out)):
            same(code.splitlines()[-1], got, int(value(a, b)) & 0xffffffff, a, b)


def test_shuffles(folder):
    lane = np.arange(32)
    for code, source in (("IDX PT, R4, R0, 0x5, 0x101f", lane // 16 * 16 + 5), ("BFLY PT, R4, R0, 0x3, 0x1f", lane ^ 3),
                         ("UP PT, R4, R0, 0x2, 0x0", np.where(lane < 2, lane, lane - 2)),
                         ("DOWN PT, R4, R0, 0x2, 0x181f", np.where(lane % 8 > 5, lane, lane + 2))):
        out, _ = ran(BEGIN + "SHFL." + code + "\n" + END)
        assert (out[:32] == source).all(), code


# Lane l makes l % 4 + 1 turns; BODY is issued once in each, by the lanes that are left.
LOOP = BEGIN + """
    LOP3.LUT R6, R0, 0x3, RZ, 0xc0, !PT
    MOV R4, RZ
    BSSY B0, `(.L_end)
.L_turn:
    IADD3 R4, R4, 0x3, RZ
    ISETP.NE.AND P0, PT, R6, RZ, PT
    IADD3 R6, R6, -0x1, RZ
    @P0 BRA `(.L_turn)
    BSYNC B0
.L_end:
    IADD3 R4, R4, 0x1, RZ
""" + END


def test_lanes_that_part_meet_again(folder):
    out, issued = ran(LOOP)
    assert (out[:32] == 3 * (np.arange(32) % 4 + 1) + 1).all()
    # Four groups leave the loop one by one, and come to BSYNC alone.
    assert issued[4:].tolist() == [1, 1, 1, 4, 4, 4, 4, 4, 1, 1, 1], issued
    out, issued = ran(LOOP.replace("BSYNC B0", "NOP"))
    assert issued[-3:].tolist() == [4, 4, 4], issued
    out, issued = ran(LOOP.replace("IADD3 R6, R6, -0x1", "@!P0 BREAK B0\nIADD3 R6, R6, -0x1").replace("BSYNC B0", "NOP"))
    assert (out[:32] == 3 * (np.arange(32) % 4 + 1) + 1).all()


CALLS = BEGIN + """
    LOP3.LUT P0, RZ, R0, 0x1, RZ, 0xc0, !PT
    MOV R4, 0x7
    BSSY B0, `(.L_back)
    @!P0 BRA `(.L_join)
    MOV R20, 0xa0
    CALL.REL.NOINC `($triple)
.L_join:
    BSYNC B0
.L_back:
    WARPSYNC.ALL
""" + END + """
$triple:
    IMAD R4, R4, 0x3, RZ
    RET.REL.NODEC R20 `(main)
"""


def test_calls(folder):
    out, issued = ran(CALLS)
    assert (out[:32] == np.where(np.arange(32) % 2, 21, 7)).all()
    assert issued[8:].tolist() == [1, 1, 2, 1, 1, 1, 1, 1], issued


SHARED = BEGIN + """
    IMAD.SHL.U32 R5, R0, 0x4, RZ
    STS [R5+0x10], R0
    BAR.SYNC.DEFER_BLOCKING 0x0
    LOP3.LUT R5, R5, 0xfc, RZ, 0x3c, !PT
    LDS R4, [R5+0x10]
    MOV R6, 0x1
    ATOMG.E.ADD.STRONG.GPU PT, R7, desc[UR4][R10.64], R6
""".replace("MOV R6, 0x1", f"MOV R6, 0x1\nMOV R10, {OUT + 2048:#x}\nMOV R11, RZ") + END


def test_warps_of_a_block_share_memory(folder):
    out, issued = ran(SHARED, threads=64, blocks=(0, 1))
    assert (out[:64] == np.arange(64) ^ 63).all()
    assert out[512] == 128 and (issued == 4).all()


STOPS = {
    "no rule for it: 0x0000 FROB R1, R2": "FROB R1, R2",
    "no rule for it: 0x0000 FADD.SAT R1, R2, R3": "FADD.SAT R1, R2, R3",
    "no memory at 0x50000": "MOV R2, 0x50000\nMOV R3, RZ\nLDG.E R4, desc[UR4][R2.64]",
    "no shared memory at 0x800": "MOV R2, 0x800\nSTS [R2], R3",
    "misaligned address 0x10004": "MOV R2, 0x10004\nMOV R3, RZ\nLDG.E.128 R4, desc[UR4][R2.64]",
    "no end": ".L_x:\nBRA `(.L_x)",
    "lanes wait for a barrier that the others never reach": "S2R R0, SR_TID.X\nISETP.NE.AND P0, PT, R0, RZ, PT\n@P0 BAR.SYNC.DEFER_BLOCKING 0x0\n"
                           "WARPSYNC.ALL\nEXIT",
    "leaves the code": "NOP",
}


def test_what_stops_it(folder):
    for words, code in STOPS.items():
        try:
            ran(code)
        except Stopped as e:
            assert words in str(e) and "\n" not in str(e), f"{words}: {e}"
        else:
            raise AssertionError(f"it did not stop: {words}")


# --- what nvcc made
def kernels():
    try:
        return counts.kernels_of(tap.BUILD, "rowwise_adagrad")
    except Stopped as e:
        raise tap.Skip(str(e))


def test_as_recorded(folder):
    """Also all rows and states that the sampled blocks finish."""
    kernels()
    made_by, before = counts.read(counts.GOLDEN)
    if made_by != release():
        raise tap.Skip(f"recorded with nvcc {made_by}, this is {release()}")
    found = list(counts.differences(before, counts.measured(tap.BUILD)))
    assert not found, "make sass-counts-renew accepts these:\n# " + "\n# ".join(found)


def planted(text):
    """One defect after another: an instruction on the way of every row is another one."""
    for old, new in (("FMUL", "FADD"), ("STG.E.128", "CCTL.E.PF2"), ("FFMA R", "FMUL R")):
        yield old, re.sub(rf"(\*/\s+(?:@!?P\d )?\s*){re.escape(old)}(?=[\s.]|\d)", rf"\1{new}", text)


def test_a_defect_in_the_code_is_found(folder):
    own, batch = kernels(), counts.POINTS[0][0]
    drawn = entries(batch)
    facts = kernel.Facts(os.path.join(HERE, "target"), batch, 64, "rowwise_adagrad")
    text = own.text(facts.kernel)
    for what, changed in planted(text):
        assert changed != text, what
        own.texts[facts.kernel] = changed
        rows, wrong, first = kernel.Run(LIB, own, os.path.join(HERE, "target"), batch, drawn, 64, "rowwise_adagrad", 2).checked
        assert wrong > rows / 2 and "row" in first, (what, rows, wrong, first)


sys.exit(tap.run(globals(), "sass counts"))
