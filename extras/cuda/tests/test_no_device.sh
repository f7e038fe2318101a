#!/bin/sh
# SPDX-License-Identifier: MIT
# The programs with device kernels, on a machine without a device: they start, say so in one line, and
# do what they can. Prints TAP; runs from the suite's root with BUILD set (tests/run.sh).
set -u
bin=$BUILD/cuda
work=$BUILD/tests/no_device
rm -rf "$work"
mkdir -p "$work"
export CUDA_VISIBLE_DEVICES=-1 # hides a device if there is one
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/# /' "$work/stderr"
    fi
}

if [ ! -x "$bin/embfuse" ]; then
    echo "ok 1 - without a device # SKIP no $bin/embfuse: make cuda builds it with nvcc"
    echo 1..1
    exit 0
fi
tiny='--modes=cold --reps=1 --ring=1 --batch=64 --rows=1000 --dims=8 --rule=sgd'

"$bin/bench" --out="$work/all" $tiny --filter='sort' >"$work/stdout" 2>"$work/stderr"
status=$?
[ $status -eq 0 ] && [ "$(grep -c 'no CUDA device: ' "$work/stderr")" -eq 1 ] &&
    grep -q 'kernel=cpu_sort' "$work/all/bench.json" && ! grep -q 'kernel=cuda_sort' "$work/all/bench.json"
ok $? 'bench says in one line that there is no device, and measures the CPU kernels'

"$bin/bench" --out="$work/device" $tiny --place=device >"$work/stdout" 2>"$work/stderr"
status=$?
[ $status -eq 1 ] && [ "$(wc -l <"$work/stderr")" -eq 1 ] && [ ! -e "$work/device/bench.json" ] &&
    grep -q 'no CUDA device: ' "$work/stderr"
ok $? 'asked for device kernels alone it stops, with status 1'

"$bin/embfuse" gen datasets/smoke.spec --workload sequence --initial-tables \
    --out "$work/b" >/dev/null 2>"$work/stderr" &&
    "$bin/embfuse" step --kernel cuda_sort --batch "$work/b" --out "$work/new" >"$work/stdout" 2>"$work/stderr"
status=$?
[ $status -eq 1 ] && [ "$(wc -l <"$work/stderr")" -eq 1 ] && grep -q 'no CUDA device: ' "$work/stderr"
ok $? 'a step of a device kernel is refused in one line'
echo "1..$n"
