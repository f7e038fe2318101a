#!/bin/sh
# SPDX-License-Identifier: MIT
# Device kernels from nvcc's PTX, in tests of every kind: for PTX_ARCHS, some shapes of test_kernels and all of the
# smaller tests; one architecture beside another. make test-ptx runs all. Prints TAP.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() { # ARCH GROUP [TESTS]
    log=$work/$1.log said=$work/$1.said program=$BUILD/ptx/$1/tests
    if [ $# -gt 2 ]; then TESTS=$3 "$program" "$2" >"$log" 2>"$said"; else "$program" "$2" >"$log" 2>"$said"; fi
    status=$?
    grep -E '^(not )?ok ' "$log"
    if [ $? -ne 0 ] || [ "$status" -gt 1 ]; then echo "not ok 0 - $* ended with status $status"; fi
    [ "$status" -eq 0 ] || sed 's/^/# /' "$said"
}

lane() { # ARCH
    for shapes in 'drawn shapes' '*two lookups' 'no *' '*distinct' 'padding *'; do
        DRAWS=24 run "$1" kernels "cuda_*: $shapes"
    done
    run "$1" max
}

for arch in ${PTX_ARCHS:-}; do
    [ -n "${NVCC:-}" ] && [ -x "$BUILD/ptx/$arch/tests" ] || continue
    lane "$arch" >"$work/$arch.tap" &
done
wait
cat "$work"/*.tap >"$work/all" 2>/dev/null || echo 'ok 1 - PTX # SKIP no nvcc, or none for this flavour of the build' >"$work/all"
# Each program counts from 1.
awk '/^(not )?ok / { sub(/ok [0-9]+/, "ok " ++n) } { print } END { print "1.." n }' "$work/all"
