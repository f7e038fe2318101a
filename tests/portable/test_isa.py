#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Levels of the instruction set. A portable build on x86-64 has every host kernel for AVX-512, for AVX2 and
plain, and uses the best level that the CPU can run, or that of EMBFUSE_ISA. All levels give the same bits,
unless these depend on the order of additions; only kernels may need more than plain. Other builds have one.
"""
import glob
import json
import os
import platform
import re
import subprocess
import sys

import tap

BUILD = os.environ.get("BUILD", "build")
PORTABLE = os.environ.get("NATIVE") == "0"
CLANG = "clang" in os.path.basename(BUILD)
# Best level first; the features have their names in /proc/cpuinfo.
AVX2 = {"avx2", "bmi1", "bmi2", "fma", "popcnt"}
LEVELS = {"avx512": AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}, "avx2": AVX2,
          "plain": set()}
# Every width that kernels treat apart; the last table has segments so long that threads share them.
TABLES = "".join(f"table rows {rows} dim {dim} length {length}; " for rows, dim, length in (
    (9, 1, "fixed 3"), (700, 17, "negbin 5 1"), (500, 32, "uniform 0 9"), (300, 64, "negbin 5 1"),
    (200, 100, "fixed 2"), (200, 128, "uniform 0 4"), (2, 40, "fixed 80")))
WORKLOADS = {"sum": "", "mean": "pooling mean; weighted 1; padding 1; ",
             "sequence": "pooling none; id_type int32; ", "max": "pooling max; padding 1; "}
# The loops of these kernels are in kernels/host/.
NO_LOOPS = {"cpu_fused", "cpu_fused_planned", "cpu_lookup", "cpu_lookup_ahead", "cpu_merged", "cpu_sort"}


def levels():
    """The levels that this build has and this CPU can run, best first."""
    if not PORTABLE:
        return ["native"]
    if platform.machine() != "x86_64":
        return ["plain"]
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = set(re.search(r"(?m)^flags\s*:(.*)", file.read())[1].split())
    return [name for name, wanted in LEVELS.items() if wanted <= flags]


def call(isa, program, *args):
    return tap.call({"EMBFUSE_ISA": isa}, program, *args)


def good(isa, program, *args):
    return tap.good({"EMBFUSE_ISA": isa}, program, *args)


def listed(isa):
    return json.loads(good(isa, "embfuse", "list", "--json"))


def compiled(isa):
    """{kernel: its object}. Skips sanitized builds, which add code and symbols."""
    if len(levels()) < 2 or os.environ.get("SANITIZE"):
        raise tap.Skip("no levels in this build" if len(levels()) < 2 else "sanitized")
    found = glob.glob(os.path.join(glob.escape(BUILD), "kernels", "*", f"*.{isa}.o"))
    return {os.path.basename(path)[:-len(f".{isa}.o")]: path for path in found}


def code(path):
    """Features in a file's instructions that some x86-64 CPUs lack: VEX (AVX), EVEX (AVX-512), ymm, zmm."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True,
                          check=True).stdout
    # Clones of a function (target_clones) do not count: the loader chooses one that the CPU can run.
    text = re.sub(r"(?ms)^[0-9a-f]+ <[^>]*\.avx[\w.]*>:\n.*?(?:^\n|\Z)", "", text)
    registers = set(re.findall(r"%([xyz]mm|k)(\d+)", text))
    found = {kind for kind, _ in registers} & {"ymm", "zmm"}
    if re.search(r"(?m)^\s+[0-9a-f]+:\s+v", text):
        found.add("VEX")
    if any(kind in ("zmm", "k") or int(number) > 15 for kind, number in registers):
        found.add("EVEX")
    return found


def test_the_best_level_is_taken_and_recorded(folder):
    for isa in ("", *levels()):
        want = isa or levels()[0]
        assert listed(isa)["isa"] == want, f"{listed(isa)['isa']} for EMBFUSE_ISA='{isa}'"
    good(levels()[-1], "bench", "--out=" + folder, "--modes=cold", "--reps=1", "--ring=1", "--batch=64",
         "--rows=1000", "--dims=8", "--filter=cpu_sort")
    with open(os.path.join(folder, "bench.json"), encoding="utf-8") as file:
        assert json.load(file)["context"]["emb_isa"] == levels()[-1]


def test_other_levels_are_refused_in_one_line(folder):
    for isa in {*LEVELS, "native", "avx9", "avx"} - set(levels()):
        for program, *args in (("embfuse", "list"), ("bench", "--smoke", "--out=" + folder)):
            done = call(isa, program, *args)
            want = f"cannot run '{isa}'; this build and CPU can: {' '.join(levels())}"
            assert (done.returncode, done.stdout) == (1, ""), (isa, done)
            assert done.stderr == f"{program}: EMBFUSE_ISA: {want}\n", (isa, done)


def step(isa, kernel, batch, folder):
    """Whether the result is exact, and its files' bytes."""
    for old in glob.glob(os.path.join(folder, "new.*")):
        os.unlink(old)
    said = good(isa, "embfuse", "step", "--kernel", kernel, "--batch", batch, "--steps", "2", "--out",
                os.path.join(folder, "new"))
    files = {}
    for path in glob.glob(os.path.join(folder, "new.*")):
        with open(path, "rb") as file:
            files[os.path.basename(path)] = file.read()
    return "checked: exact" in said, files


def test_levels_give_the_same_bits(folder):
    if len(levels()) < 2:
        raise tap.Skip("no levels in this build")
    kernels = [k for k in listed("")["kernels"] if k["place"] == "host" and k["operation"] == "step"]
    compared, batch = set(), os.path.join(folder, "b")
    for number, rule in enumerate(r["name"] for r in listed("")["rules"]):
        # Each rule meets one of the workloads in exact mode, and another one in real mode.
        for turn, mode in enumerate(("exact", "real")):
            name, how = list(WORKLOADS.items())[(number + turn) % len(WORKLOADS)]
            spec = f"workload {name}; batch 256; ids zipf; alpha 1; rule {rule}; {how}{TABLES}"
            good("", "embfuse", "gen", "--spec-text", spec, "--mode", mode, "--initial-tables",
                 "--out", batch)
            for k in (k for k in kernels if rule in k["rules"]):
                own = {isa: step(isa, k["name"], batch, folder) for isa in levels()}
                exact, first = own[levels()[0]]
                if not exact and "deterministic" not in k["traits"]:
                    continue  # its bits depend on the order of additions
                compared.add((k["name"], mode))
                assert len(first) >= 7, sorted(first)
                for isa, (_, files) in own.items():
                    other = sorted(f for f in first if files.get(f) != first[f])
                    assert not other, f"{k['name']} {rule} {name} {mode}: {isa} has other bits in {other}"
    want = {(k["name"], mode) for k in kernels for mode in ("exact", "real")
            if mode == "exact" or "deterministic" in k["traits"]}
    assert compared == want, want ^ compared


def test_kernels_use_their_level_and_no_better_one(_):
    for isa, want in (("avx512", {"ymm", "zmm", "VEX", "EVEX"}), ("avx2", {"ymm", "VEX"}), ("plain", set())):
        assert len(compiled(isa)) > 5, isa
        used = set()
        for kernel, path in compiled(isa).items():
            found = code(path)
            # gcc uses all of its level wherever loops are; clang leaves a few rules in scalars.
            assert found <= want and (CLANG or kernel in NO_LOOPS or found == want), f"{kernel}, {isa}: {found}"
            used |= found
        assert used == want, f"{isa}: {used}"


def test_what_kernels_export_names_the_level(_):
    for isa in LEVELS:
        for kernel, path in compiled(isa).items():
            lines = subprocess.run(["nm", "--extern-only", "--defined-only", path], capture_output=True,
                                   text=True, check=True).stdout.splitlines()
            assert lines and all(line.endswith(f"_{isa}") for line in lines), (kernel, lines)


def test_the_rest_runs_on_any_cpu(_):
    compiled("plain")
    paths = [p for part in ("harness", "datasets", "cli")
             for p in glob.glob(os.path.join(glob.escape(BUILD), part, "**", "*.o"), recursive=True)]
    assert len(paths) > 40, paths
    for path in paths:
        assert not code(path), f"{path}: {code(path)}"


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "levels"))
