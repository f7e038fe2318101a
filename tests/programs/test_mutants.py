#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of tests/mutants.py on a planted tree: one file, and a test of it that misses some changes."""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import mutants
import mutate
import tap
from tap import ROOT, TESTS

MAKEFILE = """B := build
$(B)/%.o: %.c
\t@mkdir -p $(@D) && $(CC) $(COMMON) -c $< -o $@
$(B)/tests/test_kernels: $(B)/tests/test_kernels.o $(B)/kernels/cpu/planted.o
\t$(CC) $^ -o $@
"""
CODE = """/* a + b: no code */
int planted(const int *x, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        if (x[i] < 0) continue;
        sum += x[i];
    }
    while (sum > 100) sum -= 100;
    return sum;
}
"""
TEST = r"""#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int planted(const int *x, int n);
int main(void) {
    const int x[] = {40, -1, 70, 5};
    if (strcmp(getenv("TESTS"), "planted*") != 0 && strcmp(getenv("TESTS"), "sum") != 0) return 3;
    printf("%sok 1 - sum\n", planted(x, 3) == RIGHT ? "" : "not ");
    return 0;
}
"""
# The planted test tries neither 0 nor 100, nor a second round of the loop.
SURVIVORS = ["5: if (x[i] < 0) continue; ==> if (x[i] < 1) continue;",
             "5: if (x[i] < 0) continue; ==> if (x[i] <= 0) continue;",
             "8: while (sum > 100) sum -= 100; ==> while (sum > 101) sum -= 100;",
             "8: while (sum > 100) sum -= 100; ==> while (sum > 99) sum -= 100;",
             "8: while (sum > 100) sum -= 100; ==> while (sum >= 100) sum -= 100;"]


def plant(folder, reasons="", right=10):
    for path, text in (("Makefile", MAKEFILE), ("kernels/cpu/planted.c", CODE),
                       ("tests/mutants.txt", reasons),
                       ("tests/kernels/test_kernels.c", TEST.replace("RIGHT", str(right)))):
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def run(folder, *args):
    command = [sys.executable, os.path.join(TESTS, "mutants.py"), "--root", folder, "--patience=5", *args]
    plain = os.environ | {"CC": "gcc", "SANITIZE": "", "NATIVE": "1"}  # which loops end depends on the compiler
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=plain)


def equal(got, expected):
    assert got == expected, f"{got!r}, not {expected!r}"


def one_line_error(done, text):
    equal(done.returncode, 1)
    assert text in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_survivors_are_told_and_nothing_else(folder):
    out = os.path.join(folder, "out", "report.txt")
    done = run(plant(folder), "--out", out)  # some of the killed mutants never end
    with open(out, encoding="utf-8") as file:
        lines = file.read().splitlines()
    equal((done.returncode, done.stderr), (1, ""))
    equal([x for x in lines if not x.startswith("#")], [f"kernels/cpu/planted.c:{x}" for x in SURVIVORS])
    equal(done.stdout.splitlines()[-len(lines):], lines)
    assert "killed" in lines[1] and f"{len(SURVIVORS)} survived" in lines[1], lines
    with open(os.path.join(folder, "kernels/cpu/planted.c"), encoding="utf-8") as file:
        equal(file.read(), CODE)


def test_reasons_are_taken(folder):
    reasons = ("# a line\n\n# Nobody passes 0.\n"
               + "".join(f"kernels/cpu/planted.c: {x[3:]}\n" for x in SURVIVORS[:2])
               + "# Hours are\n# not counted.\nkernels/cpu/planted.c: while (sum > 100) sum -= 100; ==> *\n")
    done = run(plant(folder, reasons))
    equal((done.returncode, done.stderr), (0, ""))
    assert "explained" in done.stdout and "survived" not in done.stdout, done.stdout


def test_without_time_nothing_is_tried(folder):
    done = run(plant(folder), "--minutes", "0")
    equal(done.returncode, 1)
    assert ": 0 mutants tried" in done.stdout, done.stdout


def test_bad_input_is_one_line(folder):
    one_line_error(run(plant(folder, right=11)), "test_kernels fails before anything is changed")
    one_line_error(run(plant(folder, "kernels/cpu/planted.c: a ==> b\n")), "tests/mutants.txt:1: ")
    one_line_error(run(plant(folder), "kernels/none*"), "no such file: kernels/none*")


def test_every_reason_is_of_a_line_that_is_there(folder):
    for entry in mutate.read_reasons(os.path.join(ROOT, mutants.REASONS)):
        path, _, change = entry.partition(": ")
        before, _, after = change.partition(mutate.BETWEEN)
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        made = {mutate.entry(m) for m in mutate.mutants_of(path, text) if m.before.strip() == before}
        assert made if after == "*" else entry in made, f"no such mutant any more: {entry}"


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "mutants"))
