#!/bin/sh
# SPDX-License-Identifier: MIT
# Both programs on the emulation of CUDA: what they say about device kernels, a device that breaks, and a
# missing device. Prints TAP; runs from the suite's root with BUILD set (tests/run.sh).
set -u
bench=$BUILD/emulated/bench
embfuse=$BUILD/emulated/embfuse
work=$BUILD/tests/device_programs
rm -rf "$work"
mkdir -p "$work"
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$work/stderr"; fi
}
count() { # LINES PATTERN FILE
    [ "$(grep -c -- "$2" "$3")" -eq "$1" ]
}

kernels=$("$embfuse" list --json | sed -n 's/.*"name": "\([a-z0-9_]*\)", "family": "[a-z_]*", "operation": "step", "place": "device".*/\1/p')
first=$(echo "$kernels" | head -n 1)
if [ -z "$first" ]; then
    echo 'ok 1 - kernels of a device # SKIP there are none'
    echo '1..1'
    exit
fi
tiny='--modes=cold --reps=1 --ring=1 --batch=64 --rows=1000 --dims=8 --rule=sgd'
both="$first|cpu_sort"

"$bench" $tiny --filter="$both" --out="$work/emulated" 2>"$work/stderr"
[ $? -eq 0 ] && count 1 "$first: the device is emulated" "$work/stderr" &&
    count 0 "kernel=$first " "$work/emulated/bench.json" &&
    count 1 'kernel=cpu_sort .*place=host ' "$work/emulated/bench.json" &&
    grep -q '"emb_gpu": "emulated' "$work/emulated/bench.json" && count 0 replay "$work/emulated/bench.json"
ok $? 'an emulated kernel has no time and no row'

# write_entries is a CUDA kernel of cuda_fused (kernels/device/sorted.cuh), check_offsets is of the harness.
EMULATION_FAIL_LAUNCH=write_entries "$bench" $tiny --alpha='0 1' --filter="cpu_sort|cuda_fused/" --out="$work/lost" 2>"$work/stderr"
[ $? -eq 2 ] && count 1 'not run: .*: DEVICE ERROR: cuda_fused, ' "$work/stderr" &&
    count 1 'the device is lost to an earlier error' "$work/stderr" &&
    count 2 '"label": .*kernel=cpu_sort ' "$work/lost/bench.json" &&
    count 0 'kernel=cuda_fused ' "$work/lost/bench.json"
ok $? 'a kernel that breaks the device: told once, exit status 2, the others are measured'

EMULATION_FAIL_LAUNCH=check_offsets "$bench" $tiny --alpha='0 1' --filter="$both" --out="$work/broken" 2>"$work/stderr"
[ $? -eq 2 ] && count 1 'DEVICE ERROR: checking offsets: ' "$work/stderr" && count 2 'not run: ' "$work/stderr" &&
    count 2 '"label": .*kernel=cpu_sort ' "$work/broken/bench.json"
ok $? 'a device that is broken: the same'

EMULATION_CAPACITY=100000 "$bench" $tiny --filter="$both" --out="$work/small" 2>"$work/stderr"
[ $? -eq 0 ] && count 1 'not run: zipf, device kernels: needs .* GiB of device memory' "$work/stderr" &&
    count 1 '"label": .*kernel=cpu_sort ' "$work/small/bench.json"
ok $? 'a device that is too small: said with figures, the host is measured'

"$embfuse" gen datasets/smoke.spec --workload sequence --initial-tables --out "$work/b" >/dev/null 2>"$work/stderr"
for k in $kernels; do
    "$embfuse" step --kernel "$k" --rule sgd --steps 2 --batch "$work/b" --out "$work/$k" >"$work/stdout" 2>"$work/stderr"
    [ $? -eq 0 ] && grep -q ', checked: ' "$work/stdout"
    ok $? "step on the device: $k"
done
"$embfuse" step --kernel cpu_sort --rule sgd --steps 2 --batch "$work/b" --out "$work/cpu" >/dev/null 2>"$work/stderr"
cmp "$work/cpu.weight.2.npy" "$work/cuda_fused.weight.2.npy" 2>>"$work/stderr"
ok $? 'it writes the bits that a kernel of the host does'

EMULATION_FAIL_LAUNCH=_ "$embfuse" step --kernel cuda_fused --rule sgd --batch "$work/b" --out "$work/none" >/dev/null 2>"$work/stderr"
[ $? -eq 1 ] && [ "$(wc -l <"$work/stderr")" -eq 1 ] && [ ! -e "$work/none.weight.0.npy" ]
ok $? 'step with a broken device: one line, nothing written'

if [ -x "$BUILD/bench" ] && ! nvidia-smi >/dev/null 2>&1; then
    "$BUILD/bench" $tiny --place=device --out="$work/no" >"$work/stdout" 2>"$work/stderr"
    [ $? -eq 1 ] && [ "$(wc -l <"$work/stderr")" -eq 1 ] &&
        grep -q 'bench: device kernels not measured: no CUDA device: ' "$work/stderr"
    ok $? 'device kernels without a device: one line'
fi
echo "1..$n"
