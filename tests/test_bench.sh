#!/bin/sh
# The bench program as a user meets it: what it records, and what it says of bad input. Prints TAP; runs
# from the suite's root with BUILD set (tests/run.sh).
set -u
bench=$BUILD/bench
work=$BUILD/tests/bench
rm -rf "$work"
mkdir -p "$work"
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}

# refuses NAME PATTERN ARGUMENT...: exit status 1, PATTERN on stderr, nothing recorded.
refuses() {
    name=$1 pattern=$2
    shift 2
    rm -rf "$work/out"
    "$bench" --out="$work/out" "$@" >"$work/stdout" 2>"$work/stderr"
    status=$?
    [ $status -eq 1 ] && grep -q -- "$pattern" "$work/stderr" && [ ! -e "$work/out/bench.json" ] &&
        [ "$(grep -v 'left:' "$work/stderr" | wc -l)" -eq 1 ]
    result=$?
    ok $result "$name"
    [ $result -eq 0 ] || { echo "# status $status"; sed 's/^/# /' "$work/stderr"; }
}

tiny='--modes=cold --reps=1 --ring=1 --batch=64 --rows=1000 --dims=8'

refuses 'unknown option' "unknown option '--frobnicate" --frobnicate=1
refuses 'stray argument' "unknown argument 'zipf'" zipf
refuses 'filter that matches nothing' "matches none" $tiny --filter=no_such_kernel
refuses 'filter that is no expression' "FILTER='(': " $tiny --filter='('
refuses 'unknown rule' "unknown rule 'sgdx'.*known" $tiny --rule=sgdx
refuses 'unknown mode' "unknown mode 'tepid'" $tiny --modes=tepid
refuses 'reps out of range' "REPS: '0'" --reps=0
refuses 'threads that are no number' "THREADS: 'two'" --threads=two
refuses 'axis that is no number' "ALPHA" --alpha=much
refuses 'axis out of range' "ROWS" --rows=0
refuses 'more memory than there is' "GiB are available" --modes=cold --reps=1 --rows=1e11 --filter=cpu_sort
refuses 'missing spec' "no-such.spec" --spec=no-such.spec
refuses 'missing trace' "no-such.txt.gz" --trace=no-such.txt.gz
refuses 'axes that a trace does not have' "do not apply to a trace" --trace=x.txt --alpha=1

printf 'workload a\n    rows 10\n    colour red\n' >"$work/bad.spec"
refuses 'unknown spec key, with its line' "bad.spec:3:.*colour" --spec="$work/bad.spec"
printf '' >"$work/empty.txt"
refuses 'empty trace' "empty" --trace="$work/empty.txt"
printf '1 2 x\n' >"$work/letter.txt"
refuses 'trace with a letter, with its line' "letter.txt.*1" --trace="$work/letter.txt"
printf '1 2 3\n4 5\n' | gzip -c | head -c 20 >"$work/cut.txt.gz"
refuses 'truncated trace' "cut.txt.gz" --trace="$work/cut.txt.gz"

"$bench" --out=/dev/null/no $tiny >/dev/null 2>"$work/stderr"
[ $? -eq 1 ] && grep -q 'choose another folder with OUT=' "$work/stderr"
ok $? 'unwritable OUT, said before anything is measured'

"$bench" --out="$work/fine" $tiny --filter='cpu_(sort|fused)' --seed=7 2>"$work/stderr"
ok $? 'a small run'
"${PYTHON:-/usr/bin/python3}" - "$work/fine/bench.json" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
c, rows = d["context"], [b for b in d["benchmarks"] if b["run_type"] == "iteration"]
assert len(rows) == 2, len(rows)
for k in ("emb_schema", "emb_commit", "emb_dirty", "emb_compiler", "emb_flags", "emb_isa", "emb_cpu",
          "emb_thp", "emb_threads", "emb_libraries", "emb_virtualised", "emb_load_before"):
    assert c[k], k
for v in ("FILTER", "ALPHA", "DIMS", "ROWS", "BATCH", "POOLING", "RULE", "THREADS", "REPS", "SEED",
          "TRACE", "OUT", "CC", "NATIVE", "SANITIZE"):
    assert "emb_var_" + v in c, v
assert c["emb_var_SEED"] == "7" and c["emb_var_DIMS"] == "8"
for r in rows:
    for k in ("ns_per_lookup", "lookups_per_s", "traffic_gbs", "copy_gbs", "rmw_gbs", "share_copy",
              "share_rmw", "index_ms", "zero_ms", "reduce_ms", "update_ms", "persistent_mib",
              "scratch_mib", "peak_mib", "rejected_samples", "lookups", "distinct",
              "hottest_share", "in_bag_duplicates", "run_lookups_0", "run_lookups_16", "gather_gbs",
              "line_mib", "gather_mib", "roof_ms", "share_roof"):
        assert isinstance(r[k], (int, float)), k
    assert "check=exact" in r["label"] and "fingerprint=" in r["label"]
    stages = r["index_ms"] + r["zero_ms"] + r["reduce_ms"] + r["update_ms"]
    assert abs(stages - r["real_time"]) < 0.2 * r["real_time"] + 0.05, (stages, r["real_time"])
    roof = max(r["line_mib"] / r["rmw_gbs"], r["gather_mib"] / r["gather_gbs"]) * 2**20 / 1e6
    assert abs(r["roof_ms"] / roof - 1) < 1e-6, (r["roof_ms"], roof)
    assert abs(r["share_roof"] / (roof / r["real_time"]) - 1) < 1e-6, (r["share_roof"], r["real_time"])
    assert r["line_mib"] >= r["compulsory_mib"] and r["gather_gbs"] > 0
    assert r["gather_mib"] == r["lookups"] * 8 * 4 / 2**20
    assert abs(sum(r[f"run_lookups_{b}"] for b in range(17)) - 1) < 1e-6
PY
ok $? 'its record is whole'

"$bench" --out="$work/cut" --modes=cold --reps=200 --rows=100000 --batch=1000 2>/dev/null &
pid=$!
sleep 2
kill -TERM $pid # not INT, which a shell lets its background jobs ignore
wait $pid
[ $? -ne 0 ] && [ -z "$(ls "$work/cut")" ]
ok $? 'an interrupted run leaves no file'

if [ "$BUILD" = build ]; then
    make B=build/planted EXTRA_KERNELS=tests/planted/planted_wrong.c build/planted/bench \
        >"$work/make.log" 2>&1
    build/planted/bench --out="$work/wrong" $tiny --filter='planted|cpu_sort' 2>"$work/stderr"
    [ $? -eq 2 ] && grep -q 'planted_wrong: WRONG RESULT: table 0 row' "$work/stderr" &&
        ! grep -q 'kernel=planted_wrong' "$work/wrong/bench.json" &&
        grep -q 'kernel=cpu_sort' "$work/wrong/bench.json" &&
        grep -q 'emb_not_run_0.*WRONG RESULT' "$work/wrong/bench.json"
    ok $? 'a wrong kernel: exit status 2, not recorded, the others are'
else
    n=$((n + 1))
    echo "ok $n - a wrong kernel # SKIP built once, in the plain build"
fi
echo "1..$n"
