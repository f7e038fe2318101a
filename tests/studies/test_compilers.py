#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of studies/compilers.py: the table on synthetic samples, and whole runs with stand-ins for
make, the compilers and what they build."""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, ROOT, script, tool
import compilers
import fake_bench
import results
from spoiled import equal, made_up, one_line_error, series

def run(folder, *args, **told):
    """A run with stand-ins for make and for three compilers."""
    make = fake_bench.install(folder, "make", "make_compilers", log=os.path.join(folder, "log"), **told)
    for name in ("gcc", "clang", "icx"):
        script(folder, name, "#!/bin/sh\n")
    out = os.path.join(folder, "out")
    return out, subprocess.run(
        [sys.executable, tool("compilers.py"), *args, "--make", make, "--builds",
         os.path.join(folder, "builds"), "--out", out], text=True, cwd=ROOT, capture_output=True,
        check=False, env=os.environ | {"PATH": folder + os.pathsep + os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"})


def calls(folder):
    return [(who, given) for who, _, given in fake_bench.calls(os.path.join(folder, "log"))]


def synthetic(folder, times):
    """The table of a saved result: {kernel@compiler: milliseconds of a thousand lookups}."""
    path = made_up(folder, "r", *(series("w", k, [1e3 * ms for ms in samples]) for k, samples in times.items()),
                   emb_var_COMPILERS="gcc clang")
    return {x.split(" | ")[1]: x.strip("| ").split(" | ") for x in compilers.table(results.load(path))
            if x.startswith("| w |")}


def test_ratios_and_what_is_within_noise(folder):
    base = [1.00, 1.01, 0.99, 1.02, 0.98]
    lines = synthetic(folder, {
        "slow@gcc": base, "slow@clang": [2 * x for x in base],
        "fast@gcc": base, "fast@clang": [0.5 * x for x in base],
        "same@gcc": base, "same@clang": [x + 0.01 for x in base],
        "noisy@gcc": base, "noisy@clang": [0.9, 1.5, 1.1, 0.8, 1.3],
        "few@gcc": base[:2], "few@clang": [2.0, 2.01], "alone@gcc": base})
    equal(lines["slow"], ["w", "slow", "1000", "1.0", "2000", "1.0", "2.00"])
    equal(lines["fast"][4:], ["500", "1.0", "0.50"])
    equal(lines["same"][-1], "=")
    equal(lines["noisy"][-1], "1.10 ?")
    equal(lines["few"][-1], "2.00 ?")
    equal(lines["alone"][4:], ["-", "-", "-"])


def test_compilers_take_turns_and_all_samples_are_kept(folder):
    out, done = run(folder, "gcc", "clang", "icx", "--reps=5")
    equal((done.returncode, done.stderr.count("round 5 of 5")), (0, 3))
    order = [c for c, _ in calls(folder)]
    equal(order, (["gcc", "clang", "icx", "icx", "clang", "gcc"] * 3)[:15])
    equal({(g["reps"], g["place"], g["modes"], g["rule"]) for _, g in calls(folder)},
          {("1", "host", "cold", "rowwise_adagrad")})
    result = results.load(os.path.join(out, "bench.json"))
    equal([(s.kernel.name, len(s.samples)) for s in result.series][:3],
          [("cpu_a@gcc", 5), ("cpu_b@gcc", 5), ("cpu_a@clang", 5)])
    equal(list(result.kernels), [f"cpu_{k}@{c}" for k in "ab" for c in ("gcc", "clang", "icx")])
    equal(result.context["emb_compiler"], "gcc 1.0; clang 1.0; icx 1.0")
    assert "| w | cpu_a | 1000 | 0.0 | 2000 | 0.0 | 2.00 | 2000 | 0.0 | 2.00 |" in done.stdout, done.stdout
    assert "clang/gcc, geometric mean of the workloads: cpu_a 2.00, cpu_b 2.00; all 2.00" in done.stdout
    equal(done.stdout.strip().splitlines()[-1], "- same bits: 16 results")  # 2 kernels, 2 rules, 4 batches


def test_other_bits_are_found_and_change_the_status(folder):
    _, done = run(folder, "gcc", "clang", "--reps=1", differs=("clang", "cpu_b", "adam"))
    equal(done.returncode, 2)
    equal([x for x in done.stdout.splitlines() if "bits" in x.lower()],
          ["- OTHER BITS: cpu_b, clang and gcc: 4 results, such as adam ragged/alpha:1 weight.1.npy"])
    _, done = run(folder, "gcc", "clang", "--reps=1", differs=("clang", "cpu_b", "adam"), check="bound")
    equal(done.returncode, 0)
    assert "same bits: 0 results" in done.stdout
    _, done = run(folder, "gcc", "clang", "--reps=2", wrong=True)
    equal(done.returncode, 2)
    assert "| w | cpu_b | 1000 | 0.0 | - | - | - |" in done.stdout, done.stdout  # it has no time
    assert "FAILED cpu_b@clang on w: WRONG RESULT: row 3" in done.stdout


def test_bad_input_is_one_line(folder):
    for args, words in (((), ["name two or more"]), (("gcc",), ["COMPILERS='gcc'"]),
                         (("gcc", "gcc"), ["each once"]), (("gcc", "no-such-cc"), ["no 'no-such-cc'"]),
                         (("gcc", "clang", "--reps=many"), ["REPS: 'many'", "1 to 1000"]),
                         (("gcc", "clang", "--rule=none"), ["bench: unknown rule 'none'"])):
        one_line_error(run(folder, *args)[1], "compilers.py: ", *words)
    one_line_error(run(folder, "gcc", "clang", broken="clang")[1], "clang could not build")
    one_line_error(run(folder, "--table", GOLDEN)[1], "not a result of several compilers")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "compilers"))
