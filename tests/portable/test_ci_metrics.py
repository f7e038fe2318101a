#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of tests/ci_metrics.py: its judgement on made-up numbers, with stand-ins for bench, embfuse and valgrind."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import tap
import ci_metrics
import fake_bench
from spoiled import equal

PROGRAM = os.path.join(tap.TESTS, "ci_metrics.py")
# What the stand-ins say: bytes and instructions of two kernels on one workload, and of a forward.
FINE = {"persistent": 4096, "scratch": {"cpu_a": 640, "cpu_b": 128}, "look": 0, "compiler": "gcc 12.2.0", "wrong": "",
        "instructions": {"cpu_a": 1000000, "cpu_b": 5000, "cpu_look": 700}}


def judge(folder, changes=(), *options):
    """Runs the program on stand-ins; its golden file is in the folder."""
    path = os.path.join(folder, "numbers.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(FINE | dict(changes), file)
    for name, kind in (("bench", "bench_numbers"), ("valgrind", "valgrind")):
        fake_bench.install(folder, name, kind, numbers=path)
    tap.script(folder, "embfuse", "#!/bin/sh\n")
    return subprocess.run([sys.executable, PROGRAM, folder, f"--golden={folder}/golden.txt", *options],
                          env=os.environ | {"PATH": folder}, capture_output=True, text=True, check=False)


def recorded(folder):
    """Records the fine numbers in a folder."""
    done = judge(folder, {}, "--renew")
    equal(done.returncode, 0)
    return os.path.join(folder, "golden.txt")


def counts(**changed):
    return {"instructions": FINE["instructions"] | changed}


def told(done, status, *rows):
    """The run ends so, and its table has these rows."""
    equal(done.returncode, status)
    table = [re.split(r"  +", line) for line in done.stdout.splitlines()]
    wanted = [["case", "baseline", "now", "change", "what to do"], *map(list, rows)] if rows else []
    equal([line for line in table if len(line) == 5], wanted)


def failed_in_one_line(done, *words):
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    equal((done.returncode, len(lines)), (1, 1))
    assert all(word in lines[0] for word in words), lines


WORSE, BETTER = "WORSE: mend it, or renew and say why", "better: renew"


def test_what_renew_writes_is_as_recorded(folder):
    path = recorded(folder)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.endswith("# instructions: gcc 12.2.0, glibc 2.36, valgrind-3.19.0, avx2\n"
                         "w forward persistent 4096\n  cpu_look scratch 0 instructions 700\n"
                         "w sgd persistent 4096\n  cpu_a scratch 640 instructions 1000000\n"
                         "  cpu_b scratch 128 instructions 5000\n"), text
    done = judge(folder)
    told(done, 0)
    equal(done.stdout.splitlines()[0], "as recorded: 2 numbers of persistent, 3 of scratch, 3 of instructions within 1 %")


def test_the_committed_file_is_what_renew_writes(_folder):
    found, made_by = ci_metrics.recorded(ci_metrics.GOLDEN)
    equal(ci_metrics.text_of(found, made_by), Path(ci_metrics.GOLDEN).read_text(encoding="utf-8"))
    workloads = set(re.findall(r"(?m)^workload (\S+)", Path(ci_metrics.SPEC).read_text(encoding="utf-8")))
    equal({key[0] for key in found}, workloads)
    for key, own in found.items():
        equal(set(own), {"scratch", "instructions"} if key[2] else {"persistent"})


def test_bytes_are_exact(folder):
    recorded(folder)
    told(judge(folder, {"scratch": {"cpu_a": 641, "cpu_b": 128}}), 3,
         ("w sgd cpu_a scratch", "640", "641", "+0.16 %", WORSE))
    told(judge(folder, {"scratch": {"cpu_a": 639, "cpu_b": 128}}), 4,
         ("w sgd cpu_a scratch", "640", "639", "-0.16 %", BETTER))
    told(judge(folder, {"persistent": 4100}), 3, ("w forward persistent", "4096", "4100", "+0.10 %", WORSE),
         ("w sgd persistent", "4096", "4100", "+0.10 %", WORSE))


def test_instructions_may_move_by_one_percent(folder):
    recorded(folder)
    told(judge(folder, counts(cpu_a=1010000, cpu_b=4950)), 0)
    told(judge(folder, counts(cpu_a=1010001)), 3,
         ("w sgd cpu_a instructions", "1000000", "1010001", "+1.00 %", WORSE))
    told(judge(folder, counts(cpu_b=4900)), 4, ("w sgd cpu_b instructions", "5000", "4900", "-2.00 %", BETTER))
    told(judge(folder, counts(cpu_a=2000000, cpu_b=4900)), 3,
         ("w sgd cpu_a instructions", "1000000", "2000000", "+100.00 %", WORSE),
         ("w sgd cpu_b instructions", "5000", "4900", "-2.00 %", BETTER))


def test_new_kernels_and_lost_ones(folder):
    recorded(folder)
    told(judge(folder, {"scratch": {"cpu_a": 640}}), 4, ("w sgd cpu_b scratch", "128", "-", "-", "gone: renew"),
         ("w sgd cpu_b instructions", "5000", "-", "-", "gone: renew"))


def test_another_compiler_is_judged_by_bytes_alone(folder):
    recorded(folder)
    changed = {"compiler": "gcc 14.2.0"} | counts(cpu_a=1)
    done = judge(folder, changed)
    told(done, 0)
    assert "SKIPPED instructions: recorded with gcc 12.2.0, glibc 2.36, valgrind-3.19.0, avx2; here gcc 14.2.0," in done.stdout


def test_a_wrong_result_is_not_recorded(folder):
    path = recorded(folder)
    before = Path(path).read_text(encoding="utf-8")
    for options in ((), ("--renew",)):
        done = judge(folder, {"wrong": "cpu_a"}, *options)
        equal((done.returncode, done.stdout), (2, "FAILED cpu_a, w, WRONG RESULT: row 3\n"))
        equal(Path(path).read_text(encoding="utf-8"), before)


def test_bad_golden_files_are_one_line(folder):
    path = recorded(folder)
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    for bad in ("  cpu_b scratch 12x8", "  cpu_a scratch 640", "cut"):
        Path(path).write_text("\n".join([*lines[:-1], bad]), encoding="utf-8")
        failed_in_one_line(judge(folder), f"golden.txt:{len(lines)}:", "make ci-metrics-renew")
    os.unlink(path)
    failed_in_one_line(judge(folder), "golden.txt", "make ci-metrics-renew")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ci metrics"))
