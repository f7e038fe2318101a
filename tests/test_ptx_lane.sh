#!/bin/sh
# Device kernels from nvcc's PTX, in tests of every kind: for PTX_ARCHS, some shapes of test_kernels and all of the
# smaller tests. make test-ptx runs all. Prints TAP.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0
run() { # PROGRAM [TESTS]
    log=$work/log
    if [ $# -gt 1 ]; then TESTS=$2 "$1" >"$log" 2>"$work/said"; else "$1" >"$log" 2>"$work/said"; fi
    status=$?
    # Each program counts from 1.
    awk -v n="$n" '/^(not )?ok / { sub(/ok [0-9]+/, "ok " ++n); print }' "$log" >"$work/lines"
    cat "$work/lines"
    found=$(wc -l <"$work/lines")
    n=$((n + found))
    if [ "$found" -eq 0 ] || [ "$status" -gt 1 ]; then
        n=$((n + 1))
        echo "not ok $n - $* ended with status $status"
    fi
    [ "$status" -eq 0 ] || sed 's/^/# /' "$work/said"
}

for arch in ${PTX_ARCHS:-}; do
    at=$BUILD/ptx/$arch/test_ptx${arch}_
    [ -n "${NVCC:-}" ] && [ -x "${at}kernels" ] || continue
    for shapes in 'dim *' '*two lookups' 'no *' 'last *' '*weighted' '*padding' 'whole rows of *' 'max, dim *' 'max, empty bags'; do
        run "${at}kernels" "cuda_*: $shapes"
    done
    for program in device_index forward gradient max weight_grad; do run "$at$program"; done
done
[ $n -gt 0 ] || { n=1 && echo 'ok 1 - PTX # SKIP no nvcc, or none for this flavour of the build'; }
echo "1..$n"
