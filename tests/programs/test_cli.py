#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs embfuse as a user does: every subcommand, and every bad input, which must give its exit status, one line on
stderr, and no file. test_numpy.py compares what the operations compute."""
import json
import os
import re
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time

import tap

EMBFUSE = os.path.join(tap.ROOT, tap.BUILD, "embfuse")
INF, NAN = float("inf"), float("nan")
POOLED = "workload w; rows 20; dim 4; batch 8; length uniform 1 4; alpha 1; rule adagrad"
EXAMPLE = {"kernel": "cpu_fused", "rule": "sgd", "lr": "1", "ids": "ids.npy", "offsets": "offsets.npy",
           "grad": "grad.npy", "weight": "weight.npy", "out": "out"}  # rows 1, 2, 6, and 1, 3, 6


def npy(name, descr, shape, values):
    code = {"<i8": "q", "<i4": "i", "<u2": "H", "<f4": "f", "<f2": "e", "<f8": "d"}[descr]
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    with open(name, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00\x76\x00" + f"{head:<117}\n".encode())
        file.write(struct.pack(f"<{len(values)}{code}", *values))


def run(*args, program=EMBFUSE, **how):
    return subprocess.run([program, *args], text=True, capture_output=True, check=False, errors="replace", **how)


def good(text, *patterns):
    """Status 0, nothing on stderr, these patterns on stdout; returns that."""
    done = run(*words(text))
    assert (done.returncode, done.stderr) == (0, ""), (text, done)
    for pattern in patterns:
        assert re.search(pattern, done.stdout, re.M), (text, pattern, done.stdout)
    return done.stdout


def bad(said, args, status=1, **how):
    """That status, one line on stderr that has `said`, no file out*."""
    done = run(*args, **how)
    why = (done.returncode, done.stderr.count("\n"), done.stderr.startswith("embfuse: "), said in done.stderr)
    assert why == (status, 1, True, True), (said, args, done)
    left = [n for n in os.listdir(".") if n.startswith("out") and os.path.isfile(n) or n.endswith(".part")]
    assert not left, (args, left)


def words(text):
    """The arguments of a line. `example` is a step of the example, to which its flags are added or changed."""
    found = shlex.split(text)
    if found[0] != "example":
        return found
    given = {flag[2:].partition("=")[0] for flag in found if flag.startswith("--")}
    return ["step", *found[1:], *(x for k, v in EXAMPLE.items() if k not in given for x in ("--" + k, v))]


def all_bad(table):
    for line in filter(None, table.split("\n")):
        said, _, args = line.partition(" | ")
        bad(said, words(args))


def inside(folder):
    """Goes into the folder, which gets a batch b of one table, one m of several, and the example."""
    os.chdir(folder)
    os.symlink(os.path.join(tap.ROOT, "datasets"), "datasets")
    good(f"gen --spec-text '{POOLED}' --out b --initial-tables", "w, batch 0: [0-9]* ids in 8 bags of 1 features")
    good("gen datasets/smoke.spec --workload mixed --batch-number 2 --mode real --initial-tables --out m")
    npy("ids.npy", "<i8", "(6,)", [1, 2, 6, 1, 3, 6])
    npy("offsets.npy", "<i8", "(3,)", [0, 3, 6])
    npy("grad.npy", "<f4", "(2, 1)", [1, 2])
    npy("weight.npy", "<f4", "(7, 1)", [0] * 7)
    npy("w.npy", "<f4", "(6,)", [1] * 6)
    tap.script(".", "t.txt", "1 2 6\n1 3 6\n1 1\n")
    os.mkfifo("pipe")
    os.symlink("/dev/zero", "endless.txt")


def content(name):
    with open(name, "rb") as file:
        return file.read()


def test_generated_pages(_):
    good("--version", "^embfuse [0-9.]*, commit .*, with")
    for tool, page in (("manpage.py", "man/embfuse.1"), ("rules_page.py", "rules/README.md")):
        tool = os.path.join(tap.ROOT, "cli", tool)
        done = subprocess.run([sys.executable, tool, EMBFUSE], capture_output=True, check=True, cwd=tap.ROOT)
        assert done.stdout == content(os.path.join(tap.ROOT, page)), f"renew it: {tool} {EMBFUSE} >{page}"


def test_bad_flags(folder):
    inside(folder)
    all_bad(FLAGS)
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([EMBFUSE, "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "cannot write to standard output" in done.stderr, done
    bad("a\\x1b[31m\\x0ab", ["gen", "a\033[31m\nb", "--out", "out"])
    bad("gnuplot-nox", ["stats", f"{folder}/t.txt", "--plot", f"{folder}/out"], env={"PATH": "/no"}, cwd=tap.ROOT)


FLAGS = """
unknown command 'x' | help x
unknown flag '--jsn' | list --jsn
--json takes no value | list --json=1
--out is given twice | gen --out out --out=out2
unexpected argument 'b' | stats a b
give a spec file | gen --out out
--out is missing | gen datasets/zipf.spec
choose one with --workload: ragged weighted-mean s | gen datasets/smoke.spec --out out
nowhere.spec | gen nowhere.spec --out out
pipe: a pipe, not a regular file | gen pipe --out out
--spec-text:2: unknown key 'rws' | gen --spec-text 'workload w; rws 3' --out out
from 0 to 7, not '8' | gen --spec-text 'workload w' --batch-number 8 --out out
cannot write | gen --spec-text 'workload w; rows 9; batch 4' --out no/out
no lookups, so there is nothing to measure | gen --spec-text 'workload w; batch 2; length negbin 1e-6 1e4' --out out
GiB | gen --spec-text 'workload w; batch 1e9; length fixed 1e4' --out out
give a spec file or a trace | stats
a device, not a regular file | stats endless.txt
--bags: batch is a whole number | stats t.txt --bags x
power of two | monitor t.txt --every 3
not cpu_dense | monitor t.txt --kernel cpu_dense
unknown kernel 'x'; known: | example --kernel x
give --batch | step --kernel cpu_sort --out out
--rule is missing | step --kernel cpu_fused --ids ids.npy --offsets offsets.npy --grad grad.npy --out out
step 16777217: adam_lazy_global counts steps in a float | example --rule adam_lazy_global --first-step 16777217
too small for single precision; take another limit | example --clip-global-norm 1e-44
gradients times 0, or their limits, are too small | example --clip-global-norm 1e-400
times 2.7735e-19, or their limits, are too small | example --clip_norm 2 --clip-global-norm 1e-18
lr 1e-400 is too close to 0 for single precision | example --lr 1e-400
lr 1e50 is too large for single precision | example --lr 1e50
--lr: lr is a number from 0 to 3.4e38, not 'fast' | example --lr fast
lr is a number from 0 to 3.4e38, not '-1e-9' | example --rule adam --lr -1e-9
weight_decay is a number from 0 to 3.4e38, not '-1' | example --weight_decay -1
max_norm is 0 or a number from 1e-16 to 3.4e38, not '1e-26' | example --rule rowwise_adagrad_max_norm --max_norm 1e-26
from 0 to below 1, not '1' | example --rule adam --beta1 1
--momentum: the rule sgd has none | example --momentum 0.9
--maximize: maximize is 0 or 1, not '0.5' | example --maximize 0.5
--clip_norm: clip_norm is 0 or a number from 1e-16 to 3.4e38, not 'inf' | example --clip_norm inf
--clip-global-norm: C is a number from 0 to | example --clip-global-norm -1
--steps is a whole number | example --steps 0
one of sum, mean, none, max | example --pooling min
--winners | example --pooling max
no row of a table of 7 rows | example --padding 7
pipe: a pipe, not a regular file | example --ids pipe
is for one table, this batch has 3 | step --kernel cpu_sort --batch m --weight weight.npy --out out
without --zero-states | step --kernel cpu_sort --batch b --weight b.weight.npy --state x --zero-states --out out
names 1 files; sgd has 0 | example --state weight.npy
adam has 2 states | example --rule adam --state weight.npy
wanted [7][1] | example --rule adagrad --state grad.npy
wanted [7]: [rows] | example --rule rowwise_adagrad --row-state weight.npy
sgd has no such state | example --row-state weight.npy
unknown kernel 'cpu_fused'; known: cpu_lookup | forward --kernel cpu_fused --batch b --out out
give --batch, or --ids, --offsets | forward --kernel cpu_lookup --out out
--winners: no feature has pooling max | forward --kernel cpu_lookup --batch b --winners w --out out
the output goes there | forward --kernel cpu_lookup --batch m --winners out.output.npy --out out
--rows | gradient --kernel cpu_merged --ids ids.npy --offsets offsets.npy --grad grad.npy --out out
grad.npy | gradient --kernel cpu_merged --ids ids.npy --offsets offsets.npy --grad grad.npy --rows 7 --dim 2 --out out
the batch has no per-sample weights | weight-grad --kernel cpu_dot --batch b --out out
"""

# What a file may be instead of the right one: the message, flag, type, shape, values, and further flags.
ARRAYS = [("int32 or int64", "ids", "<f4", "(6,)", [1] * 6, ""),
          ("offsets end at 6 of 7", "ids", "<i8", "(7,)", [1, 2, 6, 1, 3, 6, 7], ""),
          ("id 7 is no row of a table of 7 rows", "ids", "<i8", "(6,)", [1, 2, 6, 1, 3, 7], ""),
          ("one dimension", "ids", "<i8", "(2, 3)", [1, 2, 6, 1, 3, 6], ""),
          ("offsets 4 to 3", "offsets", "<i8", "(4,)", [0, 4, 3, 6], ""),
          ("1 offsets; 1 features of B bags have 1*B + 1, with B from 1", "offsets", "<i8", "(1,)", [6], ""),
          ("offsets start at 1", "offsets", "<i8", "(3,)", [1, 3, 6], ""),
          ("offsets 3 to 9", "offsets", "<i8", "(3,)", [0, 3, 9], ""),
          ("float32", "weight", "<i8", "(7, 1)", [0] * 7, ""),
          ("neither of them 0", "weight", "<f4", "(0, 3)", [], ""),
          ("uint16, ", "grad", "<u2", "(2, 1)", [0, 0], ""),
          ("element [1][0] is inf", "grad", "<f2", "(2, 1)", [0, INF], ""),
          ("unsupported dtype", "grad", "<f8", "(1,)", [0], ""),
          ("shape [2][2], wanted [2][1]", "grad", "<f4", "(2, 2)", [0] * 4, ""),
          ("wanted [6][1]", "grad", "<f4", "(2, 1)", [0, 1], "--pooling none"),
          ("no finite value", "grad", "<f4", "(2, 1)", [3e38, 3e38], ""),  # their sum overflows: no kernel's fault
          ("wanted [6]: one weight for each id", "lookup-weights", "<f4", "(5,)", [1] * 5, ""),
          ("element [3] is inf", "lookup-weights", "<f4", "(6,)", [1, 1, 1, INF, 1, 1], ""),
          ("pooling max takes none", "lookup-weights", "<f4", "(6,)", [1] * 6, "--pooling max"),
          ("winner 3, but it must be", "winners", "<i4", "(2, 1)", [0, 3], "--pooling max"),
          ("winner -2; it is the number", "winners", "<i4", "(2, 1)", [0, -2], "--pooling max"),
          ("winner 2147483648; it is the number", "winners", "<i8", "(2, 1)", [0, 2**31], "--pooling max"),
          ("winners are int32 or int64", "winners", "<f4", "(2, 1)", [0, 0], "--pooling max")]


def test_bad_arrays(folder):
    inside(folder)
    for said, flag, descr, shape, values, more in ARRAYS:
        npy("x.npy", descr, shape, values)
        bad(said, words(f"example --{flag} x.npy {more}"))
    # Rounding decides whether 65519.998 is fp16's infinity: it is written, and has a status of its own.
    tap.script(".", "h.batch", "bags 1\ntable rows 1 dim 1 rule sgd lr 1 weight_type fp16\nfeature table 0\n")
    for name, descr, shape, values in (("ids", "<i8", "(1,)", [0]), ("offsets", "<i8", "(2,)", [0, 1]),
                                       ("grad", "<f4", "(1, 1)", [-65519.998]), ("weight", "<f2", "(1, 1)", [0])):
        npy(f"h.{name}.npy", descr, shape, values)
    bad("cannot be decided: 65519.9961 may be too large for fp16", words("step --kernel cpu_fused --batch h --out h"), status=3)
    assert content("h.weight.npy").endswith(b"\xff\x7b")  # 65504
    # A lookup needs no rule; a batch of no bags does nothing.
    tap.script(".", "h.batch", "table rows 1 dim 1 weight_type fp16\nfeature table 0\n")
    good("forward --kernel cpu_lookup --batch h --out f", "1 lookups")
    for name, descr, shape in (("ids", "<i8", "(0,)"), ("grad", "<f4", "(0, 1)")):
        npy(f"h.{name}.npy", descr, shape, [])
    npy("h.offsets.npy", "<i8", "(1,)", [0])
    good("step --kernel cpu_sort --rule sgd --batch h --out h", "0 lookups, 0 distinct rows")
    good("forward --kernel cpu_lookup --batch h --out h", "0 lookups, 0 distinct rows")
    npy("want.npy", "<f4", "(0, 1)", [])
    assert content("h.output.npy") == content("want.npy")
    assert content("h.weight.npy").endswith(b"\xff\x7b")
    npy("x.npy", "<f4", "(2, 1)", [0, NAN])
    good("example --grad x.npy --no-check --out two", "not checked")
    good("example --out two", "6 lookups, 4 distinct rows")
    npy("want.npy", "<f4", "(7, 1)", [0, -3, -1, -2, 0, 0, -3])
    assert content("two.weight.npy") == content("want.npy")
    os.rename("b.ids.npy", "alone.ids.npy")
    bad("bag b is ids[offsets[b]]", ["stats", "alone.ids.npy"])


DESCRIPTIONS = """
at least one table and one feature |
b.batch:3: bags was given in line 1 already | bags 8;;bags 8
lr twice; write: table rows | T dim 4 rule sgd lr 1 lr 2
b.batch:1: 'tabel' begins no line | tabel rows 20
from 1 to | bags 0
9 offsets; 1 features of 9 bags have 10 | bags 9;T dim 4 rule sgd;F
9 offsets; own bags and 0 features of B bags have 3 + 0*B + 1 | T dim 4 rule sgd;F bags 3
9 offsets; own bags and 1 features of B bags have 9 + 1*B + 1 | T dim 4 rule sgd;F bags 9;F
is incomplete; write: table rows | table rows 20 rule sgd
b.batch:2: a table without a rule; add one there, or --rule | bags 3;T dim 4;F
lr without a rule; name one | T dim 4 lr 1;F
'colour' in this line; write: table | T dim 4 rule sgd colour 3
weight_type is one of fp32, bf16, fp16, fp8, not | T dim 4 rule sgd weight_type fp4
grad_type is one of fp32, bf16, fp16, not | grad_type fp8
seed is a whole number | seed -1
the rule sgd has no momentum | T dim 4 rule sgd momentum 0.9
table '1': there are 1 above | T dim 4 rule sgd;feature table 1
padding 20 is no row | T dim 4 rule sgd;F padding 20
beside another | T dim 4 rule sgd;F;F pooling none
shape [20][4], wanted [21][4] | table rows 21 dim 4 rule sgd;F
b.lookup_weights.npy: cannot | weighted 1;T dim 4 rule sgd;F
"""


def test_bad_descriptions(folder):
    inside(folder)
    step = ["step", "--kernel", "cpu_sort", "--batch", "b", "--out", "out"]
    for line in filter(None, DESCRIPTIONS.split("\n")):
        said, _, text = line.partition(" |")
        lines = [re.sub("^F", "feature table 0", re.sub("^T", "table rows 20", x)) for x in text.strip().split(";")]
        tap.script(".", "b.batch", "\n".join(lines) + "\n")
        bad(said, step)
    tap.script(".", "b.batch", "table rows 20 dim 4 rule sgd\n" * 1025)
    bad("b.batch:1025: more than 1024 tables", step)
    tap.script(".", "b.batch", "PK\0")
    bad("b.batch: a binary file; name a description, which is text", step)
    for make, said in ((os.mkfifo, "a pipe, not a"), (lambda n: os.symlink("/dev/zero", n), "a device, not")):
        os.unlink("b.batch")
        make("b.batch")
        bad(f"b.batch: {said}", step)
    os.unlink("m.weight.1.npy")
    bad("m.weight.1.npy: cannot open", words("step --kernel cpu_sort --batch m --out out"))


def test_stats_and_monitor(folder):
    inside(folder)
    good("stats datasets/smoke.spec --workload sequence --bags 100", "^sequence$", "  bags  *300$")
    good("stats t.txt --bags 2", "  distinct rows  *4 ", r"  hottest row  *2  *33.33 % of the lookups")
    tap.script(".", "c\033.txt", "1\n")
    assert "\033" not in run("stats", "c\033.txt").stdout
    good("monitor datasets/smoke.spec --workload mixed --every 2 --table 2", " ± .* of all rows$")
    good("monitor t.txt --kernel cpu_sort --rule adam", "never touched  *3 ")  # rows 0, 4 and 5
    for text in ("stats datasets/smoke.spec", "monitor datasets/smoke.spec --workload mixed"):
        json.loads(good(f"{text} --json"))
    if shutil.which("gnuplot"):
        for command in ("monitor", "stats"):
            draw = lambda name, **more: run(command, f"{folder}/t.txt", "--plot", f"{folder}/{name}", cwd=tap.ROOT, env=os.environ | more)
            done = draw("plot"), draw("bare", TITLE="0", FONT="Some Font")
            assert all(os.path.getsize(f"{name}.{end}") > 100 for name in ("plot", "bare") for end in ("svg", "png")), done
            title, plot, bare = (content(name).decode() for name in ("bare.txt", "plot.svg", "bare.svg"))
            heading, machine = title.splitlines()
            assert heading.startswith("t") and machine in plot and machine not in bare, title
            assert 'font-family="Some Font"' in bare and "DejaVu" not in bare and not os.path.exists("plot.txt")


def test_steps_go_on(folder):
    """The record beside the tables counts steps and names rules; states of another rule are refused."""
    inside(folder)
    good("step --kernel cpu_fused --batch b --out r", "^cpu_fused, adagrad: 1 step from number 1, .*checked: exact")
    good("step --kernel cpu_sort --batch b --tables r --steps 3e0 --threads 2 --out r", "3 steps from number 2")
    assert b"steps 4\n" in content("r.tables")  # over its own input
    good("step --kernel cpu_sort --batch b --tables r --first-step=9 --out r3", "1 step from number 9")
    assert b"steps 9\n" in content("r3.tables")
    # Hyper-parameters belong to the state: two runs are one, and a clipped norm leaves no scale. Flags go first.
    step = "step --kernel cpu_sort --batch b"
    good(f"{step} --lr 0.5 --weight_decay 0.25 --steps 2 --out h2")
    good(f"{step} --lr 0.5 --weight_decay 0.25 --clip-global-norm 1e9 --out h")
    good(f"{step} --tables h --out h")
    assert content("h.weight.npy") == content("h2.weight.npy") and content("h.tables") == content("h2.tables")
    good(f"{step} --tables h --clip-global-norm 1e-3 --lr 0.125 --out h")
    assert re.search(b" lr 0.125 .* grad_scale 0 .* weight_decay 0.25 ", content("h.tables"))
    tap.script(".", "h.tables", "steps 3\ntable rows 20 dim 4 rule adagrad\n")  # of an older version
    good(f"{step} --tables h --out h", "1 step from number 4")
    assert b" lr 0.00999999978 " in content("h.tables")
    good("step --kernel cpu_hash --rule adam --zero-states --batch m --out r2", "cpu_hash, adam: .*checked: bound")
    good("step --kernel cpu_dense --rule adam --batch b --tables b --zero-states --out a", "idle rows move too")
    own = "step --kernel cpu_sort --rule adam --batch b --out a3 --weight a.weight.npy"
    good(f"{own} --state a.state.0.npy,a.state.1.npy", "adam: 1 step from number 2")
    good(own, "adam: 1 step from number 1")  # weights alone begin anew
    good("example --clip-global-norm 1e-3 --out two", r"global norm [0-9.]*, gradients times [0-9.e-]*, ")
    good("example --clip-global-norm 1e9 --out two", "gradients times 1, ")
    npy("x.npy", "<f4", "(2, 1)", [3e-25, 4e-25])  # their squares underflow in single precision
    good("example --grad x.npy --clip-global-norm 1e-26 --out two", "gradients times 0.0")
    step += " --out out"
    all_bad(f"""
b.tables: the states of table 0 are those of adagrad, not of adam | {step} --rule adam
a.tables: the states of table 0 are those of adam | {step} --weight a.weight.npy --state a.state.0.npy
r2.tables: the states of table 2 are those of adam | {step} --weight b.weight.npy --state r2.state.2.0.npy
""")
    table = "table rows 2 dim 4 rule adam"
    for lines, said in (("steps 1", "steps N and at least one table"), ("steps -1", "steps is a whole number"),
                        ("steps 1\nfeature table 0", ":2: 'feature' begins no line; known: steps, table"),
                        (f"steps 1\n{table}\n{table}", "2 tables; 1 are wanted")):
        tap.script(".", "a.tables", lines + "\n")
        bad(said, words(f"{step} --rule adam --tables a"))


def test_nothing_is_left_where_writing_fails(folder):
    inside(folder)
    shutil.copy("weight.npy", "in.weight.npy")
    os.mkdir("in.state.0.npy")
    bad("in.state.0.npy: cannot write", words("example --rule adagrad --weight in.weight.npy --out in"))
    assert content("in.weight.npy") == content("weight.npy")  # the input is there
    if os.environ.get("SANITIZE") != "thread":  # its own memory is a file
        # clang's OpenMP runtime needs 1 KiB of shared memory, which is also a file.
        bad("out.weight.npy.part: cannot write: File too large",
            ["gen", "--spec-text", "workload w; rows 5000; dim 4; batch 4", "--initial-tables", "--out", "out"],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))


def test_a_program_that_is_stopped_leaves_nothing(folder):
    os.chdir(folder)
    for number in (signal.SIGTERM, signal.SIGHUP):
        os.mkfifo("stopped.batch.part")  # it waits for a reader
        with subprocess.Popen([EMBFUSE, "gen", "--spec-text", "workload w; rows 9; dim 4; batch 4; length fixed 1",
                               "--initial-tables", "--out", "stopped"], stdout=subprocess.PIPE,
                              preexec_fn=lambda number=number: signal.signal(number, signal.SIG_DFL)) as process:
            while not all(os.path.exists(f"stopped.{name}.npy.part") for name in ("ids", "offsets", "grad", "weight")):
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(number)
            assert process.wait() == -number, process.returncode
        # A program that has not come to the FIFO does not know it.
        assert set(os.listdir(".")) <= {"stopped.batch.part"}, os.listdir(".")
        if os.listdir("."):
            os.remove("stopped.batch.part")


def test_a_kernel_that_is_wrong_only_in_step_1(folder):
    planted = os.path.join(tap.ROOT, "build", "planted", "embfuse")
    if tap.BUILD != os.path.join(tap.ROOT, "build") or not os.path.exists(planted):
        raise tap.Skip("planted kernels are built once, in the plain build")
    inside(folder)
    good(f"gen --spec-text '{POOLED.replace('adagrad', 'adam')}' --initial-tables --out q")
    step = ["step", "--kernel", "planted_first_step", "--batch", "q", "--out", "out"]
    bad("wrong result at step 1: table 0 row", [*step, "--steps", "3"], status=2, program=planted)
    done = run(*step, "--steps", "2", "--first-step", "2", program=planted)
    assert done.returncode == 0 and "2 steps from number 2" in done.stdout, done


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "cli"))
