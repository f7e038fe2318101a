#!/bin/sh
# Runs test programs and scripts, each of which prints TAP, and closes with the totals, alone on the
# last line. Usage: BUILD=build tests/run.sh PROGRAM...
set -u
passed=0 failed=0 skipped=0
export CMOCKA_MESSAGE_OUTPUT=TAP
export BUILD=${BUILD:-build}
# Tests run more threads than there are cores: who waits must not spin.
export OMP_WAIT_POLICY=passive
# Tests ask for more threads than there are cores; those that wait must not take the others' time.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1}
prefix=
if [ "${SANITIZE:-}" = thread ]; then
    # clang's libomp with Archer tells ThreadSanitizer what OpenMP synchronises; without address
    # space randomisation, because its shadow mapping does not survive a high-entropy layout.
    OMP_TOOL_LIBRARIES=$(ls /usr/lib/llvm-*/lib/libarcher.so 2>/dev/null | tail -n 1)
    [ -n "$OMP_TOOL_LIBRARIES" ] || { echo 'run.sh: libarcher.so is missing; install libomp-dev' >&2; exit 1; }
    export OMP_TOOL_LIBRARIES
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1 ${TSAN_OPTIONS:-}"
    prefix='setarch -R'
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for t in "$@"; do
    case $t in
    *.py) $prefix "${PYTHON:-/usr/bin/python3}" "$t" >"$log" 2>&1 ;;
    *.sh) $prefix sh "$t" >"$log" 2>&1 ;;
    *) $prefix "$t" >"$log" 2>&1 ;;
    esac
    status=$?
    sed -i 's|^not ok \(.*# SKIP\)|ok \1|' "$log" # cmocka 1.1.5 prints a skip as not ok
    ok=$(grep -c '^ok ' "$log")
    skip=$(grep -ci '^ok .*# *skip' "$log")
    bad=$(grep -c '^not ok ' "$log")
    # A program that died, or said nothing, has failed whatever it printed before.
    if [ "$bad" -eq 0 ] && { [ $status -ne 0 ] || [ "$ok" -eq 0 ]; }; then bad=1; fi
    passed=$((passed + ok - skip)) failed=$((failed + bad)) skipped=$((skipped + skip))
    printf '%-40s %4d passed, %d failed, %d skipped\n' "$(basename "$t")" $((ok - skip)) "$bad" "$skip"
    if [ "$bad" -gt 0 ]; then
        printf -- '--- %s (exit status %d)\n' "$t" $status
        grep -v '^ok ' "$log" | tail -n 60
    else
        grep -i '^ok .*# *skip' "$log" | sed 's/^/    /'
    fi
done
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed -eq 0 ]
