#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs embfuse as a user does: every subcommand, and every bad input, which must give its exit status,
# one line on stderr, and no file. test_cli_numpy.py compares what step computes.
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

# npy FILE DESCR SHAPE VALUE...: elements as whole numbers; for <f4 their bits.
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
for c in list gen stats monitor step; do good "$c --help" "^usage: embfuse $c" "$E" $c --help; done
for c in list gen stats monitor step; do
    good "help $c" "^usage: embfuse $c" "$E" help $c
    good "$c -h" "^usage: embfuse $c" "$E" $c -h
done
good "embfuse help" "^  step " "$E" help
good "embfuse -h" "^  step " "$E" -h
good "--version" "^embfuse [0-9.]*, commit .*, with" "$E" --version
bad "help of no command" 1 "unknown command 'x'" "$E" help x
bad "help of two commands" 1 "unexpected argument 'gen'" "$E" help list gen
bad "no command" 1 "no command; known: list, gen, stats, step" "$E"
bad "unknown command" 1 "unknown command 'lst'" "$E" lst
bad "unknown flag" 1 "unknown flag '--jsn'" "$E" list --jsn
bad "unknown short flag" 1 "unknown flag '-j'" "$E" list -j
bad "value of a flag that takes none" 1 "\-\-json takes no value" "$E" list --json=1
bad "flag given twice" 1 "\-\-out is given twice" "$E" gen --out "$W/out" --out="$W/out2"
bad "flag without its value" 1 "\-\-out lacks its value" "$E" gen datasets/zipf.spec --out
bad "unexpected argument" 1 "unexpected argument 'b'" "$E" stats a b
if [ -c /dev/full ]; then
    bad "full standard output" 1 "cannot write to standard output" \
        sh -c '"$0" list >/dev/full' "$E"
fi

if "$PYTHON" cli/manpage.py "$E" >"$W/embfuse.1" 2>"$W/stderr"; then
    cmp "$W/embfuse.1" man/embfuse.1 >"$W/stderr" 2>&1
fi
[ $? -eq 0 ] && why= || why="renew it: $PYTHON cli/manpage.py $E >man/embfuse.1"
result "man/embfuse.1 says what --help does" "$why"

if "$PYTHON" cli/rules_page.py "$E" >"$W/rules.md" 2>"$W/stderr"; then
    cmp "$W/rules.md" rules/README.md >"$W/stderr" 2>&1
fi
[ $? -eq 0 ] && why= || why="renew it: $PYTHON cli/rules_page.py $E >rules/README.md"
result "rules/README.md says what the rules do" "$why"

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
    "$W/b.weight.npy" "$W/b.state.0.npy" "$W/b.tables"
good "gen --workload" "mixed, batch 2" "$E" gen datasets/smoke.spec --workload mixed \
    --batch-number 2 --mode real --initial-tables --out "$W/m"
there "gen's files of several tables" "$W/m.weight.0.npy" "$W/m.weight.2.npy" \
    "$W/m.lookup_weights.npy"
bad "gen: no spec" 1 "give a spec file" "$E" gen --out "$W/out"
bad "gen: no --out" 1 "\-\-out is missing" "$E" gen datasets/zipf.spec
bad "gen: several workloads" 1 "choose one with --workload: ragged weighted-mean s" \
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
bad "gen: --out is a folder" 1 "names a folder; add .* $W/NAME" "$E" gen --spec-text "$pooled" \
    --out "$W/"
bad "gen: --out is .." 1 "names a folder" "$E" gen --spec-text "$pooled" --out "$W/.."
mkfifo "$W/pipe.spec"
bad "gen: a pipe" 1 "pipe.spec: a pipe, not a regular file" timeout 20 "$E" gen "$W/pipe.spec" \
    --out "$W/out"
bad "gen: no lookups" 1 "no lookups, so there is nothing to measure" "$E" gen --spec-text \
    "workload w; batch 2; length negbin 1e-6 1e4" --out "$W/out"
bad "a name with control characters" 1 'a\\x1b\[31m\\x0ab' "$E" gen "$(printf 'a\033[31m\nb')" \
    --out "$W/out"
good "a result's name with control characters" '/e\\x1b.batch: w' "$E" gen --spec-text "$pooled" \
    --out "$W/$(printf 'e\033')"
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
cp "$W/b.ids.npy" "$W/alone.npy"
ids=$(LC_ALL=C sed -n "1s/.*'shape': (\([0-9]*\),).*/\1/p" "$W/alone.npy")
good "stats of X.npy: one id a bag" "  bags  *$ids$" "$E" stats "$W/alone.npy"
cp "$W/b.ids.npy" "$W/alone.ids.npy"
bad "stats of ids without offsets" 1 "bag b is ids\[offsets\[b\]\]" "$E" stats "$W/alone.ids.npy"
ln -s /dev/zero "$W/endless.txt"
bad "stats: an endless trace" 1 "a device, not a regular file" timeout 20 "$E" stats \
    "$W/endless.txt"
printf '1\n' >"$W/$(printf 'c\033').txt"
good "a trace's name with control characters" '^c?$' "$E" stats "$W/$(printf 'c\033').txt"
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

# --- monitor: the trace never has rows 0, 4 and 5
good "monitor" "rows watched  *[0-9]* *of [0-9]*$" "$E" monitor datasets/smoke.spec --workload mixed
good "monitor of a trace" "never touched  *3 " "$E" monitor "$W/t.txt" --kernel cpu_sort --rule adam
good "monitor: one row in two" " ± .* of all rows$" "$E" monitor datasets/smoke.spec --workload mixed --every 2 --table 2
good "monitor --json is JSON" '^valid$' json_valid monitor datasets/smoke.spec --workload mixed --json
bad "monitor: no file" 1 "give a spec file or a trace" "$E" monitor
bad "monitor: several workloads" 1 "choose one" "$E" monitor datasets/smoke.spec
bad "monitor: --every 3" 1 "power of two" "$E" monitor "$W/t.txt" --every 3
bad "monitor: no such table" 1 "has no table 9" "$E" monitor "$W/t.txt" --table 9
bad "monitor: a dense kernel" 1 "not cpu_dense" "$E" monitor "$W/t.txt" --kernel cpu_dense
bad "monitor: no such kernel" 1 "unknown kernel" "$E" monitor "$W/t.txt" --kernel cpu_magic
bad "monitor: no gnuplot" 1 "gnuplot-nox" env PATH=/nowhere "$E" monitor "$W/t.txt" --plot "$W/out"
if command -v gnuplot >/dev/null; then
    good "monitor --plot" "never touched" "$E" monitor "$W/t.txt" --plot "$W/watched"
    there "its pictures" "$W/watched.svg" "$W/watched.png"
else
    result "monitor --plot # SKIP gnuplot is missing"
    result "its pictures # SKIP gnuplot is missing"
fi

# --- step
fine="checked: exact, worst"
good "step --batch" "^cpu_fused, adagrad: 1 step from number 1, .*$fine" \
    "$E" step --kernel cpu_fused --batch "$W/b" --out "$W/r"
there "step's files" "$W/r.weight.npy" "$W/r.state.0.npy" "$W/r.tables"
good "step --tables, over the input" "3 steps from number 2" "$E" step --kernel cpu_sort \
    --batch "$W/b" --tables "$W/r" --steps 3 --threads 2 --out "$W/r"
good "its record" "^steps 4$" cat "$W/r.tables"
good "step --first-step" "1 step from number 9" "$E" step --kernel cpu_sort --batch "$W/b" \
    --tables "$W/r" --first-step=9 --out "$W/r3"
good "its record" "^steps 9$" cat "$W/r3.tables"
good "step: several tables, another rule" "cpu_hash, adam: .*checked: bound" \
    "$E" step --kernel cpu_hash --rule adam --zero-states --batch "$W/m" --out "$W/r2"
there "their files" "$W/r2.weight.0.npy" "$W/r2.state.2.1.npy"
good "step: dense Adam says so" "idle rows move too" "$E" step --kernel cpu_dense --rule adam \
    --batch "$W/b" --tables "$W/b" --zero-states --out "$W/a"
adam() { "$E" step --kernel cpu_sort --rule adam --batch "$W/b" --out "$W/out" "$@"; }
bad "step: states of another rule" 1 "b.tables: the states of table 0 are those of adagrad, not of adam" \
    adam
bad "step: a state of another rule" 1 "a.tables: the states of table 0 are those of adam" "$E" step \
    --kernel cpu_sort --batch "$W/b" --weight "$W/a.weight.npy" --state "$W/a.state.0.npy" \
    --out "$W/out"
bad "step: a state of another rule's table" 1 "r2.tables: the states of table 2 are those of adam" \
    "$E" step --kernel cpu_sort --batch "$W/b" --weight "$W/b.weight.npy" \
    --state "$W/r2.state.2.0.npy" --out "$W/out"
bad "step: --zero-states and --state" 1 "without --zero-states" adam --weight "$W/a.weight.npy" \
    --state "$W/a.state.0.npy,$W/a.state.1.npy" --zero-states
good "step: a rule without states takes any" "sgd: 1 step" "$E" step --kernel cpu_sort --rule sgd \
    --batch "$W/b" --tables "$W/a" --out "$W/a2"
good "step: states that are named go on" "adam: 1 step from number 2" "$E" step --kernel cpu_sort \
    --rule adam --batch "$W/b" --weight "$W/a.weight.npy" \
    --state "$W/a.state.0.npy,$W/a.state.1.npy" --out "$W/a3"
good "step: weights alone begin anew" "adam: 1 step from number 1" "$E" step --kernel cpu_sort \
    --rule adam --batch "$W/b" --weight "$W/a.weight.npy" --out "$W/a3"
recorded() { # LINES PATTERN
    printf "$1" >"$W/a.tables"
    bad "record: $2" 1 "a.tables.*$2" adam --tables "$W/a"
}
recorded "table rows 20 dim 4 rule adam\n" "steps N and at least one table"
recorded "steps 1\n" "steps N and at least one table"
recorded "steps 1\nsteps 2\n" "steps was given in line 1 already"
recorded "steps -1\n" "steps is a whole number from 0"
recorded "steps 1\nfeature table 0\n" ":2: 'feature' begins no line; known: steps, table"
recorded "steps 1\ntable rows 2 dim 4 rule adam\ntable rows 2 dim 4 rule adam\n" \
    "2 tables; 1 are wanted"
good "step --no-check" "not checked" "$E" step --kernel cpu_sort --batch "$W/b" --no-check \
    --out "$W/r"

one=1065353216 two=1073741824 nan=2143289344 inf=2139095040 huge=2137108966 # bits of float32
minus1=$((0xbf800000)) minus2=$((0xc0000000)) minus3=$((0xc0400000))
npy "$W/ids.npy" '<i8' '(6,)' 1 2 6 1 3 6
npy "$W/offsets.npy" '<i8' '(3,)' 0 3 6
npy "$W/grad.npy" '<f4' '(2, 1)' $one $two
npy "$W/weight.npy" '<f4' '(7, 1)' 0 0 0 0 0 0 0
step() { # FLAG VALUE...: the example; these flags add to its own or replace them
    for pair in "kernel cpu_fused" "rule sgd" "lr 1" "ids $W/ids.npy" "offsets $W/offsets.npy" \
        "grad $W/grad.npy" "weight $W/weight.npy" "out $W/out"; do
        case " $* " in
        *" --${pair%% *} "*) ;;
        *) set -- "$@" "--${pair%% *}" "${pair#* }" ;;
        esac
    done
    "$E" step "$@"
}
good "step: two samples" "6 lookups, 4 distinct rows" step --out "$W/two"
npy "$W/want.npy" '<f4' '(7, 1)' 0 $minus3 $minus1 $minus2 0 0 $minus3
good "two samples: 0 -3 -1 -2 0 0 -3" "^same$" sh -c \
    'cmp "$0/two.weight.npy" "$0/want.npy" && echo same' "$W"

bad "step: no kernel" 1 "\-\-kernel is missing" "$E" step --batch "$W/b" --out "$W/out"
bad "step: no --out" 1 "\-\-out is missing" "$E" step --kernel cpu_sort --batch "$W/b"
bad "step: unknown kernel" 1 "unknown kernel 'x'; known: .*cpu_fused" step --kernel x
bad "step: unknown rule" 1 "unknown rule 'x'; known rules: .*adagrad, adam" step --rule x
bad "step: unknown rule of a batch" 1 "unknown rule" "$E" step --kernel cpu_sort --batch "$W/b" \
    --rule x --out "$W/out"
bad "step: nothing given" 1 "give --batch" "$E" step --kernel cpu_sort --out "$W/out"
bad "step: --out is a folder" 1 "\-\-out $W/: names a folder" step --out "$W/"
npy "$W/empty_ids.npy" '<i8' '(0,)'
npy "$W/empty_offsets.npy" '<i8' '(3,)' 0 0 0
npy "$W/empty_grad.npy" '<f4' '(0, 1)'
good "step: a batch without lookups" "0 lookups, 0 distinct rows" step --ids "$W/empty_ids.npy" \
    --offsets "$W/empty_offsets.npy" --out "$W/none"
good "step: sequences without lookups" "0 lookups, 0 distinct rows" step --pooling none \
    --ids "$W/empty_ids.npy" --offsets "$W/empty_offsets.npy" --grad "$W/empty_grad.npy" \
    --rule adam --out "$W/none"
good "they change nothing" "^same$" sh -c 'cmp "$0/none.weight.npy" "$0/weight.npy" && echo same' \
    "$W"
bad "step: --batch beside --ids" 1 "excludes" step --batch "$W/b"
bad "step: no rule" 1 "\-\-rule is missing" "$E" step --kernel cpu_fused --ids "$W/ids.npy" \
    --offsets "$W/offsets.npy" --grad "$W/grad.npy" --weight "$W/weight.npy" --out "$W/out"
bad "step: no weight" 1 "\-\-weight is missing" "$E" step --kernel cpu_fused --rule sgd --ids \
    "$W/ids.npy" --offsets "$W/offsets.npy" --grad "$W/grad.npy" --out "$W/out"
bad "step: --lr" 1 "\-\-lr: lr is a number, not 'fast'" step --lr fast
bad "step: --beta1" 1 "from 0 to below 1, not '1'" step --rule adam --beta1 1
bad "step: a hyper-parameter that the rule has not" 1 "\-\-momentum: the rule sgd has none" \
    step --momentum 0.9
bad "step: a shared one that the rule has not" 1 "\-\-decoupled_weight_decay: the rule lamb has none" \
    step --rule lamb --decoupled_weight_decay 1
bad "step: a flag" 1 "\-\-maximize: maximize is 0 or 1, not '0.5'" step --maximize 0.5
bad "step: an infinite hyper-parameter" 1 "\-\-clip_norm: clip_norm is a number from 0, not 'inf'" \
    step --clip_norm inf
bad "step: a negative global norm" 1 "\-\-clip-global-norm: C is a number from 0 to .*, not '-1'" \
    step --clip-global-norm -1
bad "step: an infinite global norm" 1 "not 'inf'" step --clip-global-norm inf
good "step: a global norm" "global norm [0-9.]*, gradients times [0-9.e-]*, [0-9.]* ms its pass, " \
    step --clip-global-norm 1e-3 --out "$W/two"
good "step: a global norm within its limit" "gradients times 1, " step --clip-global-norm 1e9 --out "$W/two"
bad "step: a hyper-parameter that is a NaN" 1 "not 'nan'" step --weight_decay nan
good "step: one that it has" "momentum: 1 step" step --rule momentum --momentum 0.9 --out "$W/two"
bad "step: --steps" 1 "\-\-steps is a whole number" step --steps 0
bad "step: --first-step" 1 "\-\-first-step" step --first-step 0
bad "step: --threads" 1 "\-\-threads" step --threads 0
bad "step: --pooling" 1 "one of sum, mean, none, max" step --pooling min
bad "step: max without winners" 1 "\-\-winners" step --pooling max
bad "step: --padding" 1 "no row of a table of 7 rows" step --padding 7
bad "step: --out in no folder" 1 "cannot write" step --out "$W/no/out"
bad "step: no such file" 1 "nowhere.npy" step --ids "$W/nowhere.npy"
bad "step: not npy" 1 "NUMPY" step --grad "$W/t.txt"

bad "ids: float" 1 "int32 or int64" step --ids "$W/weight.npy"
npy "$W/x.npy" '<u2' '(7, 1)' 0 0 0 0 0 0 0
bad "weight: bf16 in a table of fp32" 1 "x.npy: uint16, .* say bf16 in PREFIX.batch" step --weight "$W/x.npy"
npy "$W/x.npy" '<u2' '(3, 1)' 0 0 0
bad "grad: uint16 that nobody calls bf16" 1 "x.npy: uint16, .* say bf16" step --grad "$W/x.npy"
npy "$W/x.npy" '<f2' '(3, 1)' 0 31744 0
bad "grad: infinite float16" 1 "element \[1\]\[0\] is inf" step --grad "$W/x.npy"
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
bad "a sum that overflows is no kernel's fault" 1 "step 1: table 0 row 1.* no finite value" \
    step --grad "$W/x.npy"
mkdir "$W/out.state.0.npy"
bad "a name that is taken" 1 "out.state.0.npy: cannot write" step --rule adagrad
rmdir "$W/out.state.0.npy"
cp "$W/weight.npy" "$W/in.weight.npy" && mkdir "$W/in.state.0.npy"
bad "a name that is taken, over the input" 1 "in.state.0.npy: cannot write" step --rule adagrad \
    --weight "$W/in.weight.npy" --out "$W/in"
good "the input is there" "^same$" sh -c 'cmp "$0/in.weight.npy" "$0/weight.npy" && echo same' "$W"
rmdir "$W/in.state.0.npy"
if [ "${SANITIZE:-}" = thread ]; then # its own memory is a file
    result "a limit of the files' size # SKIP ThreadSanitizer needs files without a limit"
else # 4 KiB: clang's OpenMP runtime needs 1 KiB of shared memory, which is also a file
    bad "a limit of the files' size" 1 "out.weight.npy.part: cannot write: File too large" sh -c \
        'ulimit -f 8; exec "$0" gen --spec-text "workload w; rows 5000; dim 4; batch 4; length fixed 1" \
        --initial-tables --out "$1"' "$E" "$W/out"
fi
mkfifo "$W/pipe.npy"
bad "step: a pipe" 1 "pipe.npy: a pipe, not a regular file" timeout 20 "$E" step --kernel cpu_sort \
    --rule sgd --ids "$W/pipe.npy" --offsets "$W/offsets.npy" --grad "$W/grad.npy" \
    --weight "$W/weight.npy" --out "$W/out"

# --- descriptions
described() { # LINES PATTERN
    printf "$1" >"$W/b.batch"
    bad "description: $2" 1 "$2" "$E" step --kernel cpu_sort --batch "$W/b" --out "$W/out"
}
described "" "at least one table and one feature"
described "table rows 20 dim 4 rule sgd\n" "at least one table and one feature"
described "bags 8\n\nbags 8\n" "b.batch:3: bags was given in line 1 already"
described "weighted 0\nweighted 0\n" "weighted was given in line 1 already"
described "table rows 20 rows 20 dim 4 rule sgd\n" "rows twice; write: table rows"
described "table rows 20 dim 4 rule sgd lr 1 lr 2\n" "lr twice; write: table rows"
described "table rows 20 dim 4 rule sgd\nfeature table 0 table 0\n" "table twice; write: feature"
described "$(yes 'table rows 20 dim 4 rule sgd\n' | head -n 1025 | tr -d '\n')" \
    "b.batch:1025: more than 1024 tables"
described "tabel rows 20\n" "b.batch:1: 'tabel' begins no line"
described "bags 8 8\n" "write: bags N"
described "bags 0\n" "from 1 to"
described "bags 9\ntable rows 20 dim 4 rule sgd\nfeature table 0\n" \
    "9 offsets; 1 features of 9 bags have 10"
described "table rows 20 dim 4\n" "lacks something; write: table rows"
described "table rows 20 dim 4 rule x\n" "rule is one of"
described "table rows 20 dim 4 rule sgd colour 3\n" "'colour' in this line; write: table"
described "table rows 20 dim 4 rule sgd lr\n" "lr has no value"
described "table rows 20 dim 4 rule sgd weight_type fp4\n" "weight_type is one of fp32, bf16, fp16, fp8, not"
described "table rows 20 dim 4 rule sgd momentum_type fp8\n" "momentum_type is one of fp32, bf16, not"
described "table rows 20 dim 4 rule sgd rounding up\n" "rounding is one of nearest, stochastic, not"
described "grad_type fp8\n" "grad_type is one of fp32, bf16, fp16, not"
described "grad_type bf16\ngrad_type bf16\n" "grad_type was given already"
described "seed -1\n" "seed is a whole number"
described "table rows 20 dim 4 rule sgd momentum 0.9\n" "the rule sgd has no momentum"
described "table rows 20 dim 4 rule adagrad eps -1\n" "eps is a number from 0"
described "table rows 20 dim 4 rule sgd clip_value -1\n" "clip_value is a number from 0"
described "table rows 20 dim 4 rule lamb decoupled_weight_decay 1\n" "the rule lamb has no decoupled"
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

rm "$W/b.batch" && mkfifo "$W/b.batch"
bad "description: a pipe" 1 "b.batch: a pipe, not a regular file" timeout 20 "$E" step --kernel \
    cpu_sort --batch "$W/b" --out "$W/out"
rm "$W/b.batch" && ln -s /dev/zero "$W/b.batch"
bad "description: endless" 1 "b.batch: a device, not a regular file" timeout 20 "$E" step --kernel \
    cpu_sort --batch "$W/b" --out "$W/out"

# --- a program that is stopped while it writes
for s in TERM HUP; do
    "$E" gen --spec-text "workload w; rows 1e6; dim 128; batch 4; length fixed 1" --initial-tables \
        --out "$W/stopped" >"$W/stdout" 2>"$W/stderr" &
    pid=$!
    tries=0 why=
    until [ -e "$W/stopped.weight.npy.part" ] || [ $tries -eq 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -$s $pid
    { wait $pid && why="it ended before the signal"; } 2>/dev/null
    [ -z "$(ls "$W" | grep '^stopped')" ] || why="$why; it left $(echo "$W"/stopped*)"
    result "stopped by SIG$s it leaves nothing" "$why"
done

# --- a kernel that is wrong only in step 1
if [ "${BUILD:-build}" = build ]; then
    planted() {
        build/planted/embfuse step --kernel planted_first_step --batch "$W/q" --out "$W/out" "$@"
    }
    "$E" gen --spec-text "${pooled%adagrad}adam" --initial-tables --out "$W/q" >/dev/null
    bad "a step that is wrong before the last one" 2 "wrong result at step 1: table 0 row" planted \
        --steps 3
    good "it is right from step 2 on" "2 steps from number 2" planted --steps 2 --first-step 2
else
    result "a step that is wrong before the last one # SKIP built once, in the plain build"
fi

left=$(find "$W" -name '*.part*')
result "nothing half-written is left" "$left"
echo "1..$n"
exit $failed
