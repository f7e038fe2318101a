#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of make claims (studies/claims/): every verdict of every claim on planted records, what is missing, bad
input, and that the page in the repository is what the program writes today."""
import glob
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import ROOT

HERE = os.path.join(ROOT, "studies", "claims")
sys.path.insert(0, HERE)
import claim
import learned
import page
import results
from claim import CLAIMS, HOLDS, NOT, ONLY, UNKNOWN, Case
from spoiled import equal, made_up, series

TYPES = {"w/weight_type:fp32": "", "w/weight_type:bf16": "weight_type bf16 "}


# --- planted records
def write(folder, name, *rows, **more):
    context = {f"emb_workload_{w}": f"rows 1 {types}seed 42" for w, types in TYPES.items()}
    return made_up(folder, name, *rows, **context | more)


def verdict(folder, number, *rows, **context):
    """That of a claim on one planted record, the first that it reads."""
    name = CLAIMS[number].needs[0]
    found = CLAIMS[number].find({name: results.load(write(folder, name, *rows, **context))})
    return page.verdict(CLAIMS[number], found), found


def verdicts(folder, number, rows, want):
    equal(str(verdict(folder, number, *rows)[0]), want)


def all_verdicts(folder, number, good, bad, when):
    """The three verdicts of rows that meet the criterion, of others, and of both."""
    for rows, word, text in ((good, HOLDS, ""), (bad, NOT, ""), (good + bad, ONLY, when)):
        got, _ = verdict(folder, number, *rows)
        equal((number, got.word, got.when), (number, word, text))


# --- the verdict
def test_a_verdict_has_a_limit_or_names(_folder):
    axis = ("size", "{:g}".format)
    cases = lambda *oks: [Case(f"c{i}", "", ok, float(i)) for i, ok in enumerate(oks)]
    for oks, want in (((True, True), "holds"), ((False, False), "does not hold"), ((None,), "not measured"),
                      ((), "not measured"),
                      ((True, True, False), "only when size is at most 1 (not from 2 on)"),
                      ((False, True, None), "only when size is at least 1 (not up to 0)"),
                      ((False, True, False), "only when it is one of: c1 (1 of 3 cases)"),
                      ((True, False, True), "only when it is none of: c1 (2 of 3 cases)"),
                      ((True, True, True, True, True, False, True, False, False, False),
                       "only when size is at most 4 (not from 7 on)"),
                      ((True,) * 10 + (False,) * 5 + (True,), "only when size is at most 9 (elsewhere in 1 of 6 cases)"),
                      ((True, False) * 5, "only when it is one of: c0; c2; c4; c6 and 1 more (5 of 10 cases)")):
        equal(str(claim.judge(cases(*oks), axis)), want)
    nowhere = [Case("a", "", True), Case("b", "", False)]
    equal(str(claim.judge(nowhere, axis)), "only when it is one of: a (1 of 2 cases)")


def test_every_claim_is_in_a_test_of_verdicts(_folder):
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    equal(sorted(CLAIMS), list(range(1, 16)))
    for number in CLAIMS:
        assert f"(folder, {number}," in text or f"of_page({number}," in text, number


# --- claims of counts
def test_redundant_work(folder):
    all_verdicts(folder, 1, [series("a", "cpu_fused", distinct=890)], [series("b", "cpu_fused", distinct=910)],
                 "the share of distinct lookups is at most 89 % (not from 91 % on)")


def test_untouched_rows(folder):
    all_verdicts(folder, 2, [series("a", "cpu_fused", rule="adam")],
                 [series("a", "cpu_dense", rule="adam", operation="dense")], "it is one of: cpu_fused (1 of 2 cases)")
    wrong = [row | {"error_occurred": True, "error_message": "WRONG RESULT: row 3"} for row in series("a", "cpu_sort")]
    got, found = verdict(folder, 2, wrong, series("a", "cpu_fused"))
    equal(str(got), "only when it is one of: cpu_fused (1 of 2 cases)")
    assert Case("cpu_sort", "a check failed", False) in found.cases, found


def memory(workload, fused, dense, sort, distinct):
    """Peaks in MiB beyond 10 MiB of weights; the gradient of all 10,000 rows has 100 MiB."""
    counters = {"distinct": distinct, "scratch_mib": 100}
    return [series(workload, k, peak_mib=10 + peak, **counters)
            for k, peak in (("cpu_fused", fused), ("cpu_dense", dense), ("cpu_sort", sort))]


def test_memory_of_the_gradient(folder):
    good, bad = memory("a", 5, 100, 100, 9000), memory("b", 11, 100, 16, 1000)
    all_verdicts(folder, 3, good, bad, "it is one of: a, dense; a, sparse (2 of 4 cases)")
    verdicts(folder, 3, good + memory("c", 5, 100, 12, 1000),
             "only when the gradient is at least 90.0 MiB (not up to 10.0 MiB)")
    _, found = verdict(folder, 3, *good)
    equal([c.figure for c in found.cases], ["5.00 / 100", "5.00 / 100"])


def test_volume(folder):
    """A row of 64 floats and its number have 264 bytes."""
    all_verdicts(folder, 5, [series("a", "cpu_fused", distinct=900)], [series("b", "cpu_fused", distinct=1000)],
                 "the share of touched rows is at most 9.0 % (not from 10 % on)")
    _, found = verdict(folder, 5, series("zipf/alpha:0", "cpu_fused", distinct=1000),
                       series("zipf/alpha:1", "cpu_fused", distinct=500, alpha=1))
    equal([c.figure for c in found.cases], ["89.69 % (89.69 %)", "94.84 % (89.69 %)"])
    assert "Along alpha (zipf/...): only when it is at least 1 (not up to 0)." in found.note, found.note


def test_bytes_of_a_table(folder):
    """Of a table of 64 floats a row; persistent MiB are those of 2^20 rows."""
    rule = lambda name, row: [series("a", "cpu_fused", rule=name, rows=2**20, persistent_mib=row)]
    for rows, want in ((rule("sgd", 256), HOLDS), (rule("adam", 768), "only when the state of a row is at most 0 bytes "
                                                                     "(not from 1,024 bytes on)")):
        got, found = verdict(folder, 11, *rows)
        equal(str(got), want)
    equal([c.figure for c in found.cases], ["244.1", "732.4 (adam)"])
    verdicts(folder, 11, rule("rowwise_adagrad", 260), HOLDS)


# --- claims of times
def pair(workload, fused, sort, **counters):
    return [series(workload, "cpu_fused", fused, **counters), series(workload, "cpu_sort", sort, **counters)]


def test_fused_is_faster(folder):
    all_verdicts(folder, 4, pair("a", 10, 11), pair("b", 11, 10), "it is one of: a/rowwise_adagrad (1 of 2 cases)")
    _, found = verdict(folder, 4, *pair("a", 10, 11), *pair("b", 12, 10, threads=1, persistent_mib=3))
    equal(found.note, "Not the fastest at 1 of 2 points (threads: 1 there, 1 to 2 at all points; MiB of weights and "
                      "states: 3 there, 3 to 10 at all points).")
    equal(found.cases[0].figure, "1 of 2, at most 1.20x")


def test_no_difference_is_no_loss(folder):
    verdicts(folder, 4, [series("a", "cpu_fused", [10.0, 11.0, 12.0, 13.0, 14.0]),
                         series("a", "cpu_sort", [9.9, 11.1, 12.1, 13.1, 13.9])], HOLDS)


def growth(rows, dense, fused):
    name = f"rows-{rows}"
    return [series(name, "cpu_dense", dense, rows=rows), series(name, "cpu_fused", fused, rows=rows)]


def test_cost_of_the_table(folder):
    first, good, bad = growth(1000, 10, 10), growth(10000, 30, 15), growth(10000, 29, 10)
    verdicts(folder, 6, first + good, HOLDS)
    verdicts(folder, 6, first + bad, NOT)
    verdicts(folder, 6, first + bad + growth(100000, 290, 15),
             "only when the larger table is at least 100k rows (not up to 10k rows)")
    verdicts(folder, 6, first, UNKNOWN)


def sort_of(workload, share, distinct):
    return [series(workload, "cpu_sort", 10, index_ms=share * 10e-3, distinct=distinct)]


def test_sorting(folder):
    all_verdicts(folder, 7, sort_of("a", 0.6, 100), sort_of("b", 0.4, 900),
                 "the share of distinct lookups is at most 10 % (not from 90 % on)")


def skew(atomic, best):
    return [x for alpha, own, other in zip((0, 1, 1.2), atomic, best)
            for x in (series(f"zipf/alpha:{alpha}", "cpu_atomic", own, alpha=alpha),
                      series(f"zipf/alpha:{alpha}", "cpu_fused", other, alpha=alpha))]


def test_atomics(folder):
    for atomic, best, want, note in (((10, 20, 30), (10, 10, 10), HOLDS, "Without skew it does not lose."),
                                     ((50, 60, 70), (10, 10, 10), HOLDS, "It loses without skew, too."),
                                     ((50, 40, 30), (10, 10, 10), NOT, "It loses"),
                                     ((1, 2, 3), (10, 10, 10), NOT, "Without skew"),
                                     ((5, 6, 50), (10, 10, 10), "only when alpha is at least 1.2 (not up to 1)",
                                      "Without skew")):
        got, found = verdict(folder, 8, *skew(atomic, best))
        equal(str(got), want)
        assert note in found.note, found.note
    verdicts(folder, 8, [series("zipf/alpha:0", "cpu_atomic")], UNKNOWN)


def test_determinism(folder):
    free = lambda workload, ns: [series(workload, "cpu_atomic", ns), series(workload, "cpu_fused", 10)]
    all_verdicts(folder, 13, free("a", 9), free("b", 11), "it is one of: a (1 of 2 cases)")


def test_bf16(folder):
    plain, good, bad = (series(w, "cpu_fused", ns) for w, ns in (("w/weight_type:fp32", 10), ("w/weight_type:bf16", 5),
                                                                  ("w/weight_type:bf16", 9)))
    verdicts(folder, 14, [plain, good], HOLDS)
    verdicts(folder, 14, [plain, bad], NOT)
    adam = [series(w, "cpu_fused", ns, rule="adam") for w, ns in (("w/weight_type:fp32", 10), ("w/weight_type:bf16", 5))]
    verdicts(folder, 14, [plain, bad, *adam], "only when it is one of: w, adam: bf16 (1 of 2 cases)")


def test_compilers(folder):
    built = lambda workload, ratio: [series(workload, "cpu_fused@gcc", 10),
                                     series(workload, "cpu_fused@clang", 10 * ratio)]
    which = {"emb_var_COMPILERS": "gcc clang", "emb_bits_0": "same bits: 9 results"}
    for rows, want in ((built("a", 1.04), HOLDS), (built("b", 1.06), NOT), (built("c", 0.9), NOT),
                       (built("a", 1.04) + built("b", 2),
                        "only when it is one of: a/cpu_fused, clang/gcc (1 of 2 cases)")):
        got, found = verdict(folder, 15, *rows, **which)
        equal((str(got), found.note), (want, "Bits of exact results: same bits: 9 results."))
    noise = [series("a", "cpu_fused@gcc", [10.0, 12.0, 20.0, 30.0]),
             series("a", "cpu_fused@clang", [10.1, 13.0, 21.0, 29.0])]
    got, found = verdict(folder, 15, *noise, **which)
    equal((str(got), found.cases[0].figure[-1]), (UNKNOWN, "?"))


# --- claims of pages
def of_page(number, **pages):
    """The verdict of a claim on pages with these tables."""
    records = {f"docs/{name}.md": text if isinstance(text, list) else [text] for name, text in pages.items()}
    return str(page.verdict(CLAIMS[number], CLAIMS[number].find(records)))


def drift(way, **rules):
    return {rule: {"rule": rule, f"{way}, 1 step": first, f"{way}, 9 steps": last}
            for rule, (first, last) in rules.items()}


def test_one_by_one(_folder):
    table = lambda adagrad, adam: drift("one by one", sgd=("1e-6", "0.5"), adagrad=("0.5", adagrad), adam=("0.5", adam))
    equal(of_page(9, drift=table("0.02", "1.7e+05")), HOLDS)
    equal(of_page(9, drift=table("0.01", "1e-05")), NOT)
    equal(of_page(9, drift=table("0.01", "0.02")), "only when it is one of: adam (1 of 2 cases)")


def test_lazy_and_dense(_folder):
    auc = lambda text: {"adam, dense": {"variant": "adam, dense", "against": "adam", "AUC, end": text}}
    far, near = drift("dense", adam=("0", "0.5")), drift("dense", adam=("0.5", "0"))
    equal(of_page(10, drift=far, training=auc("-0.0027 ± 0.0006")), HOLDS)
    equal(of_page(10, drift=near, training=auc("0.0000 ± 0.0001")), NOT)
    equal(of_page(10, drift=far, training=auc("0.0000 ± 0.0001")),
          "only when it is one of: weights of adam (1 of 2 cases)")
    equal(of_page(10, drift=far), HOLDS)


def test_row_wise(_folder):
    model = lambda auc, loss: {rule: {"rule": rule, "AUC": a, "log loss": b} for rule, a, b in
                               (("adagrad", "0.75 ± 0.01", "0.47 ± 0.01"), ("rowwise_adagrad", auc, loss))}
    equal(of_page(12, training=model("0.745 ± 0.001", "0.475 ± 0.001")), HOLDS)
    equal(of_page(12, training=model("0.70 ± 0.01", "0.50 ± 0.01")), NOT)
    equal(of_page(12, training=model("0.80 ± 0.01", "0.50 ± 0.01")), "only when it is one of: AUC (1 of 2 cases)")


# --- the page
def repository(folder, *machines):
    """A folder with the pages that claims read, and records of these machines; returns (page, folders)."""
    docs = os.path.join(folder, "docs")
    os.makedirs(docs)
    for name in learned.MADE_BY:
        shutil.copy(os.path.join(ROOT, name), docs)
    folders = []
    for machine in machines:
        own = os.path.join(folder, "reports", "results", machine)
        os.makedirs(own)
        write(own, "standard", *pair("a", 10, 11))
        folders.append(own)
    return os.path.join(docs, "claims.md"), folders


def run(*words):
    return subprocess.run([sys.executable, "-B", os.path.join(HERE, "page.py"), *words], capture_output=True, text=True,
                          check=False)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_the_page_of_the_repository_is_of_today(folder):
    out, _ = repository(folder)
    machines = sorted(os.path.dirname(p) for p in glob.glob(os.path.join(ROOT, "reports/results/*/standard.json")))
    os.symlink(os.path.join(ROOT, "reports"), os.path.join(folder, "reports"))
    done = run(out, *(os.path.join(folder, os.path.relpath(m, ROOT)) for m in machines))
    equal((done.returncode, done.stderr), (0, ""))
    equal(read(out) == read(os.path.join(ROOT, "docs", "claims.md")) or "docs/claims.md is old: run make claims", True)


def test_missing_records_are_named(folder):
    out, (own,) = repository(folder, "m1")
    done = run(out, own)
    equal((done.returncode, done.stderr), (0, ""))
    text = read(out)
    for line in ("- m1: **not measured**; `make record NAME=m1 STEPS=scaling` measures it",
                 "- m1: **not measured**; `make record NAME=m1 STEPS=compilers` measures it",
                 "| [4. Fused is faster](#4-fused-is-faster) | holds |  |", "| standard | 1 of 1, at most 1.00x ✓ |",
                 "| [m1/standard.json](../reports/results/m1/standard.json) | c0ffee | 2024-01-02 |"):
        assert line in text, (line, text)


def test_bad_input_is_one_line_and_keeps_the_page(folder):
    out, (own,) = repository(folder, "m1")
    with open(out, "w", encoding="utf-8") as file:
        file.write("old")
    record, drift_page = os.path.join(own, "standard.json"), os.path.join(folder, "docs", "drift.md")
    good, drift_text = read(record), read(drift_page)

    def fails(why, *folders):
        done = run(out, *(folders or [own]))
        assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1, done
        equal(read(out), "old")

    for text, why in ((good[:100], "not JSON"), (good.replace('"emb_schema": "1"', '"emb_schema": "9"'), "schema 9"),
                      ("{}", "not an embfuse result")):
        with open(record, "w", encoding="utf-8") as file:
            file.write(text)
        fails(why)
    with open(record, "w", encoding="utf-8") as file:
        file.write(good)
    write(own, "traces", *pair("a", 10, 11), emb_cpu="Another CPU")
    fails("results of several machines are not merged")
    os.unlink(os.path.join(own, "traces.json"))
    fails("holds no result", folder)
    for text, why in ((drift_text.replace("one by one, ", "x, "), "no table with 'one by one'"),
                      (drift_text.replace("| 0.54 |", "| nan |"), "'nan' is no number")):
        with open(drift_page, "w", encoding="utf-8") as file:
            file.write(text)
        fails(why)
    os.unlink(drift_page)
    fails("make drift writes this page")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "claims"))
