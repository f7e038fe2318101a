#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/studies/compilers.py: whole runs with stand-ins for make, the compilers and what they build."""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, ROOT, script, tool
import compilers
import fake_studies
import results
from program import ResultError
from spoiled import equal, one_line_error


def run(folder, *args, **told):
    """A run with stand-ins for make and for three compilers."""
    make = fake_studies.install(folder, "make", "make_compilers", log=os.path.join(folder, "log"), **told)
    for name in ("gcc", "clang", "icx"):
        script(folder, name, "#!/bin/sh\n")
    out = os.path.join(folder, "out")
    return out, subprocess.run(
        [sys.executable, tool("compilers.py"), *args, "--make", make, "--builds",
         os.path.join(folder, "builds"), "--out", out], text=True, cwd=ROOT, capture_output=True,
        check=False, env=os.environ | {"PATH": folder + os.pathsep + os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"})


def calls(folder):
    return [(who, given) for who, _, given in fake_studies.calls(os.path.join(folder, "log"))]


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
    try:
        compilers.table(results.load(GOLDEN))
    except ResultError as e:
        assert "not a result of several compilers" in str(e)
    else:
        raise AssertionError("a result of one compiler has a table")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "compilers"))
