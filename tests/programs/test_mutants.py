#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of tests/mutants.py on a planted tree: one file, and a test of it that misses some changes."""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from spoiled import equal, one_line_error

MAKEFILE = """B := build
$(B)/%.o: %.c
\t@mkdir -p $(@D) && $(CC) $(COMMON) -c $< -o $@
$(B)/tests/unit/tests $(B)/tests/kernels/tests: $(B)/tests/kernels/test_kernels.o $(B)/harness/workload/planted.o
\t@mkdir -p $(@D) && $(CC) $^ -o $@
"""
CODE = """/* a + b: no code */
int planted(const int *x, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        if (x[i] < 0) continue;
        sum += x[i];
    }
    return sum;
}
"""
TEST = r"""#include <stdio.h>
int planted(const int *x, int n);
int main(void) {
    const int x[] = {40, -1, 70, 5};
    printf("%sok 1 - sum\n", planted(x, 3) == RIGHT ? "" : "not ");
    return 0;
}
"""
# The planted test does not try 0.
SURVIVORS = ["5: if (x[i] < 0) continue; ==> if (x[i] < 1) continue;",
             "5: if (x[i] < 0) continue; ==> if (x[i] <= 0) continue;"]


def run(folder, *args, right=110):
    for path, text in (("Makefile", MAKEFILE), ("harness/workload/planted.c", CODE),
                       ("tests/kernels/test_kernels.c", TEST.replace("RIGHT", str(right)))):
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(text)
    command = [sys.executable, os.path.join(tap.TESTS, "mutants.py"), "--root", folder, "--patience=5", "--jobs=2", *args]
    plain = os.environ | {"CC": "gcc", "SANITIZE": "", "NATIVE": "1"}  # which loops end depends on the compiler
    return subprocess.run([*command, "harness/*/*.c"], capture_output=True, text=True, check=False, env=plain)


def test_survivors_are_told_and_nothing_else(folder):
    out = os.path.join(folder, "out", "report.txt")
    done = run(folder, "--out", out)  # some of the killed mutants never end
    with open(out, encoding="utf-8") as file:
        lines = file.read().splitlines()
    equal((done.returncode, done.stderr), (0, ""))
    equal(lines[1:], [f"harness/workload/planted.c:{x}" for x in SURVIVORS])
    assert "killed" in lines[0] and f"{len(SURVIVORS)} survived" in lines[0], lines


def test_a_test_that_fails_before_anything_is_changed(folder):
    one_line_error(run(folder, right=111), "fails before anything is changed")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "mutants"))
