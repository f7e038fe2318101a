#!/bin/sh
# SPDX-License-Identifier: MIT
# The bench program as a user meets it: what it records, and what it says of bad input. Prints TAP; runs
# from the suite's root with BUILD set (tests/run.sh).
set -u
bench=$BUILD/bench
work=$BUILD/tests/bench
rm -rf "$work"
mkdir -p "$work"
export EMBFUSE_LOCK="$work/lock"
python=${PYTHON:-/usr/bin/python3}
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}

# until_seen PATTERN FILE: up to a minute.
until_seen() {
    for i in $(seq 600); do
        grep -q -- "$1" "$2" 2>/dev/null && return
        sleep 0.1
    done
    return 1
}

# refuses NAME PATTERN ARGUMENT...: exit status 1, PATTERN on stderr, nothing recorded or generated, no
# folder left.
refuses() {
    name=$1 pattern=$2
    shift 2
    rm -rf "$work/out"
    "$bench" --out="$work/out/of/this" "$@" >"$work/stdout" 2>"$work/stderr"
    status=$?
    [ $status -eq 1 ] && grep -q -- "$pattern" "$work/stderr" && [ ! -e "$work/out" ] &&
        [ "$(grep -v '^\[' "$work/stderr" | wc -l)" -eq 1 ]
    result=$?
    ok $result "$name"
    [ $result -eq 0 ] || { echo "# status $status"; sed 's/^/# /' "$work/stderr"; }
}

tiny='--modes=cold --reps=1 --ring=1 --batch=64 --rows=1000 --dims=8'

refuses 'unknown option' "unknown option '--frobnicate" --frobnicate=1
refuses 'option without its value' "rows: its value is missing" --rows
refuses 'filter that matches nothing' "matches none" $tiny --filter=no_such_kernel
refuses 'filter that is no expression' "FILTER='(': " $tiny --filter='('
refuses 'unknown rule' "unknown rule 'sgdx'.*known" $tiny --rule=sgdx
refuses 'unknown mode' "unknown mode 'tepid'; known: cold warm iteration all" $tiny --modes=tepid
refuses 'reps out of range' "REPS: '0'" --reps=0
refuses 'axis that is no number' "ALPHA" --alpha=much
refuses 'axis out of range' "ROWS" --rows=0
for mib in x 0 -1 1048577; do
    export EMBFUSE_CACHE_MIB="$mib"
    refuses "cache of '$mib' MiB" "EMBFUSE_CACHE_MIB: '$mib' is no number of MiB" --smoke
done
export EMBFUSE_CACHE_MIB=16
refuses 'missing spec' "no-such.spec" --spec=no-such.spec
refuses 'missing trace' "no-such.txt.gz" --trace=no-such.txt.gz
mkdir "$work/other" && printf '1\n' | tee "$work/day.txt" >"$work/other/day.txt"
refuses 'two traces of one name' "two workloads are called 'day': rename one of the files" --trace="$work/day.txt $work/other/day.txt"
refuses 'two lists of what a trace has' "or leave out lists of what a trace has of its own" --trace="$work/day.txt" --pooling='2 7'
refuses 'axes that a trace does not have' "do not apply to a trace" --trace=x.txt --alpha=1
printf 'workload a\n    rows 10\n    colour red\n' >"$work/bad.spec"
refuses 'unknown spec key, with its line' "bad.spec:3:.*colour" --spec="$work/bad.spec"
printf '1 2 x\n' >"$work/letter.txt"
refuses 'trace with a letter, with its line' "letter.txt.*1" --trace="$work/letter.txt"
printf '1 2 3\n4 5\n' | gzip -c | head -c 20 >"$work/cut.txt.gz"
refuses 'truncated trace' "cut.txt.gz" --trace="$work/cut.txt.gz"

"$bench" --out="$work/whole" --modes='cold warm iteration' --reps=2 --ring=2 --batch=2000 --rows=10000 --dims=8 \
    --rule='sgd forward' --filter='/(cpu_fused|cpu_fused_planned|cpu_lookup)/' 2>"$work/stderr"
ok $? 'iterations beside steps and forwards'
"$python" - "$work/whole/bench.json" <<'PY'
import json, sys
rows = [b for b in json.load(open(sys.argv[1]))["benchmarks"] if b["run_type"] == "iteration"]
of = lambda end: [r for r in rows if f"/{end}/iterations:1/" in r["name"]]
steps, wholes, forwards = of("sgd/cpu_fused/cold"), of("sgd/cpu_fused/iteration"), of("forward/cpu_lookup/cold")
planned = of("sgd/cpu_fused_planned/iteration")
assert [len(x) for x in (steps, wholes, forwards, planned)] == [2] * 4, [r["name"] for r in rows]
assert not of("forward/cpu_lookup/iteration") and len(rows) == 16
for r in wholes + planned:
    assert " mode=iteration " in r["label"] and " check=exact " in r["label"], r["label"]
    assert (r["plan_ms"] > 0) == (r in planned) and r["forward_ms"] > 0
    parts = sum(r[f"{part}_ms"] for part in ("forward", "plan", "index", "zero", "reduce", "update"))
    assert 0.7 * r["real_time"] < parts <= 1.001 * r["real_time"], (parts, r["real_time"])
    assert "line_mib" not in r and 0 < r["roof_ms"]
    assert abs(r["share_roof"] * r["real_time"] / r["roof_ms"] - 1) < 1e-6
assert all("forward_ms" not in r for r in steps + forwards)
batch = lambda r: r["label"].split("fingerprint=")[1].split()[0]
bytes_of = lambda some: {batch(r): r["compulsory_mib"] for r in some}
step, forward, whole = map(bytes_of, (steps, forwards, wholes))
warm = of("sgd/cpu_fused/warm")  # each right after a cold one
assert sorted(map(batch, warm)) == sorted(map(batch, steps)) and len(set(map(batch, warm))) == 2
assert whole.keys() == step.keys() == forward.keys() and len(whole) == 2
assert all(abs(whole[b] - step[b] - forward[b]) < 1e-9 for b in whole), (whole, step, forward)
PY
ok $? 'an iteration has its parts, and the traffic of both'

# A kernel that is 8 times as slow as the fastest has 5 samples. Which one that is depends on their times.
"$bench" --out="$work/slow" --modes=cold --ring=1 --batch=8 --rows=200000 --dims=8 --alpha='0 1' \
    --filter='/cpu_(fused|dense)/' 2>"$work/stderr"
ok $? 'two workloads on the same tables, without REPS'
"$python" - "$work/slow/bench.json" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert "emb_cut_short" not in d["context"]
for alpha in "01":
    count = lambda kernel: sum(b["run_type"] == "iteration" and f"alpha:{alpha}/rowwise_adagrad/{kernel}/" in b["name"]
                               for b in d["benchmarks"])
    counts = sorted(map(count, ("cpu_fused", "cpu_dense")))
    assert 5 <= counts[0] and counts[1] <= 10, counts
PY
ok $? 'without REPS a kernel has five to ten samples'

# Samples are spread over visits. SECONDS adds visits until rows of five samples are narrow, or until the time is used up;
# how many visits fit into a short time is not asked.
for limits in '5 1 99 3' '2 600 99 5' '2 1 1 2'; do
    set -- $limits
    "$bench" --out="$work/more" $tiny --alpha='0 1' --modes='cold warm' --reps="$1" --ring=2 --visits=3 --seconds="$2" \
        --precision="$3" --filter='/cpu_(fused|sort)/' 2>"$work/stderr"
    ok $? "$1 samples, and more for $2 s, within $3 %"
    "$python" - "$work/more/bench.json" "$1" "$4" <<'PY'
import sys
sys.path.insert(0, "reports")
import results
result, reps, least = results.load(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])  # wants one batch for each number
assert len(result.series) == 8 and "emb_cut_short" not in result.context
for s in result.series:
    numbers, visits = ([x.get(key) for x in s.samples] for key in ("repetition_index", "visit"))
    assert numbers == list(range(len(numbers))) and len(numbers) >= reps and len(s.fingerprints) == 2, numbers
    assert visits == sorted(visits) and set(visits) == set(range(len(set(visits)))) and len(set(visits)) >= least, visits
    assert reps == 2 or visits == [0, 1, 1, 2, 2], visits
PY
    ok $? 'and their record counts them on, and their visits'
done
refuses 'no visit' "VISITS: '0' is not a number from 1" --visits=0
refuses 'no time at all' "SECONDS: '0' is not a number from 1" --seconds=0

refuses 'more memory than there is, before ids are generated' 'optimizer state and batches: needs .* GiB' --modes=cold --reps=1 \
    --rows=1e11 --filter=cpu_sort

"$bench" --out=/dev/null/no $tiny >/dev/null 2>"$work/stderr"
[ $? -eq 1 ] && grep -q 'choose another folder with OUT=' "$work/stderr"
ok $? 'unwritable OUT, said before anything is measured'

mkdir -p "$work/fine"
echo left >"$work/fine/bench.json.part"
"$bench" --out "$work/fine" $tiny --filter '/cpu_(sort|fused)/' --seed=7 2>"$work/stderr" &&
    [ "$(ls "$work/fine")" = bench.json ] && ! grep -q 'about 0 s' "$work/stderr"
ok $? 'a small run, which clears what a killed one left'
"$python" - "$work/fine/bench.json" <<'PY'
import json, os, sys
d = json.load(open(sys.argv[1]))
c, rows = d["context"], [b for b in d["benchmarks"] if b["run_type"] == "iteration"]
assert len(rows) == 2, len(rows)
for k in ("schema", "commit", "dirty", "compiler", "flags", "isa", "cpu", "thp", "threads", "libraries", "load_before"):
    assert c["emb_" + k], k
assert c["emb_cpus_allowed"] == str(len(os.sched_getaffinity(0))), c["emb_cpus_allowed"]
assert "emb_cut_short" not in c
sys.path.insert(0, "reports")
import program
assert c["emb_cpu_model"] == (program.cpu_model() or "unavailable"), c["emb_cpu_model"]
assert c["emb_var_SEED"] == "7" and c["emb_var_DIMS"] == "8"
for r in rows:
    for k in ("ns_per_lookup", "lookups_per_s", "traffic_gbs", "copy_gbs", "share_copy", "share_rmw", "persistent_mib",
              "scratch_mib", "peak_mib", "rejected_samples", "disturbed", "distinct", "hottest_share",
              "in_bag_duplicates", "latency_ns", "lines_in_flight"):
        assert isinstance(r[k], (int, float)), k
    assert "check=exact" in r["label"] and "fingerprint=" in r["label"]
    assert r["state_bytes"] == 4, r["state_bytes"]
    stages = r["index_ms"] + r["zero_ms"] + r["reduce_ms"] + r["update_ms"]
    assert 0 < stages <= r["real_time"] * (1 + 1e-6), (stages, r["real_time"])
    roof = max(r["line_mib"] / r["rmw_gbs"], r["gather_mib"] / r["gather_gbs"]) * 2**20 / 1e6
    assert abs(r["roof_ms"] / roof - 1) < 1e-6, (r["roof_ms"], roof)
    assert abs(r["share_roof"] / (roof / r["real_time"]) - 1) < 1e-6, (r["share_roof"], r["real_time"])
    assert r["line_mib"] >= r["compulsory_mib"] and r["gather_gbs"] > 0
    assert r["gather_mib"] == r["lookups"] * 8 * 4 / 2**20
    assert abs(sum(r[f"run_lookups_{b}"] for b in range(17)) - 1) < 1e-6
PY
ok $? 'its record is whole'

# What fits before the first block of a file ends, and no more. ThreadSanitizer's own memory is a file.
if [ "${SANITIZE:-}" = thread ]; then
    ok 0 'a result that cannot be written # SKIP ThreadSanitizer needs files without a limit'
else
    cp "$work/fine/bench.json" "$work/before.json"
    (ulimit -f 8 && exec "$bench" --out="$work/fine" $tiny --filter=cpu_sort) 2>"$work/stderr"
    [ $? -eq 1 ] && grep -q 'cannot write .*fine/bench.json: File too large' "$work/stderr" &&
        [ "$(ls "$work/fine")" = bench.json ] && cmp "$work/before.json" "$work/fine/bench.json"
    ok $? 'a result that cannot be written: one line, the old one stays, nothing else does'
fi

# A signal: TERM, because a shell lets its background jobs ignore INT.
long='--modes=cold --reps=1000 --ring=1 --batch=64 --rows=1000 --dims=8 --filter=/cpu_(sort|fused)/'
"$bench" --out="$work/cut" $long 2>"$work/cut.stderr" &
pid=$!
until_seen '^\[[1-9].* left: ' "$work/cut.stderr"
"$bench" --out="$work/second" $tiny --filter=cpu_sort --queue=0 2>"$work/second.stderr"
[ $? -eq 1 ] && grep -q "another bench measures on this machine: pid $pid since .*--reps=1000" \
    "$work/second.stderr" && [ ! -e "$work/second" ]
ok $? 'a second bench is refused, and told who measures'
kill -TERM $pid
wait $pid
[ $? -eq 143 ] && [ "$(ls "$work/cut")" = bench.json ] && grep -q 'cut short after' "$work/cut.stderr"
ok $? 'a run that is cut short keeps what was measured'
"$python" - "$work/cut/bench.json" <<'PY'
import json, re, sys
d = json.load(open(sys.argv[1]))
rows = [r for r in d["benchmarks"] if r["run_type"] == "iteration"]
said = re.fullmatch(r"Terminated after (\d+) of 2000 samples", d["context"]["emb_cut_short"])
assert 0 < len(rows) < 2000 and int(said[1]) == len(rows), (len(rows), said)
assert all(r["ns_per_lookup"] > 0 and "error_occurred" not in r for r in rows)
PY
ok $? 'its record says so, and has nothing but samples'

"$bench" --out="$work/killed" $long 2>"$work/killed.stderr" &
pid=$!
until_seen '^\[' "$work/killed.stderr"
"$bench" --out="$work/second" $tiny --filter=cpu_sort 2>"$work/second.stderr" &
second=$!
"$bench" --out="$work/third" $tiny --filter=cpu_sort 2>"$work/third.stderr" &
third=$!
until_seen "waiting up to 10 min.*pid $pid since" "$work/third.stderr"
kill -TERM $third
wait $third
[ $? -eq 143 ] && [ ! -e "$work/third" ]
ok $? 'one that waits and is told to stop leaves nothing'
until_seen "waiting up to 10 min.*pid $pid since" "$work/second.stderr"
kill -KILL $pid
wait $second
[ $? -eq 0 ] && [ -e "$work/second/bench.json" ]
ok $? 'one that waits goes on when the other has died'

if [ "$BUILD" = build ]; then
    build/planted/bench --out="$work/wrong" $tiny --filter='planted_wrong|cpu_sort' 2>"$work/stderr"
    [ $? -eq 2 ] && grep -q 'planted_wrong: WRONG RESULT: table 0 row' "$work/stderr" &&
        ! grep -q 'kernel=planted_wrong' "$work/wrong/bench.json" &&
        grep -q 'kernel=cpu_sort' "$work/wrong/bench.json" &&
        grep -q 'emb_not_run_0.*WRONG RESULT' "$work/wrong/bench.json"
    ok $? 'a wrong kernel: exit status 2, not recorded, the others are'
else
    n=$((n + 1))
    echo "ok $n - a wrong kernel # SKIP it runs in the plain build"
fi
echo "1..$n"
