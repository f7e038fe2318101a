#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The translation of PTX and what runs it: correct kernels pass, planted bugs are found. Needs no nvcc. Prints TAP.

extras/cuda/tests/ptx/sums.ptx has instructions of every kind. A planted bug is a change of its text. The translator refuses it, a
defect ends the program with status 86, or the program finds a wrong result (status 1)."""
import glob
import os
import re
import subprocess
import sys
import tempfile

import tap

CXX = os.environ.get("CXX") or "g++"
FLAGS = ["-std=c++20", "-Og", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-Iemulation/include", "-I."]
PTX = "extras/cuda/tests/ptx/sums.ptx"
TEXT = open(os.path.join(tap.ROOT, PTX)).read()

# The observer must see these numbers of kernels, and of instructions by kind.
COUNTED = "kernels 2 kinds 688 436 128 24 128 256 256 8\n"

REFUSED = [
    ("an add that ptxas may contract", "add.rn.f32 \t%f5", "add.f32 \t%f5", "ptxas may contract"),
    ("an fma", "sub.rn.f32 \t%f7, %f5, %f6", "fma.rn.f32 \t%f7, %f3, %f4, %f5", "no contraction"),
    ("an approximate division", "mul.rn.f32", "div.approx.f32", "not reproducible"),
    ("an unknown instruction", "bar.sync", "bar.arrive", "only barrier 0"),
    ("a bulk copy", "cp.async.commit_group;", "cp.async.bulk.commit_group;", "a bulk copy"),
    ("an unknown name", "sub.rn.f32", "subtract.rn.f32", "unknown instruction"),
    ("lanes that happen to run together", "and.b32  \t%r15, %r2, 31", "activemask.b32 \t%r15", "activemask"),
    ("a register of another width", "setp.gt.u32 \t%p1, %r2, 7", "setp.gt.u64 \t%p1, %r2, 7", "narrower"),
]

ATOMIC = "atom.shared.add.u32 \t%r23, [%r22], 1;"
PLAIN = "ld.shared.u32 \t%r23, [%r22]; add.s32 \t%r23, %r23, 1; st.shared.u32 \t[%r22], %r23;"
FOUND = [
    ("a dropped barrier", "bar.sync \t0;\n\t.loc\t1 45 5", "", (1,), "sum "),
    ("a shuffle without half of its lanes", "%r11, 16, 31, -1", "%r11, 16, 31, 65535", (86,), "not in its mask"),
    ("lanes that return before a barrier", "@%p1 bra \t$L__BB0_4", "@%p1 ret", (86,), "deadlock"),
    ("a store with a wrong offset", "[%rd11], %f17", "[%rd11+4], %f17", (86,), "kernels/sums.cu:45"),
    ("a misaligned vector", "%f4}, [%rd7]", "%f4}, [%rd7+4]", (86,), "misaligned access of 16 bytes"),
    ("shared memory out of bounds", "[%r17+4]", "[%r17+8]", (86,), "shared memory out of bounds: byte 8 of an array of 8"),
    ("local memory out of bounds", "%f8, [%SPL+4]", "%f8, [%SPL+8]", (86,), "local memory out of bounds"),
    ("a shared address as a global one", "cvta.to.global.u64 \t%rd5, %rd1", "cvta.shared.u64 \t%rd5, %rd1", (86,),
     "is no global address"),
    ("an atomic made plain", ATOMIC, PLAIN, (1,), "count "),
]

# Collectives, before the first shuffle of the kernel; a wrong result traps.
SHUFFLE = "shfl.sync.bfly.b32\t%r12|%p2"
COLLECTIVES = """mov.u32 %lane, %laneid;
    setp.lt.u32 %low, %lane, 4;
    vote.sync.ballot.b32 %x, %low, -1; setp.ne.u32 %wrong, %x, 15; @%wrong trap;
    vote.sync.any.pred %right, %low, -1; @!%right trap;
    vote.sync.all.pred %wrong, %low, -1; @%wrong trap;
    and.b32 %x, %lane, 15; match.any.sync.b32 %y, %x, -1; shl.b32 %x, 65537, %x; setp.ne.u32 %wrong, %x, %y; @%wrong trap;
    redux.sync.add.s32 %x, %lane, -1; setp.ne.u32 %wrong, %x, 496; @%wrong trap;
    redux.sync.max.s32 %x, %lane, -1; setp.ne.u32 %wrong, %x, 31; @%wrong trap;
    barrier.cta.red.popc.aligned.u32 %x, 0, %low; setp.ne.u32 %wrong, %x, 8; @%wrong trap;
    barrier.cta.red.or.aligned.pred %right, 0, %low; @!%right trap;
    bar.red.and.pred %wrong, 0, %low; @%wrong trap;
    bar.warp.sync -1;
    elect.sync %x|%right, -1; setp.eq.and.u32 %right, %lane, 0, !%right; @%right trap;
"""


def collectives():
    names = {"%lane": "%r90", "%x": "%r91", "%y": "%r92", "%low": "%p90", "%wrong": "%p91", "%right": "%p92"}
    return re.sub(r"%[a-z]+\b", lambda name: names.get(name[0], name[0]), COLLECTIVES)


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, cwd=tap.ROOT, **more)


def translate(text, folder):
    """(status, what it says)"""
    path = os.path.join(folder, "sums.ptx")
    with open(path, "w") as f:
        f.write(text)
    done = run([sys.executable, "extras/cuda/ptx/translate.py", "sums", PTX, path, os.path.join(folder, "sums")])
    return done.returncode, done.stderr


def compile(source, to):
    done = run([CXX, *FLAGS, "-c", source, "-o", to])
    assert done.returncode == 0, done.stderr


def program(text, folder, main):
    """The program with this PTX."""
    status, said = translate(text, folder)
    assert status == 0, said
    made = []
    for source in glob.glob(os.path.join(folder, "sums.*.cpp")):
        made.append(source[:-4] + ".o")
        compile(source, made[-1])
    built = os.path.join(folder, "sums")
    runtime = [os.path.join(tap.BUILD, source[:-4] + ".o") for folder in ("extras/cuda/ptx", "emulation")
               for source in glob.glob(f"{folder}/*.cpp", root_dir=tap.ROOT)]
    done = run([CXX, "-fopenmp", main, *made, *runtime, "-o", built])
    assert done.returncode == 0, done.stderr
    return built


def changed(old, new):
    assert TEXT.count(old) >= 1, f"{old!r} is not in {PTX}"
    return TEXT.replace(old, new, 1)


count = failures = 0


def tell(fine, name, why=""):
    global count, failures
    count += 1
    failures += not fine
    print(f"{'ok' if fine else 'not ok'} {count} - {name}")
    for line in [] if fine else why.splitlines():
        print(f"#   {line}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        driver = os.path.join(folder, "driver.o")
        compile("extras/cuda/tests/ptx/sums.cpp", driver)
        correct = program(TEXT, folder, driver)
        done = run([correct])
        tell(done.returncode == 0 and not done.stdout + done.stderr, "correct kernels pass", done.stdout + done.stderr)
        done = run([correct, "watch"])
        tell(done.stdout == COUNTED, "the observer is told of every instruction", done.stdout + done.stderr)
        for name, end, status in (("collectives are right", SHUFFLE, 0), ("a wrong one traps", "trap;\n" + SHUFFLE, 86)):
            done = run([program(changed(SHUFFLE, collectives() + end), folder, driver)])
            tell(done.returncode == status, name, f"status {done.returncode}\n{done.stderr}")
        for name, old, new, why in REFUSED:
            status, said = translate(changed(old, new), folder)
            line = said.startswith(PTX + ":") and said.count("\n") == 1
            tell(status == 1 and line and why in said, f"refused: {name}", said or "translated")
        for name, old, new, statuses, why in FOUND:
            done = run([program(changed(old, new), folder, driver)], timeout=60)
            said = done.stdout + done.stderr
            tell(done.returncode in statuses and why in said, f"found: {name}", f"status {done.returncode}\n{said}")
    print(f"1..{count}")
    return failures > 0


sys.exit(main())
