#!/bin/sh
# SPDX-License-Identifier: MIT
# The bench program when a kernel crashes, or when it dies itself: what is measured all the same, and what it
# leaves. Prints TAP; runs from the suite's root with BUILD set (tests/run.sh).
set -u
work=$BUILD/tests/crash
bench=build/planted/bench
python=${PYTHON:-/usr/bin/python3}
n=0

if [ "$BUILD" != build ]; then
    echo 'ok 1 - a kernel that crashes # SKIP built once, in the plain build'
    echo 1..1
    exit 0
fi
rm -rf "$work"
mkdir -p "$work"
export EMBFUSE_LOCK="$work/lock"

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$work/stderr"; fi
}

# What planted_crash does on rows of these lengths; see there.
in_one_thread=16 in_all_threads=17 when_timed=18 by_its_stack=19 when_stopped=20 sent_by_another=21 killed=22 in_second_visit=23

# run KERNELS DIMS OPTION...: one sample of each.
run() {
    rm -rf "$work/out"
    kernels=$1 dims=$2
    shift 2
    "$bench" --out="$work/out" --modes=cold --reps=1 --ring=1 --batch=64 --rows=1000 --threads=2 --filter="/($kernels)/" \
        --dims="$dims" "$@" 2>"$work/stderr"
    status=$?
}
# crashed LINE...: exit status 2, exactly these lines of what was not run, and nothing else left behind.
crashed() {
    [ $status -eq 2 ] && [ "$(grep '^not run: ' "$work/stderr")" = "$(printf 'not run: %s\n' "$@")" ] &&
        [ "$(ls "$work/out")" = bench.json ] && ! grep -q emb_cut_short "$work/out/bench.json"
}
# rows "KERNEL DIM"...: the record's samples are these.
rows() {
    "$python" - "$work/out/bench.json" "$@" <<'PY'
import json, sys
sys.path.insert(0, "reports")
from results import words
found = [f"{words(r)['kernel']} {r['dim']:.0f}" for r in json.load(open(sys.argv[1]))["benchmarks"]]
assert sorted(found) == sorted(sys.argv[2:]), found
PY
}
# table PATTERN: a line of the table.
table() {
    "$python" reports/table.py "$work/out/bench.json" >"$work/table" 2>>"$work/stderr" && grep -q -- "$1" "$work/table"
}

run 'planted_crash|cpu_sort' "8 $in_one_thread 12"
crashed "zipf/dim:$in_one_thread, planted_crash: CRASHED: Segmentation fault"
ok $? 'a kernel that crashes on the second workload: one line, exit status 2'
rows 'planted_crash 8' 'cpu_sort 8' "cpu_sort $in_one_thread" 'planted_crash 12' 'cpu_sort 12' &&
    table "^FAILED planted_crash on zipf/dim:$in_one_thread: CRASHED: Segmentation fault" &&
    ! grep -q 'cut short' "$work/table"
ok $? 'the others are measured, and so is it on the others; the table names it as failed'

run 'planted_(crash|abort)|cpu_sort' "$in_one_thread 12 $in_all_threads"
crashed "zipf/dim:$in_one_thread, planted_abort: CRASHED: Aborted" \
    "zipf/dim:$in_one_thread, planted_crash: CRASHED: Segmentation fault" \
    'zipf/dim:12, planted_abort: CRASHED: Aborted' \
    "zipf/dim:$in_all_threads, planted_abort: CRASHED: Aborted" \
    "zipf/dim:$in_all_threads, planted_crash: CRASHED: Segmentation fault" &&
    rows "cpu_sort $in_one_thread" 'planted_crash 12' 'cpu_sort 12' "cpu_sort $in_all_threads"
ok $? 'two that crash, on several workloads'

for how in when_timed by_its_stack; do
    eval dim=\$$how
    run 'planted_crash|cpu_sort' "$dim"
    crashed "zipf, planted_crash: CRASHED: Segmentation fault" && rows "cpu_sort $dim"
    ok $? "a crash $(echo $how | tr _ ' ')"
done

run planted_abort 8
crashed 'zipf, planted_abort: CRASHED: Aborted' && rows
ok $? 'a kernel that crashes, and no other'

run 'planted_crash|cpu_sort' "8 $when_stopped 12"
[ $status -eq 143 ] && rows 'planted_crash 8' 'cpu_sort 8' &&
    grep -q '"emb_cut_short": "Terminated after 2 of 6 samples"' "$work/out/bench.json" &&
    grep -q "planted_crash: CRASHED" "$work/stderr"
ok $? 'a crash after kill: the run stops all the same'

# The second visit has the samples of the first one. Only the kernel that crashes then loses its own, of that workload.
run 'planted_crash|cpu_sort' "8 $in_second_visit" --reps=4 --visits=2
crashed "zipf/dim:$in_second_visit, planted_crash: CRASHED: Segmentation fault"
ok $? 'a crash in the second visit'
set -- 'planted_crash 8' 'cpu_sort 8' "cpu_sort $in_second_visit"
rows "$@" "$@" "$@" "$@"
ok $? 'the samples of both visits are there'

"$bench" --out="$work/long" --modes=cold --reps=1000 --ring=1 --batch=64 --rows=1000 --dims=$in_one_thread \
    --filter='/(planted_crash|cpu_sort)/' 2>"$work/long.stderr" &
pid=$!
for i in $(seq 600); do
    grep -q CRASHED "$work/long.stderr" && break
    sleep 0.1
done
run cpu_sort 8 --queue=0
[ $status -eq 1 ] && grep -q "another bench measures on this machine: pid $pid since" "$work/stderr"
ok $? 'a crash keeps the lock, and the process'
kill -TERM $pid
wait $pid
[ $? -eq 143 ]
ok $? 'it is stopped as before'

# died STATUS: in the second of three workloads; what was measured before is there, and says that it is not all.
died() {
    [ $status -eq "$1" ] && [ "$(ls "$work/out")" = bench.json ] && rows 'planted_crash 8' 'cpu_sort 8' &&
        table '^cut short: the run did not end: 2 of 6 samples' && grep -q '^zipf/dim:8 ' "$work/table"
}
run 'planted_crash|cpu_sort' "8 $killed 12"
died 137
ok $? 'a run that is killed leaves the workloads that had ended'
run 'planted_crash|cpu_sort' "8 $sent_by_another 12"
died 139 && ! grep -q CRASHED "$work/stderr"
ok $? 'a signal from another process is no crash of the kernel'
echo "1..$n"
