#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs tests, which print TAP: scripts, and programs of groups, all of them or one. At the end come the ten that took
# most CPU seconds, and the totals.
# Usage: BUILD=build tests/run.sh tests/programs/test_cli.py build/tests/unit/tests build/tests/kernels/tests:forward ...
# Two run at a time (JOBS=1: one), because much of a run is serial. Results appear in the order of the
# arguments. BUDGET=file: CPU seconds of tests; those that take half as much again fail.
set -u
passed=0 failed=0 skipped=0
export CMOCKA_MESSAGE_OUTPUT=TAP
export BUILD=${BUILD:-build}
export PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$(dirname "$0")/support${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
# Tests run more threads than there are cores, so a waiting thread must not spin.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
# Tests run a bench hundreds of times. Before each sample it visits twice the last-level cache, which takes a second on
# machines with hundreds of MiB.
export EMBFUSE_CACHE_MIB=${EMBFUSE_CACHE_MIB:-16}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1}
prefix=
if [ "${SANITIZE:-}" = thread ]; then
    # Archer in clang's libomp tells ThreadSanitizer what OpenMP synchronises. Address space
    # randomisation is off, because the shadow mapping fails with a high-entropy layout.
    OMP_TOOL_LIBRARIES=$(ls /usr/lib/llvm-*/lib/libarcher.so 2>/dev/null | tail -n 1)
    [ -n "$OMP_TOOL_LIBRARIES" ] || { echo 'run.sh: libarcher.so is missing; install libomp-dev' >&2; exit 1; }
    export OMP_TOOL_LIBRARIES
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1 ${TSAN_OPTIONS:-}"
    prefix='setarch -R'
fi
logs=${LOGS:-$(mktemp -d)} # LOGS=folder keeps what every program printed
mkdir -p "$logs"
[ -n "${LOGS:-}" ] || trap 'rm -rf "$logs"' EXIT

# The name of a test: unit for all groups of a program, unit-zipf for one, programs-cli.py for a script. Tests of an extra
# lie in extras/NAME/tests/.
name_of() {
    folder=${1%/*} test=${1##*[:/]}
    case $folder in *extras/*/tests) folder=${folder%/tests} ;; esac
    folder=${folder##*/} test=${test#test_}
    [ "$test" = tests ] && echo "$folder" || echo "$folder-$test"
}

# CPU seconds of a shell's children, from what its `times` printed.
spent() { # FILE
    awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] } } END { printf "%d", s + 0.5 }' "$1"
}

# Runs one test: its output goes to $logs/NAME.tap, and at its end status, seconds and CPU seconds go to
# NAME.status.
run() {
    name=$(name_of "$1") begin=$(date +%s)
    times >"$logs/$line.before" # not in a subshell, which has no children
    # Tests and a running bench do not wait for each other.
    export EMBFUSE_LOCK="$logs/$name.lock"
    # An emulated thread that ThreadSanitizer knows nothing of costs 16 us, not 3: two have such threads.
    case $name in kernels-kernels | tests-emulation) unset EMULATION_RENEW ;; *) export EMULATION_RENEW=0 ;; esac
    case $1 in
    *.py) $prefix "${PYTHON:-/usr/bin/python3}" "$1" ;;
    *.sh) $prefix sh "$1" ;;
    *:*) $prefix "${1%:*}" "${1#*:}" ;;
    *) $prefix "$1" ;;
    esac >"$logs/$name.tap" 2>&1 &
    running=$!
    wait $running
    status=$?
    times >"$logs/$line.after"
    echo $status $(($(date +%s) - begin)) $(($(spent "$logs/$line.after") - $(spent "$logs/$line.before"))) >"$logs/$name.new"
    mv "$logs/$name.new" "$logs/$name.status"
}

# Prints the first lines of its input, which mostly say what is wrong, and the last ones.
ends() { # FIRST LAST
    awk -v first="$1" -v last="$2" 'NR <= first { print; next } { kept[NR % last] = $0 }
        END { left = NR - first - last
              if (left > 0) printf "... %d lines left out; LOGS=folder keeps all\n", left
              for (i = left > 0 ? NR - last + 1 : first + 1; i <= NR; i++) print kept[i % last] }'
}

tell() {
    name=$(name_of "$1")
    log=$logs/$name.tap
    read -r status seconds cpu <"$logs/$name.status"
    sed -i 's|^not ok \(.*# SKIP\)|ok \1|' "$log" # cmocka 1.1.5 prints a skip as not ok
    ok=$(grep -c '^ok ' "$log")
    skip=$(grep -ci '^ok .*# *skip' "$log")
    bad=$(grep -c '^not ok ' "$log")
    # A plan of no tests: this build has nothing that they test.
    if [ "$ok" -eq 0 ] && [ "$status" -eq 0 ] && grep -q '^1\.\.0' "$log"; then
        echo "ok 0 - $name # SKIP nothing of this build" >>"$log"
        ok=1 skip=1
    fi
    # A program that died or printed no result has failed, whatever else it printed.
    if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$ok" -eq 0 ]; }; then bad=1; fi
    most=$(sed -n "s/^$name  *//p" "${BUDGET:-/dev/null}")
    if [ -n "$most" ] && [ "$cpu" -gt $((most + most / 2)) ]; then
        echo "# $name took $cpu s of CPU time; $BUDGET allows $most and a half more" >>"$log"
        bad=$((bad + 1))
    fi
    passed=$((passed + ok - skip)) failed=$((failed + bad)) skipped=$((skipped + skip))
    printf '%-40s %4d passed, %d failed, %d skipped, %d s\n' "$name" $((ok - skip)) "$bad" "$skip" "$seconds"
    echo "$cpu $name" >>"$logs/seconds"
    if [ "$bad" -gt 0 ]; then
        printf -- '--- %s (exit status %d)\n' "$1" "$status"
        grep -v '^ok ' "$log" | ends 40 20
    else
        grep -i '^ok .*# *skip' "$log" | sed 's/^/    /'
    fi
}

# Several lines take the next test from a common queue.
rm -rf "$logs"/*.status "$logs"/*.taken "$logs/seconds"
line() {
    line=$1 running=
    shift
    trap 'kill $running 2>/dev/null; exit 1' TERM
    for t in "$@"; do
        mkdir "$logs/$(name_of "$t").taken" 2>/dev/null && run "$t"
    done
}
lines=
for i in $(seq "${JOBS:-2}"); do
    line "$i" "$@" &
    lines="$lines $!"
done
trap 'kill $lines 2>/dev/null; [ -n "${LOGS:-}" ] || rm -rf "$logs"; exit 1' INT TERM
for t in "$@"; do
    until [ -e "$logs/$(name_of "$t").status" ]; do sleep 0.1; done
    tell "$t"
done
wait
rm -rf "$logs"/*.taken "$logs"/*.before "$logs"/*.after
reasons=$(sed -n 's/^ok [0-9]* - .*# *SKIP  *//p' "$logs"/*.tap | sort | uniq -c | sort -rn)
if [ -n "$reasons" ]; then
    printf 'skipped, and why (make deps installs packages, make peers PyTorch; nvcc comes with CUDA):\n%s\n' "$reasons"
fi
if [ $# -gt 10 ]; then
    echo 'most CPU seconds:'
    sort -rn "$logs/seconds" | head -n 10 | sed 's/^/    /'
fi
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed -eq 0 ]
