#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the tests of device kernels on a real device and records the run. A kernel counts as verified on a
# GPU only with such a record; without one it is verified on the emulation of CUDA. One program at a time: some look
# at the free memory of the device.
# Usage: BUILD=build/gpu OUT=build/results tests/gpu/verify.sh PROGRAM...
set -u
facts=$("$BUILD/tests/gpu/device_facts") || exit 1
driver=$(sed -n 's/^NVRM version:.* \([0-9][0-9]*\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)
export LOGS=$BUILD/logs
rm -rf "$LOGS"
JOBS=1 tests/run.sh "$@" tests/gpu/compute_sanitizer.sh >"$BUILD/summary.txt"
status=$?
mkdir -p "$OUT"
record=$OUT/gpu-verify.txt
{
    echo 'Tests of device kernels on a real device (make gpu-verify)'
    echo
    echo "date: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo "commit: $(git rev-parse HEAD 2>/dev/null)$([ -z "$(git status --porcelain 2>/dev/null)" ] || echo ', with changes')"
    echo "$facts"
    echo "driver: ${driver:-unknown}"
    echo "result: $(tail -n 1 "$BUILD/summary.txt")"
    echo
    cat "$BUILD/summary.txt"
    for log in "$LOGS"/*.tap; do
        echo
        echo "--- $(basename "$log" .tap)"
        cat "$log"
    done
} >"$record.new" && mv "$record.new" "$record"
cat "$BUILD/summary.txt"
echo "$record"

# Lines for reports/results/gpu-verified.txt. A kernel passes if a test of its name passed and none failed: on a device
# that cannot run it, all are skipped. No kernel passes if a program died or compute-sanitizer found something.
verified=$OUT/gpu-verified.txt
rm -f "$verified"
fact() { echo "$facts" | sed -n "s/^$1: *//p"; }
if grep -hs '^not ok' "$LOGS"/*.tap | grep -vq '^not ok [0-9]* - [a-z0-9_]*: '; then
    echo 'no kernel counts as verified: a test failed that is not of a single kernel'
elif grep -q '(exit status 1[2-9][0-9])' "$BUILD/summary.txt"; then
    echo 'no kernel counts as verified: a test program died'
else
    for k in $(fact kernels); do
        grep -hs "^ok [0-9]* - $k: " "$LOGS"/*.tap | grep -qv '# *SKIP' || continue
        grep -hqs "^not ok [0-9]* - $k: " "$LOGS"/*.tap ||
            echo "$k | $(fact device) | ${driver:-unknown} | $(date -u +%F) | $(git rev-parse --short HEAD 2>/dev/null)" >>"$verified"
    done
    [ ! -e "$verified" ] || echo "add the lines of $verified to reports/results/gpu-verified.txt"
fi
exit $status
