#!/bin/sh
# SPDX-License-Identifier: MIT
# embfuse as a user runs it: every subcommand, and every bad input with its exit status, one line on
# stderr, and nothing left behind. What step computes is compared in test_cli_numpy.py.
set -u
E=${BUILD:-build}/embfuse
W=${BUILD:-build}/tests/cli
PYTHON=${PYTHON:-/usr/bin/python3}
rm -rf "$W" && mkdir -p "$W" || exit 1
n=0 failed=0

result() { # NAME [REASON]
    n=$((n + 1))
    if [ -z "${2:-}" ]; then
        echo "ok $n - $1"
    else
        failed=1
        echo "not ok $n - $1"
        echo "# $2"
        sed 's/^/# /' "$W/stderr"
    fi
}

# good NAME PATTERN COMMAND...: status 0, nothing on stderr, a line like PATTERN on stdout.
good() {
    name=$1 pattern=$2 why=
    shift 2
    "$@" >"$W/stdout" 2>"$W/stderr"
    status=$?
    [ $status -eq 0 ] || why="status $status"
    [ -s "$W/stderr" ] && why="$why; something on stderr"
    grep -q -e "$pattern" "$W/stdout" || why="$why; no '$pattern' on stdout"
    result "$name" "$why"
}

# bad NAME STATUS PATTERN COMMAND...: that status, one line like PATTERN on stderr, no file $W/out*.
bad() {
    name=$1 want=$2 pattern=$3 why=
    shift 3
    "$@" >"$W/stdout" 2>"$W/stderr"
    status=$?
    [ $status -eq "$want" ] || why="status $status, not $want"
    [ "$(wc -l <"$W/stderr")" -eq 1 ] || why="$why; not one line on stderr"
    grep -q "^embfuse: " "$W/stderr" || why="$why; no 'embfuse: '"
    grep -q -e "$pattern" "$W/stderr" || why="$why; no '$pattern'"
    for f in "$W"/out*; do
        if [ -f "$f" ]; then why="$why; $f was written" && rm -f "$f"; fi
    done
    result "$name" "$why"
}

there() { # NAME FILE...
    name=$1 why=
    shift
    for f in "$@"; do [ -s "$f" ] || why="$why $f is missing"; done
    result "$name" "$why"
}

# npy FILE DESCR SHAPE VALUE...: elements as whole numbers; of <f4 their bits.
npy() {
    file=$1 descr=$2 shape=$3
    shift 3
    {
        printf '\223NUMPY\001\000\166\000%-117s\n' \
            "{'descr': '$descr', 'fortran_order': False, 'shape': $shape, }"
        for v in "$@"; do
            bytes=${descr#??}
            while [ "$bytes" -gt 0 ]; do
                printf "\\$(printf %03o $((v & 255)))"
                v=$((v >> 8)) bytes=$((bytes - 1))
            done
        done
    } >"$file"
}

# --- the program and its flags
good "help" "^  step " "$E" --help
for c in list gen stats step; do good "$c --help" "^usage: embfuse $c" "$E" $c --help; done
bad "no command" 1 "unknown command ''; known: list, gen, stats, step" "$E"
bad "unknown command" 1 "unknown command 'lst'" "$E" lst
bad "unknown flag" 1 "unknown flag '--jsn'" "$E" list --jsn
bad "flag without its value" 1 "\-\-out lacks its value" "$E" gen datasets/zipf.spec --out
bad "unexpected argument" 1 "unexpected argument 'b'" "$E" stats a b
if [ -c /dev/full ]; then
    bad "full standard output" 1 "cannot write to standard output" \
        sh -c '"$0" list >/dev/full' "$E"
fi

# --- list
good "list" "^cpu_fused " "$E" list
good "list: rules" "^rowwise_adagrad .*mean(g^2)" "$E" list
good "list --markdown" '^| `cpu_fused` | cpu | host |' "$E" list --markdown
good "list --json" '"name": "cpu_fused"' "$E" list --json
bad "list --json --markdown" 1 "exclude" "$E" list --json --markdown
json_valid() { "$E" "$@" | "$PYTHON" -m json.tool && echo valid; }
good "list --json is JSON" '^valid$' json_valid list --json

# --- gen
pooled="workload w; rows 20; dim 4; batch 8; length uniform 1 4; alpha 1; rule adagrad"
good "gen" "w, batch 0: [0-9]* ids in 1 x 8 bags" "$E" gen --spec-text "$pooled" --out "$W/b" \
    --initial-tables
there "gen's files" "$W/b.batch" "$W/b.ids.npy" "$W/b.offsets.npy" "$W/b.grad.npy" \
    "$W/b.weight.npy" "$W/b.state.0.npy"
good "gen --workload" "mixed, batch 2" "$E" gen datasets/smoke.spec --workload mixed \
    --batch-number 2 --mode real --initial-tables --out "$W/m"
there "gen's files of several tables" "$W/m.weight.0.npy" "$W/m.weight.2.npy" \
    "$W/m.lookup_weights.npy"
bad "gen: no spec" 1 "give a spec file" "$E" gen --out "$W/out"
bad "gen: no --out" 1 "\-\-out is missing" "$E" gen datasets/zipf.spec
bad "gen: several workloads" 1 "choose one with --workload: ragged/alpha:0.8 ragged/alpha:1 w" \
    "$E" gen datasets/smoke.spec --out "$W/out"
bad "gen: no such workload" 1 "no workload 'x'" "$E" gen datasets/smoke.spec --workload x \
    --out "$W/out"
bad "gen: no such file" 1 "nowhere.spec" "$E" gen "$W/nowhere.spec" --out "$W/out"
bad "gen: bad spec" 1 "\-\-spec-text:2: unknown key 'rws'" "$E" gen --spec-text \
    "workload w; rws 3" --out "$W/out"
bad "gen: --mode" 1 "exact or real" "$E" gen --spec-text "$pooled" --mode rough --out "$W/out"
bad "gen: --batch-number" 1 "from 0 to 7, not '8'" "$E" gen --spec-text "$pooled" \
    --batch-number 8 --out "$W/out"
bad "gen: --out in no folder" 1 "cannot write" "$E" gen --spec-text "$pooled" --out "$W/no/out"
bad "gen: too large" 1 "needs .* GiB" "$E" gen --spec-text \
    "workload w; batch 1e9; length fixed 1e4" --out "$W/out"
bad "gen: too large tables" 1 "needs .* GiB" "$E" gen --spec-text \
    "workload w; rows 1e12; batch 4" --initial-tables --out "$W/out"

# --- stats
good "stats" "distinct rows .* of the lookups" "$E" stats datasets/smoke.spec
good "stats --workload" "^sequence$" "$E" stats datasets/smoke.spec --workload sequence
good "stats --bags" "  bags  *300$" "$E" stats datasets/smoke.spec --workload sequence --bags 100
good "stats --json is JSON" '^valid$' json_valid stats datasets/smoke.spec --json
printf '1 2 6\n1 3 6\n1 1\n' >"$W/t.txt"
good "stats of a trace" "  distinct rows  *4 " "$E" stats "$W/t.txt" --bags 2
good "stats: the hottest row" "  hottest row  *2  *33.33 % of the lookups" \
    "$E" stats "$W/t.txt" --bags 2
good "stats of ids.npy" "  distinct rows " "$E" stats "$W/b.ids.npy"
good "stats of traces as features" "^t+t$" "$E" stats "$W/t.txt,$W/t.txt"
bad "stats: no file" 1 "give a spec file or a trace" "$E" stats
bad "stats: no such trace" 1 "nowhere.txt" "$E" stats "$W/nowhere.txt"
bad "stats: --bags" 1 "\-\-bags is a whole number" "$E" stats "$W/t.txt" --bags x
bad "stats: --bags of a trace" 1 "take 1 to 3" "$E" stats "$W/t.txt" --bags 4
bad "stats: --workload of a trace" 1 "a trace has no" "$E" stats "$W/t.txt" --workload t
bad "stats: --plot of several" 1 "choose one" "$E" stats datasets/smoke.spec --plot "$W/out"
bad "stats: no gnuplot" 1 "gnuplot-nox" env PATH=/nowhere "$E" stats "$W/t.txt" --plot "$W/out"
if command -v gnuplot >/dev/null; then
    good "stats --plot" "^t$" "$E" stats "$W/t.txt" --plot "$W/plot"
    there "its pictures" "$W/plot.svg" "$W/plot.png"
else
    result "stats --plot # SKIP gnuplot is missing"
    result "its pictures # SKIP gnuplot is missing"
fi

# --- step
fine="checked: exact, worst"
good "step --batch" "^cpu_fused, adagrad: 1 step, .*$fine" \
    "$E" step --kernel cpu_fused --batch "$W/b" --out "$W/r"
there "step's files" "$W/r.weight.npy" "$W/r.state.0.npy"
good "step --tables" "3 steps" "$E" step --kernel cpu_sort --batch "$W/b" --tables "$W/r" \
    --first-step 2 --steps 3 --threads 2 --out "$W/r"
good "step: several tables, another rule" "cpu_hash, adam: .*checked: bound" \
    "$E" step --kernel cpu_hash --rule adam --batch "$W/m" --out "$W/r2"
there "their files" "$W/r2.weight.0.npy" "$W/r2.state.2.1.npy"
good "step: dense Adam says so" "idle rows move too" "$E" step --kernel cpu_dense --rule adam \
    --batch "$W/b" --tables "$W/b" --out "$W/r"
good "step --no-check" "not checked" "$E" step --kernel cpu_sort --batch "$W/b" --no-check \
    --out "$W/r"

one=1065353216 two=1073741824 nan=2143289344 inf=2139095040 huge=2137108966 # bits of float32
minus1=$((0xbf800000)) minus2=$((0xc0000000)) minus3=$((0xc0400000))
npy "$W/ids.npy" '<i8' '(6,)' 1 2 6 1 3 6
npy "$W/offsets.npy" '<i8' '(3,)' 0 3 6
npy "$W/grad.npy" '<f4' '(2, 1)' $one $two
npy "$W/weight.npy" '<f4' '(7, 1)' 0 0 0 0 0 0 0
step() { # FLAG VALUE...: the example with flags in addition or, as the last one counts, instead
    "$E" step --kernel cpu_fused --rule sgd --lr 1 --ids "$W/ids.npy" --offsets "$W/offsets.npy" \
        --grad "$W/grad.npy" --weight "$W/weight.npy" --out "$W/out" "$@"
}
good "step: two samples" "6 lookups, 4 distinct rows" step --out "$W/two"
npy "$W/want.npy" '<f4' '(7, 1)' 0 $minus3 $minus1 $minus2 0 0 $minus3
good "two samples: 0 -3 -1 -2 0 0 -3" "^same$" sh -c \
    'cmp "$0/two.weight.npy" "$0/want.npy" && echo same' "$W"

bad "step: no kernel" 1 "\-\-kernel is missing" "$E" step --batch "$W/b" --out "$W/out"
bad "step: no --out" 1 "\-\-out is missing" "$E" step --kernel cpu_sort --batch "$W/b"
bad "step: unknown kernel" 1 "unknown kernel 'x'; known: .*cpu_fused" step --kernel x
bad "step: unknown rule" 1 "unknown rule 'x'; known rules: sgd" step --rule x
bad "step: unknown rule of a batch" 1 "unknown rule" "$E" step --kernel cpu_sort --batch "$W/b" \
    --rule x --out "$W/out"
bad "step: nothing given" 1 "give --batch" "$E" step --kernel cpu_sort --out "$W/out"
bad "step: --batch beside --ids" 1 "excludes" step --batch "$W/b"
bad "step: no rule" 1 "\-\-rule is missing" "$E" step --kernel cpu_fused --ids "$W/ids.npy" \
    --offsets "$W/offsets.npy" --grad "$W/grad.npy" --weight "$W/weight.npy" --out "$W/out"
bad "step: no weight" 1 "\-\-weight is missing" "$E" step --kernel cpu_fused --rule sgd --ids \
    "$W/ids.npy" --offsets "$W/offsets.npy" --grad "$W/grad.npy" --out "$W/out"
bad "step: --lr" 1 "\-\-lr: lr is a number, not 'fast'" step --lr fast
bad "step: --beta1" 1 "from 0 to below 1, not '1'" step --beta1 1
bad "step: --steps" 1 "\-\-steps is a whole number" step --steps 0
bad "step: --first-step" 1 "\-\-first-step" step --first-step 0
bad "step: --threads" 1 "\-\-threads" step --threads 0
bad "step: --pooling" 1 "one of sum, mean, none" step --pooling max
bad "step: --padding" 1 "no row of a table of 7 rows" step --padding 7
bad "step: --out in no folder" 1 "cannot write" step --out "$W/no/out"
bad "step: no such file" 1 "nowhere.npy" step --ids "$W/nowhere.npy"
bad "step: not npy" 1 "NUMPY" step --grad "$W/t.txt"

bad "ids: float" 1 "int32 or int64" step --ids "$W/weight.npy"
bad "grad: int" 1 "float32" step --grad "$W/ids.npy"
bad "weight: int" 1 "float32" step --weight "$W/ids.npy"
npy "$W/x.npy" '<f8' '(1,)' 0
bad "grad: float64" 1 "unsupported dtype" step --grad "$W/x.npy"
npy "$W/x.npy" '<f4' '(7,)' 0 0 0 0 0 0 0
bad "weight: one dimension" 1 "\[rows\]\[dim\]" step --weight "$W/x.npy"
npy "$W/x.npy" '<f4' '(0, 3)'
bad "weight: no rows" 1 "neither of them 0" step --weight "$W/x.npy"
npy "$W/x.npy" '<f4' '(2, 2)' 0 0 0 0
bad "grad: columns" 1 "shape \[2\]\[2\], wanted \[2\]\[1\]" step --grad "$W/x.npy"
bad "grad: rows of a sequence" 1 "wanted \[6\]\[1\]" step --pooling none
npy "$W/x.npy" '<i8' '(7,)' 1 2 6 1 3 6 7
bad "ids: more than offsets say" 1 "offsets end at 6 of 7" step --ids "$W/x.npy"
npy "$W/x.npy" '<i8' '(6,)' 1 2 6 1 3 7
bad "ids: no such row" 1 "id 7 is no row of a table of 7 rows" step --ids "$W/x.npy"
npy "$W/x.npy" '<i4' '(6,)' 1 2 -1 1 3 6
bad "ids: negative" 1 "lookup 2: id -1" step --ids "$W/x.npy"
npy "$W/x.npy" '<i8' '(2, 3)' 1 2 6 1 3 6
bad "ids: two dimensions" 1 "one dimension" step --ids "$W/x.npy"
npy "$W/x.npy" '<i8' '(4,)' 0 4 3 6
bad "offsets: fall" 1 "offsets 4 to 3" step --offsets "$W/x.npy"
npy "$W/x.npy" '<i8' '(3,)' 1 3 6
bad "offsets: start" 1 "offsets start at 1" step --offsets "$W/x.npy"
npy "$W/x.npy" '<i8' '(3,)' 0 3 9
bad "offsets: end" 1 "offsets 3 to 9" step --offsets "$W/x.npy"
npy "$W/x.npy" '<i8' '(1,)' 0
bad "offsets: no bags" 1 "1 offsets" step --offsets "$W/x.npy"
npy "$W/x.npy" '<f4' '(5,)' $one $one $one $one $one
bad "lookup weights: length" 1 "wanted \[6\]: one weight for each id" \
    step --lookup-weights "$W/x.npy"
npy "$W/x.npy" '<f4' '(6,)' $one $one $one $inf $one $one
bad "lookup weights: infinite" 1 "element \[3\] is inf" step --lookup-weights "$W/x.npy"
npy "$W/nan.npy" '<f4' '(2, 1)' $one $nan
bad "grad: NaN" 1 "element \[1\]\[0\] is -\?nan" step --grad "$W/nan.npy"
good "grad: NaN with --no-check" "not checked" step --grad "$W/nan.npy" --no-check --out "$W/two"
bad "state: too many" 1 "names 1 files; sgd has 0" step --state "$W/weight.npy"
bad "state: too few" 1 "adam has 2 states" step --rule adam --state "$W/weight.npy"
bad "state: shape" 1 "wanted \[7\]\[1\]" step --rule adagrad --state "$W/grad.npy"
bad "row state: shape" 1 "wanted \[7\]: \[rows\]" \
    step --rule rowwise_adagrad --row-state "$W/weight.npy"
bad "row state: not of this rule" 1 "sgd has no such state" step --row-state "$W/weight.npy"
npy "$W/x.npy" '<f4' '(2, 1)' $huge $huge
bad "a sum that overflows is wrong" 2 "wrong result at step 1: table 0 row 1 .*got -inf" \
    step --grad "$W/x.npy"
mkdir "$W/out.state.0.npy"
bad "a name that is taken" 1 "out.state.0.npy: cannot write" step --rule adagrad
rmdir "$W/out.state.0.npy"

# --- descriptions
described() { # LINES PATTERN
    printf "$1" >"$W/b.batch"
    bad "description: $2" 1 "$2" "$E" step --kernel cpu_sort --batch "$W/b" --out "$W/out"
}
described "" "at least one table and one feature"
described "table rows 20 dim 4 rule sgd\n" "at least one table and one feature"
described "tabel rows 20\n" "b.batch:1: 'tabel' begins no line"
described "bags 8 8\n" "write: bags B"
described "bags 0\n" "from 1 to"
described "bags 9\ntable rows 20 dim 4 rule sgd\nfeature table 0\n" \
    "9 offsets; 1 features of 9 bags have 10"
described "table rows 20 dim 4\n" "lacks something; write: table rows"
described "table rows 20 dim 4 rule x\n" "rule is one of"
described "table rows 20 dim 4 rule sgd colour 3\n" "'colour' in a table line"
described "table rows 20 dim 4 rule sgd lr\n" "lr has no value"
described "table rows 20 dim 4 rule sgd eps -1\n" "eps is a number from 0"
described "table rows 20 dim 4 rule sgd\nfeature table 1\n" "table '1': there are 1 above"
described "table rows 20 dim 4 rule sgd\nfeature pooling sum\n" "lacks its table"
described "table rows 20 dim 4 rule sgd\nfeature table 0 padding 20\n" "padding 20 is no row"
described "table rows 20 dim 4 rule sgd\nfeature table 0\nfeature table 0 pooling none\n" \
    "beside another"
described "table rows 21 dim 4 rule sgd\nfeature table 0\n" "shape \[20\]\[4\], wanted \[21\]\[4\]"
described "table rows 20 dim 5 rule sgd\nfeature table 0\n" "wanted \[8\]\[5\]"
described "weighted 1\ntable rows 20 dim 4 rule sgd\nfeature table 0\n" \
    "b.lookup_weights.npy: cannot"
bad "several tables and --weight" 1 "is for one table, this batch has 3" "$E" step --kernel \
    cpu_sort --batch "$W/m" --weight "$W/weight.npy" --out "$W/out"
rm "$W/m.weight.1.npy"
bad "tables without a weight" 1 "m.weight.1.npy: cannot open" "$E" step --kernel cpu_sort \
    --batch "$W/m" --out "$W/out"

left=$(find "$W" -name '*.part*')
result "nothing half-written is left" "$left"
echo "1..$n"
exit $failed
