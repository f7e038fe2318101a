#!/bin/sh
# make gpu-record, without a GPU: what it says and packs. Prints TAP; runs from the suite's root with BUILD set
# (tests/run.sh).
set -u
work=$BUILD/tests/gpu_record
rm -rf "$work"
mkdir -p "$work"
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$work/said"; fi
}

env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory gpu-record DEVICES= OUT="$work/none" >"$work/out" 2>"$work/said"
[ $? -eq 2 ] && [ "$(grep -vc '^make' "$work/said")" -eq 1 ] && grep -q '^gpu-record: no CUDA device: ' "$work/said" &&
    [ ! -e "$work/none" ]
ok $? 'without a device it says so in one line'

# In place of make: writes what gpu-verify and bench-gpu would write, and ends as $work/TARGET.status says.
cat >"$work/make" <<'MAKE'
#!/bin/sh
target=$2
for word in "$@"; do
    case $word in OUT=*) out=${word#OUT=} ;; esac
done
echo "$@" >>"$WORK/calls"
status=$(cat "$WORK/$target.status")
[ "$status" -eq 9 ] && exit 1
mkdir -p "$out/gpu"
if [ "$target" = gpu-verify ]; then
    printf '%s\n' 'date: 2026-01-02T03:04:05Z' 'device: Some GPU-8 (rev 2)' 'driver: 550.54.15' >"$out/gpu-verify.txt"
else
    echo '{}' >"$out/gpu/bench.json"
fi
exit "$status"
MAKE
chmod +x "$work/make"
export WORK="$work"
record() { # STATUS OF gpu-verify, OF bench-gpu
    echo "$1" >"$work/gpu-verify.status"
    echo "$2" >"$work/bench-gpu.status"
    rm -rf "$work/odd place" "$work/calls"
    MAKE="$work/make" OUT="$work/odd place" tests/cuda/gpu/record.sh CUDA_ARCHS=75 >"$work/out" 2>"$work/said"
}
name=some-gpu-8-rev-2-550.54.15-2026-01-02
archive="$work/odd place/$name.tar.gz"

record 0 0
[ $? -eq 0 ] && [ "$(tail -n 1 "$work/out")" = "$archive" ] && [ ! -s "$work/said" ] &&
    tar -tzf "$archive" | grep -q "^$name/gpu-verify.txt$" && tar -tzf "$archive" | grep -q "^$name/gpu/bench.json$" &&
    [ "$(grep -c 'CUDA_ARCHS=75$' "$work/calls")" -eq 2 ]
ok $? 'both records are packed under the names of device, driver and day'

record 1 0
[ $? -eq 1 ] && grep -q '^gpu-record: gpu-verify failed$' "$work/said" && tar -tzf "$archive" | grep -q gpu/bench.json
ok $? 'a test that fails: status 1, and the archive has what there is'

record 0 2
[ $? -eq 1 ] && grep -q '^gpu-record: bench-gpu failed$' "$work/said" && [ -s "$archive" ]
ok $? 'a benchmark that fails: the same'

record 9 0
[ $? -eq 1 ] && [ ! -e "$archive" ] && [ "$(wc -l <"$work/calls")" -eq 1 ]
ok $? 'a device that does not open: nothing is measured or packed'
echo "1..$n"
