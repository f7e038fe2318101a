#!/bin/sh
# SPDX-License-Identifier: MIT
# Tests the Makefile: what each target builds, odd names, and several makes at once. Prints TAP; runs from the
# suite's root with BUILD set (tests/run.sh).
set -u
work=$BUILD/tests/make
rm -rf "$work"
mkdir -p "$work"
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
clean_make() { # as a user starts it, without the variables of the make that runs this test
    env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory CC=gcc NATIVE=1 SANITIZE= "$@"
}
plan() { # the commands of a build from scratch
    clean_make -n B="$work/none" NVCC=/no/nvcc CUDA_ARCHS=90 "$@" 2>/dev/null >"$work/plan"
}
with_nvcc() {
    grep -q '/no/nvcc.* -c ' "$work/plan"
}
builds() { # what the plan of tests builds
    sed -n 's/^make --no-print-directory -j[0-9]* //p' "$work/plan" | xargs
}

# --- device kernels: nvcc takes minutes for them
for asked in all 'bench DEVICES=' 'bench DEVICES=/dev/null PLACE=host'; do
    plan $asked && grep -q 'gcc .* -c harness/measure/measure.c' "$work/plan" && ! with_nvcc
    ok $? "$asked does without nvcc"
done
plan test && builds | grep -q "$work/none/bench" && ! builds | grep -q /cuda/
ok $? 'test does without nvcc'
for asked in cuda 'bench DEVICES=/dev/null' 'bench DEVICES= PLACE=device'; do
    plan $asked && with_nvcc
    ok $? "$asked has the device kernels"
done

# --- ONLY
plan test ONLY=zipf && [ "$(builds)" = "$work/none/tests/unit/tests" ] && grep -q 'run.sh .*/tests/unit/tests:zipf *$' "$work/plan"
ok $? 'ONLY builds the suite of a test alone'
clean_make test ONLY=no_such_test >/dev/null 2>"$work/stderr"
[ $? -ne 0 ] && grep -q 'no test is called no_such_test' "$work/stderr"
ok $? 'ONLY that matches nothing fails'

# --- names with blanks and quotes
odd="$work/it's odd"
for target in bench ladder peers serving; do
    plan $target OUT="$odd" && grep -v '^missing=' "$work/plan" >"$work/commands" && sh -n "$work/commands" &&
        grep -qF "it'\\''s odd" "$work/commands"
    ok $? "$target takes an OUT with a blank and a quote"
done
clean_make DEVICES= OUT="$odd" MODES=cold REPS=1 RING=1 BATCH=64 ROWS=1000 DIMS=8 THREADS=1 PLACE=host \
    FILTER='/cpu_(sort|fused)/' bench >"$work/stdout" 2>"$work/stderr" &&
    [ -s "$odd/bench.json" ] && [ -d "$odd/plots" ] && grep -q cpu_fused "$work/stdout" &&
    clean_make RESULT="$odd/bench.json" table 2>"$work/stderr" | grep -q cpu_fused
ok $? 'bench measures and draws there, and table reads it'

# --- several makes in one folder
failures=0 makes=
for i in 1 2 3 4; do
    clean_make NVCC= B="$work/many" "$work/many/kernel_list.inc" "$work/many/build_info.h" \
        "$work/many/gpu_verified.inc" "$work/many/harness/error.o" >"$work/many.$i" 2>&1 &
    makes="$makes $!"
done
for pid in $makes; do wait "$pid" || failures=$((failures + 1)); done
[ $failures -eq 0 ] && [ "$(ls "$work/many" "$work/many/harness" | grep -c '\.[0-9]')" -eq 0 ]
ok $? 'four makes at once in one folder'

echo "1..$n"
