#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs NVIDIA's compute-sanitizer on the small test programs for a real device, one TAP line for each
# tool and program, as many at once as there are cores. BUILD: the folder with the programs (tests/gpu/verify.sh).
set -u
if ! command -v compute-sanitizer >/dev/null; then
    printf '%s\n' 'ok 1 - compute-sanitizer # SKIP it is not on PATH' 1..1
    exit 0
fi
pairs=$(for t in memcheck racecheck initcheck synccheck; do printf "$t %s\n" 00_example defects; done)
export BUILD
# Poisoned scratch would count as initialised.
echo "$pairs" | xargs -P "$(nproc)" -n 2 sh -c '
    [ "$1" = initcheck ] && export UNPOISONED=1
    log=$BUILD/$1-$2
    compute-sanitizer --tool "$1" --error-exitcode 9 "$BUILD/tests/kernels/tests" "$2" >"$log.log" 2>&1
    echo $? >"$log.status"' one
echo "$pairs" | {
    n=0
    while read -r tool program; do
        n=$((n + 1)) log=$BUILD/$tool-$program
        if [ "$(cat "$log.status")" = 0 ]; then
            echo "ok $n - $tool, $program"
        else
            echo "not ok $n - $tool, $program"
            grep '^=========' "$log.log" | head -n 40 | sed 's/^/# /'
        fi
    done
    echo "1..$n"
}
