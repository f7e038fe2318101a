#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of studies/compilers.py: the table on synthetic samples, and whole runs with stand-ins for
make, the compilers and what they build."""
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, ROOT, script, tool
import compilers
import results

# A stand-in for make: it writes both programs of a compiler.
FAKE_MAKE = '''#!{python}
import os, sys
given = dict(a.split("=", 1) for a in sys.argv[1:] if "=" in a)
if given.get("CC") == "{broken}" or given["NVCC"] or ("CC" in given) == ("NATIVE" in given):
    sys.exit(2)
os.makedirs(given["B"], exist_ok=True)
for name, text in (("bench", {bench!r}), ("embfuse", {embfuse!r})):
    path = os.path.join(given["B"], name)
    with open(path, "w") as file:
        file.write("#!{python}\\nimport os\\nDIFFERS = {differs!r}\\nCC = os.environ.get('EMBFUSE_ISA') or %r\\n"
                   % given.get("CC") + text)
    os.chmod(path, 0o755)
'''
# Logs its options; clang takes twice as long as gcc.
FAKE_BENCH = '''
import json, sys
given = dict(a[2:].split("=", 1) for a in sys.argv[1:])
if given.get("rule") == "none":
    sys.exit("[0/1] measuring\\nbench: unknown rule 'none'")
with open({log!r}, "a") as file:
    file.write(json.dumps([CC, given]) + "\\n")
ms = 1.0 if CC == "gcc" else 2.0
wrong = CC == "clang" and {wrong!r}
row = lambda k: dict(name=f"w/sgd/{k}/cold/manual_time", run_type="iteration", real_time=ms,
    time_unit="ms", lookups=1000, ns_per_lookup=1e3 * ms, disturbed=int(CC == "clang"),
    label=f"workload=w rule=sgd kernel={k} mode=cold place=host operation=lazy check=exact "
          "fingerprint=aa placement=same")
context = dict(emb_schema="1", num_cpus=2, emb_load_worst="3" if CC == "icx" else "0.5",
    emb_disturbed_samples="1", emb_cpu="A CPU", emb_compiler=CC + " 1.0", emb_flags="-O3 -Ibuild/" + CC,
    emb_kernel_os="Linux", emb_kernel_cpu_a="cpu | host | deterministic | first | An idea.",
    emb_kernel_cpu_b="cpu | host | none | second | Another.")
if wrong:
    context["emb_not_run_0"] = "w | cpu_b | WRONG RESULT: row 3"
kernels = ["cpu_a"] if wrong else ["cpu_a", "cpu_b"]
with open(given["out"] + "/bench.json", "w") as file:
    json.dump(dict(context=context, benchmarks=[row(k) for k in kernels]), file)
sys.exit(2 if wrong else 0)
'''
FAKE_EMBFUSE = '''
import json, re, sys
at = lambda flag: sys.argv[sys.argv.index(flag) + 1]
if sys.argv[1] == "list":
    kernel = lambda n, place: dict(name=n, place=place, operation="step", rules=["sgd", "adam"],
                                   traits=["deterministic"] * (n == "cpu_a"))
    print(json.dumps(dict(kernels=[kernel("cpu_a", "host"), kernel("cpu_b", "host"),
        kernel("cuda_a", "device")], rules=[dict(name="sgd"), dict(name="adam")])))
elif sys.argv[1] == "gen":
    with open(sys.argv[2]) as spec, open(at("--out") + ".batch", "w") as batch:
        rules = set(re.findall(r"rule (\\w+)", spec.read()))
        assert len(rules) == 1, rules
        batch.write(rules.pop())
else:
    with open(at("--batch") + ".batch") as batch:
        case = (CC, at("--kernel"), batch.read())
    for what in ("weight.0", "weight.1"):
        with open(at("--out") + "." + what + ".npy", "wb") as file:
            file.write(b"other" if what == "weight.1" and list(case) == DIFFERS else b"bytes")
    print("checked:", {check!r})
'''


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def run(folder, *args, differs=(), wrong=False, check="exact", broken=""):
    """A run with stand-ins for make and for three compilers."""
    bench = FAKE_BENCH.replace("{log!r}", repr(os.path.join(folder, "log"))).replace(
        "{wrong!r}", repr(wrong))
    make = script(folder, "make", FAKE_MAKE.replace("{python}", sys.executable).replace(
        "{bench!r}", repr(bench)).replace("{embfuse!r}", repr(FAKE_EMBFUSE.replace(
            "{check!r}", repr(check)))).replace("{differs!r}", repr(list(differs))).replace(
                "{broken}", broken))
    for name in ("gcc", "clang", "icx"):
        script(folder, name, "#!/bin/sh\n")
    out = os.path.join(folder, "out")
    return out, subprocess.run(
        [sys.executable, tool("compilers.py"), *args, "--make", make, "--builds",
         os.path.join(folder, "builds"), "--out", out], text=True, cwd=ROOT, capture_output=True,
        check=False, encoding="utf-8", errors="replace",
        env=dict(os.environ, PATH=folder + os.pathsep + os.environ["PATH"], PYTHONIOENCODING="utf-8",
                 PYTHONDONTWRITEBYTECODE="1"))


def calls(folder):
    with open(os.path.join(folder, "log"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def error(done, *words_):
    equal(done.returncode, 1)
    equal(len([x for x in done.stderr.strip().splitlines() if not x.startswith("[")]), 1)
    for word in words_:
        assert word in done.stderr, f"{word!r} not in {done.stderr!r}"


def synthetic(folder, times):
    """A saved result: {kernel@compiler: milliseconds of a thousand lookups}."""
    rows = [dict(name=k, run_type="iteration", real_time=ms, time_unit="ms", lookups=1000,
                 label=f"workload=w rule=sgd kernel={k} mode=cold fingerprint=aa")
            for k, samples in times.items() for ms in samples]
    context = dict(emb_schema="1", emb_cpu="A CPU", emb_var_COMPILERS="gcc clang")
    path = script(folder, "r.json", json.dumps(dict(context=context, benchmarks=rows)))
    return {x.split(" | ")[1]: x.strip("| ").split(" | ") for x in compilers.table(results.load(path))
            if x.startswith("| w |")}


def test_ratios_and_what_is_within_noise(folder):
    base = [1.00, 1.01, 0.99, 1.02, 0.98]
    lines = synthetic(folder, {
        "slow@gcc": base, "slow@clang": [2 * x for x in base],
        "fast@gcc": base, "fast@clang": [0.5 * x for x in base],
        "same@gcc": base, "same@clang": [x + 0.01 for x in base],
        "noisy@gcc": base, "noisy@clang": [0.9, 1.5, 1.1, 0.8, 1.3],
        "few@gcc": base[:2], "few@clang": [2.0, 2.01], "alone@gcc": base})
    equal(lines["slow"], ["w", "slow", "1000", "1.0", "2000", "1.0", "2.00"])
    equal(lines["fast"][4:], ["500", "1.0", "0.50"])
    equal(lines["same"][-1], "=")
    equal(lines["noisy"][-1], "1.10 ?")
    equal(lines["few"][-1], "2.00 ?")
    equal(lines["alone"][4:], ["-", "-", "-"])


def test_the_table_of_another_result_is_refused(folder):
    error(run(folder, "--table", GOLDEN)[1], "not a result of several compilers")


def test_a_spec_gets_one_rule_for_all(folder):
    text = "workload a\n    dim 4\n    rule adam\nworkload b\n    alpha 0 1\n"
    equal(compilers.of_rule(text, "sgd"),
          "workload a\n    rule sgd\n    dim 4\nworkload b\n    rule sgd\n    alpha 0 1\n")


def test_compilers_take_turns_and_all_samples_are_kept(folder):
    out, done = run(folder, "gcc", "clang", "icx", "--reps=5")
    equal((done.returncode, done.stderr.count("round 5 of 5")), (0, 3))
    order = [c for c, _ in calls(folder)]
    equal(order, (["gcc", "clang", "icx", "icx", "clang", "gcc"] * 3)[:15])
    equal({(g["reps"], g["place"], g["modes"], g["rule"]) for _, g in calls(folder)},
          {("1", "host", "cold", "rowwise_adagrad")})
    equal([calls(folder)[0][1]["filter"].count(k) for k in ("cpu_a", "cpu_b")], [4, 1])
    result = results.load(os.path.join(out, "bench.json"))
    equal([(s.kernel.name, len(s.samples)) for s in result.series][:3],
          [("cpu_a@gcc", 5), ("cpu_b@gcc", 5), ("cpu_a@clang", 5)])
    equal(list(result.kernels), [f"cpu_{k}@{c}" for k in "ab" for c in ("gcc", "clang", "icx")])
    equal(result.kernels["cpu_b@icx"].label, "second@icx")
    equal(result.context["emb_compiler"], "gcc 1.0; clang 1.0; icx 1.0")
    assert "| w | cpu_a | 1000 | 0.0 | 2000 | 0.0 | 2.00 | 2000 | 0.0 | 2.00 |" in done.stdout, done.stdout
    assert "clang/gcc, geometric mean of the workloads: cpu_a 2.00, cpu_b 2.00; all 2.00" in done.stdout
    equal(done.stdout.strip().splitlines()[-1], "- same bits: 16 results")  # 2 kernels, 2 rules, 4 batches
    equal(done.stdout.splitlines()[:2],
          ["**10 of 30 samples disturbed, load 3.0 on 2 CPUs: do not quote**", ""])
    equal(result.context["emb_disturbed_samples"], "15")  # every round of every compiler
    assert not os.path.exists(os.path.join(out, "work")), "files of the run are left behind"
    table = subprocess.run([sys.executable, tool("table.py"),
                            os.path.join(out, "bench.json")], text=True, capture_output=True, check=False)
    assert "cpu_b@clang" in table.stdout, table.stderr


def test_levels_are_of_one_build(folder):
    out, done = run(folder, "avx2", "plain", "--levels", "--reps=2")
    equal((done.returncode, done.stderr.count("building with")), (0, 1))
    equal([c for c, _ in calls(folder)], ["avx2", "plain", "plain", "avx2"])
    result = results.load(os.path.join(out, "bench.json"))
    equal(list(result.kernels), [f"cpu_{k}@{c}" for k in "ab" for c in ("avx2", "plain")])
    assert "| workload | kernel | avx2 | ±% | plain | ±% | plain/avx2 |" in done.stdout, done.stdout
    error(run(folder, "plain", "--levels")[1], "LEVELS='plain'", "two or more")


def test_other_bits_are_found_and_change_the_status(folder):
    _, done = run(folder, "gcc", "clang", "--reps=1", differs=("clang", "cpu_b", "adam"))
    equal(done.returncode, 2)
    equal([x for x in done.stdout.splitlines() if "bits" in x.lower()],
          ["- OTHER BITS: cpu_b, clang and gcc: 4 results, such as adam ragged/alpha:1 weight.1.npy"])
    _, done = run(folder, "gcc", "clang", "--reps=1", differs=("clang", "cpu_b", "adam"), check="bound")
    equal(done.returncode, 0)
    assert "same bits: 0 results" in done.stdout


def test_a_wrong_result_has_no_time(folder):
    _, done = run(folder, "gcc", "clang", "--reps=2", wrong=True)
    equal(done.returncode, 2)
    assert "| w | cpu_b | 1000 | 0.0 | - | - | - |" in done.stdout, done.stdout
    assert "FAILED cpu_b@clang on w: WRONG RESULT: row 3" in done.stdout


def test_a_filter_chooses_among_the_default_workloads(folder):
    run(folder, "gcc", "clang", "--reps=1", "--filter=alpha:(0|1.05)/.*cpu_a")
    equal(calls(folder)[0][1]["filter"], r"^(zipf/alpha:0/rowwise_adagrad/cpu_a/cold|"
                                         r"zipf/alpha:1\.05/rowwise_adagrad/cpu_a/cold)$")
    os.unlink(os.path.join(folder, "log"))
    run(folder, "gcc", "clang", "--reps=1", "--filter=cpu_(a", "--spec=mine.spec", "--rule=adam")
    equal({k: calls(folder)[0][1].get(k) for k in ("filter", "spec", "rule")},
          {"filter": "cpu_(a", "spec": "mine.spec", "rule": "adam"})


def test_bad_input_is_one_line(folder):
    for args, words_ in (((), ["name two or more"]), (("gcc",), ["COMPILERS='gcc'"]),
                         (("gcc", "gcc"), ["each once"]), (("gcc", "no-such-cc"), ["no 'no-such-cc'"]),
                         (("gcc", "clang", "--reps=many"), ["REPS: 'many'", "1 to 1000"]),
                         (("gcc", "clang", "--reps=0"), ["REPS: '0'"]),
                         (("gcc", "clang", "--place=device"), ["PLACE"]),
                         (("gcc", "clang", "--filter=("), ["FILTER='('"]),
                         (("gcc", "clang", "--filter=nothing"), ["FILTER='nothing' matches none"]),
                         (("gcc", "clang", "--rule=none"), ["bench: unknown rule 'none'"]),
                         (("gcc", "clang", "--wrong=1"), ["unrecognized"])):
        error(run(folder, *args)[1], "compilers.py: ", *words_)
    error(run(folder, "gcc", "clang", broken="clang")[1], "clang could not build")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "compilers"))
