#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The gate over SASS in tests/cuda/sass: which planted kernels it rejects, what it calls worse, and how many warps an SM
holds. Needs neither nvcc nor NVIDIA's tools."""
import io
import os
import subprocess
import sys
from contextlib import redirect_stdout

import tap
import test_nvcc as nvcc

sys.path.insert(0, os.path.join(tap.TESTS, "cuda", "sass"))
from metrics import measure
from occupancy import LIMITS, warps_of_sm
from planted import LOADS, USES, loop, same, sass
from promises import Promise, read_promises
from table import compare, compare_all, read_table, write_table


def broken(line, lines):
    text, controls = sass(lines)
    m = measure(text, controls)
    m.update(registers=32, warps=64)
    return Promise("a.cu  sum  " + line).broken({("a.cu", "sum<1>", 90): m})


def test_measures_of_a_kernel(folder):
    """Two gather loops, one with a load in flight; that one loads 8 bytes, too, of something else."""
    serial = loop("LDG.E.128 R4, desc[UR4][R60.64]\n@P3 BRA `(.L_none)\nLDG.E.64 R8, desc[UR4][R60.64]\n"
                  "FADD R4, R4, R8\n.L_none:").replace("turn", "other")
    body = GOOD.replace("EXIT", "") + serial
    m = measure(*sass(body + "\nNOP\nNOP"))
    same((m["flight16"], m["flight8"], m["code"]), (1, 1, 16 * (19 + 8)))
    same(m["slots"], 2.4)
    longer = loop(LOADS + "\n" + USES + "\n@P2 BRA `(.L_short)\nMOV R1, R2\nMOV R1, R3\n.L_short:")
    same(measure(*sass(longer))["slots"], 2.5)
    eight = loop((LOADS + "\n" + USES).replace(".128", ".64")).replace("turn", "pairs")
    m = measure(*sass(body.replace("EXIT", "") + eight))
    same((m["flight16"], m["flight8"]), (1, 8))
    m = measure(*sass(loop((LOADS + "\n" + USES).replace(".128", ""))))
    same((m["flight16"], m["flight4"], m["flight2"], m["slots"]), (0, 8, 0, 0))


GOOD = loop(LOADS + "\n" + USES)


def test_promises_that_hold(folder):
    for line in ("flight16 >= 8", "match == 0", "local == 0", "membar <= 1", "atom == 0", r"LDG\.E\.128 == 8",
                 "slots <= 2.4"):
        same(broken(line, GOOD.replace("EXIT", "MEMBAR.SC.GPU\nRED.E.ADD.F32 [R2.64], R4\nEXIT")), [])
    same(broken("flight16 >= 9  sm_80", GOOD), ["a.cu has no kernel like sum"])


def test_promises_that_are_broken(folder):
    one = loop(LOADS.split("\n")[0] + "\n" + USES)
    same(broken("flight16 >= 8", one), ["sum<1> sm_90: flight16 is 1, promised >= 8"])
    for line, planted in (("match == 0", "MATCH.ANY R50, R48"), ("match_in_loops == 0", "MATCH.ANY R50, R48"),
                          ("local == 0", "STL.64 [R1], R4"), ("local == 0", "@P0 LDL R4, [R1+0x8]"),
                          ("membar <= 1", "MEMBAR.SC.GPU\nMEMBAR.ALL.GPU"), ("ivall == 0", "CCTL.IVALL"),
                          ("atom == 0", "ATOMG.E.ADD.STRONG.GPU PT, R4, [R2.64], R5"),
                          ("atom == 0", "ATOM.E.ADD.F32x4.FTZ.RN.STRONG.GPU PT, RZ, [R2.64], R8"),
                          ("cas == 0", "ATOMS.CAST.SPIN P1, [R2], R4, R5"), ("double == 0", "DADD R2, R2, R4"),
                          ("double == 0", "F2F.F64.F32 R2, R4"), ("division == 0", "I2F.U32.RP R2, R3"),
                          ("division == 0", "CALL.REL.NOINC `($k$__internal_0_$__cuda_sm20_div_s64)"),
                          ("generic == 0", "LD.E R2, [R4.64]"), ("prefetch == 0", "CCTL.E.PF2 [R4.64]")):
        same(len(broken(line, GOOD.replace("IADD3 R0", planted + "\nIADD3 R0"))), 1)
    same(broken("match_in_loops == 0", GOOD.replace("EXIT", "MATCH.ANY R50, R48\nEXIT")), [])


def test_a_wait_right_after_its_bulk_copy_is_rejected(folder):
    copy, wait = "UBLKCP.S.G [UR22], [UR20], UR18, desc[UR16]\n", "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R33+URZ], R18\n"
    same(broken("lead >= 8", loop(wait + copy + USES)), [])
    same(broken("lead >= 8", loop(copy + wait + USES)), ["sum<1> sm_90: lead is 0, promised >= 8"])
    same(len(broken("async >= 1", loop(wait + USES))), 1)


def test_bad_promises_are_refused(folder):
    for line in ("a.cu  sum  flight16 > 8", "a.cu  sum  flight16", "a.cu sum flight16 >= 8"):
        try:
            Promise(line)
        except ValueError:
            continue
        raise AssertionError(f"accepted: {line}")
    assert len(read_promises(os.path.join(tap.TESTS, "golden", "sass_promises.txt"))) > 10


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
    def judged(arch, warps, archs):
        with redirect_stdout(io.StringIO()) as out:
            nvcc.check_table({("a.cu", "sum", arch): {"warps": warps}}, "13.0", archs)
            nvcc.check_promise(Promise("a.cu  sum  warps >= 8  sm_80"), {}, archs)
        return [line.partition("# SKIP ")[2] or line.startswith("ok") for line in out.getvalue().splitlines()
                if not line.startswith("#")]

    nvcc.TABLE = os.path.join(folder, "table.txt")
    write_table(nvcc.TABLE, {("a.cu", "sum", arch): {"warps": 8} for arch in (80, 90)}, "13.0")
    skipped = "not in the table", "not built"
    same(judged(90, 8, {75, 90}), [*skipped, True, "not built"])
    same(judged(90, 4, {75, 90}), [*skipped, False, "not built"])
    same(judged(75, 4, {75, 90}), [*skipped, False, "not built"])
    same(judged(80, 8, {80}), [True, "not built", False])
    same([nvcc.lost(archs) for archs in ({80, 90}, {75, 80, 90})], [None, None])
    same([nvcc.lost(archs).split(":")[0] for archs in ({75, 90}, {75})],
         [f"{nvcc.TABLE} also has {gone}" for gone in ("sm_80", "sm_80 sm_90")])
    os.remove(nvcc.TABLE)
    same(nvcc.lost({90}), None)


OCCUPANCY = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_occupancy.h>
int main(int argc, char **argv) {
    int arch = atoi(argv[1]), kib = atoi(argv[2]), warps = atoi(argv[3]), registers, shared, block;
    (void)argc;
    while (scanf("%d %d %d", &registers, &shared, &block) == 3) {
        cudaOccDeviceProp p;
        memset(&p, 0, sizeof p);
        p.computeMajor = arch / 10, p.computeMinor = arch % 10;
        p.maxThreadsPerBlock = 1024, p.maxThreadsPerMultiprocessor = 32 * warps;
        p.regsPerBlock = p.regsPerMultiprocessor = 65536, p.warpSize = 32, p.numSms = 1;
        p.sharedMemPerBlock = 49152, p.sharedMemPerMultiprocessor = kib * 1024ul;
        p.sharedMemPerBlockOptin = (kib - 1) * 1024ul, p.reservedSharedMemPerBlock = arch < 80 ? 0 : 1024;
        cudaOccFuncAttributes f;
        memset(&f, 0, sizeof f);
        f.maxThreadsPerBlock = 1024, f.numRegs = registers, f.sharedSizeBytes = shared;
        cudaOccDeviceState s;
        memset(&s, 0, sizeof s);
        s.carveoutConfig = 100;
        cudaOccResult r;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, block, 0)) return 1;
        printf("%d\\n", r.activeBlocksPerMultiprocessor * ((block + 31) / 32));
    }
    return 0;
}
"""


def test_warps_as_cuda_counts_them(folder):
    include = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
    if not os.path.exists(os.path.join(include, "cuda_occupancy.h")):
        raise tap.Skip("no cuda_occupancy.h; CUDA_HOME names CUDA's folder")
    source, program = os.path.join(folder, "occupancy.c"), os.path.join(folder, "occupancy")
    tap.script(folder, "occupancy.c", OCCUPANCY)
    subprocess.run(["cc", "-w", "-isystem", include, source, "-o", program], check=True)
    asked = [(registers, shared, block) for registers in (8, 32, 33, 64, 80, 96, 97, 128, 168, 255)
             for shared in (0, 4, 8200, 23000, 49152 - 1024) for block in (32, 96, 128, 256)]
    for arch, (warps, _, kib) in LIMITS.items():
        text = subprocess.run([program, str(arch), str(kib), str(warps)], input="\n".join("%d %d %d" % a for a in asked),
                              capture_output=True, text=True, check=True).stdout
        same([warps_of_sm(arch, *a) for a in asked], list(map(int, text.split())))


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "sass gate"))
