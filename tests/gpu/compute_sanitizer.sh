#!/bin/sh
# Runs NVIDIA's compute-sanitizer on the small test programs for a real device, one TAP line for each
# tool and program. BUILD: the folder with the programs (tests/gpu_verify.sh).
set -u
n=0
for tool in memcheck racecheck initcheck synccheck; do
    for program in test_00_example test_defects; do
        n=$((n + 1))
        if ! command -v compute-sanitizer >/dev/null; then
            echo "ok $n - $tool, $program # SKIP no compute-sanitizer on PATH"
            continue
        fi
        log=$BUILD/$tool-$program.log
        # Poisoned scratch would count as initialised.
        [ $tool = initcheck ] && export UNPOISONED=1
        if compute-sanitizer --tool $tool --error-exitcode 9 "$BUILD/tests/$program" >"$log" 2>&1; then
            echo "ok $n - $tool, $program"
        else
            echo "not ok $n - $tool, $program"
            grep '^=========' "$log" | head -n 40 | sed 's/^/# /'
        fi
        unset UNPOISONED
    done
done
echo "1..$n"
