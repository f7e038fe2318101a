#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of make claims (extras/studies/claims/): every verdict of every claim on planted records, what is missing, bad
input. test_reproduce.py compares the page in the repository."""
import os
import shutil
import subprocess
import sys
from unittest import mock

sys.dont_write_bytecode = True
import tap
from tap import ROOT

HERE = os.path.join(ROOT, "extras", "studies", "claims")
sys.path.insert(0, HERE)
import claim
import learned
import page
import results
from claim import CLAIMS, HOLDS, NOT, UNKNOWN, Case
from made_results import made_up, series
from spoiled import equal, one_line_error, save

TYPES = {"w/weight_type:fp32": "", "w/weight_type:bf16": "weight_type bf16 "}


# --- planted records
def write(folder, name, *rows, **more):
    context = {f"emb_workload_{w}": f"rows 1 {types}seed 42" for w, types in TYPES.items()}
    return made_up(folder, name, *rows, **context | more)


def verdict(folder, number, *rows, **context):
    """That of a claim on one planted record, the first that it reads."""
    name = CLAIMS[number].needs[0]
    found = CLAIMS[number].find({name: results.load(write(folder, name, *rows, **context))})
    return str(page.verdict(CLAIMS[number], found)), found


def verdicts(folder, number, *rows_and_wants):
    for rows, want in rows_and_wants:
        equal((number, verdict(folder, number, *rows)[0]), (number, want))


def all_verdicts(folder, number, good, bad, when):
    """The three verdicts of rows that meet the criterion, of others, and of both."""
    verdicts(folder, number, (good, HOLDS), (bad, NOT), (good + bad, f"only when {when}"))


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


# --- claims of counts
def memory(workload, fused, dense, sort, distinct):
    """Peaks in MiB beyond 10 MiB of weights; the gradient of all 10,000 rows has 100 MiB."""
    counters = {"distinct": distinct, "scratch_mib": 100}
    return [series(workload, k, peak_mib=10 + peak, **counters)
            for k, peak in (("cpu_fused", fused), ("cpu_dense", dense), ("cpu_sort", sort))]


def test_claims_of_counts(folder):
    fused = lambda workload, distinct: [series(workload, "cpu_fused", distinct=distinct)]
    all_verdicts(folder, 1, fused("a", 890), fused("b", 910),
                 "the share of distinct lookups is at most 89 % (not from 91 % on)")
    all_verdicts(folder, 2, [series("a", "cpu_fused", rule="adam")],
                 [series("a", "cpu_dense", rule="adam", operation="dense")], "it is one of: cpu_fused (1 of 2 cases)")
    wrong = [row | {"error_occurred": True, "error_message": "WRONG RESULT: row 3"} for row in series("a", "cpu_sort")]
    assert Case("cpu_sort", "a check failed", False) in verdict(folder, 2, wrong, series("a", "cpu_fused"))[1].cases
    good, bad = memory("a", 5, 100, 100, 9000), memory("b", 11, 100, 16, 1000)
    all_verdicts(folder, 3, good, bad, "it is one of: a, dense; a, sparse (2 of 4 cases)")
    equal([c.figure for c in verdict(folder, 3, *good)[1].cases], ["5.00 / 100", "5.00 / 100"])
    all_verdicts(folder, 5, fused("a", 900), fused("b", 1000),  # a row of 64 floats and its number have 264 bytes
                 "the share of touched rows is at most 9.0 % (not from 10 % on)")
    rule = lambda name, row: [series("a", "cpu_fused", rule=name, rows=2**20, persistent_mib=row)]
    verdicts(folder, 11, (rule("sgd", 256), HOLDS), (rule("rowwise_adagrad", 260), HOLDS),
             (rule("adam", 768), "only when the state of a row is at most 0 bytes (not from 1,024 bytes on)"))
    equal([c.figure for c in verdict(folder, 11, *rule("adam", 768))[1].cases], ["244.1", "732.4 (adam)"])


# --- claims of times
def pair(workload, fused, sort, **counters):
    return [series(workload, "cpu_fused", fused, **counters), series(workload, "cpu_sort", sort, **counters)]


def growth(rows, dense, fused):
    name = f"rows-{rows}"
    return [series(name, "cpu_dense", dense, rows=rows), series(name, "cpu_fused", fused, rows=rows)]


def skew(atomic, best):
    return [x for alpha, own, other in zip((0, 1, 1.2), atomic, best)
            for x in (series(f"zipf/alpha:{alpha}", "cpu_atomic", own, alpha=alpha),
                      series(f"zipf/alpha:{alpha}", "cpu_fused", other, alpha=alpha))]


def test_claims_of_times(folder):
    all_verdicts(folder, 4, pair("a", 10, 11), pair("b", 11, 10), "it is one of: a/rowwise_adagrad (1 of 2 cases)")
    no_difference = pair("a", [10.0, 11.0, 12.0, 13.0, 14.0], [9.9, 11.1, 12.1, 13.1, 13.9])
    verdicts(folder, 4, (no_difference, HOLDS))
    _, found = verdict(folder, 4, *pair("a", 10, 11), *pair("b", 12, 10, threads=1, persistent_mib=3))
    equal((found.cases[0].figure, found.note.partition(";")[0]),
          ("1 of 2, at most 1.20x", "Not the fastest at 1 of 2 points (threads: 1 there, 1 to 2 at all points"))
    first, good, bad = growth(1000, 10, 10), growth(10000, 30, 15), growth(10000, 29, 10)
    verdicts(folder, 6, (first, UNKNOWN), (first + good, HOLDS), (first + bad, NOT),
             (first + bad + growth(100000, 290, 15),
              "only when the larger table is at least 100k rows (not up to 10k rows)"))
    sort = lambda workload, share, distinct: [series(workload, "cpu_sort", 10, index_ms=share * 10e-3, distinct=distinct)]
    all_verdicts(folder, 7, sort("a", 0.6, 100), sort("b", 0.4, 900),
                 "the share of distinct lookups is at most 10 % (not from 90 % on)")
    verdicts(folder, 8, (skew((10, 20, 30), (10,) * 3), HOLDS), (skew((50, 40, 30), (10,) * 3), NOT),
             (skew((1, 2, 3), (10,) * 3), NOT), ([series("zipf/alpha:0", "cpu_atomic")], UNKNOWN),
             (skew((5, 6, 50), (10,) * 3), "only when alpha is at least 1.2 (not up to 1)"))
    free = lambda workload, ns: [series(workload, "cpu_atomic", ns), series(workload, "cpu_fused", 10)]
    all_verdicts(folder, 13, free("a", 9), free("b", 11), "it is one of: a (1 of 2 cases)")
    narrow = lambda rule, ns: [series(f"w/weight_type:{kind}", "cpu_fused", t, rule)
                               for kind, t in (("fp32", 10), ("bf16", ns))]
    all_verdicts(folder, 14, narrow("adam", 5), narrow("sgd", 9), "it is one of: w, adam: bf16 (1 of 2 cases)")


def test_compilers(folder):
    built = lambda workload, gcc, clang: [series(workload, "cpu_fused@gcc", gcc), series(workload, "cpu_fused@clang", clang)]
    which = {"emb_var_COMPILERS": "gcc clang", "emb_bits_0": "same bits: 9 results"}
    for rows, want in ((built("a", 10, 10.4), HOLDS), (built("b", 10, 10.6), NOT), (built("c", 10, 9), NOT),
                       (built("a", 10, 10.4) + built("b", 10, 20),
                        "only when it is one of: a/cpu_fused, clang/gcc (1 of 2 cases)"),
                       (built("a", [10.0, 12.0, 20.0, 30.0], [10.1, 13.0, 21.0, 29.0]), UNKNOWN)):  # noise
        got, found = verdict(folder, 15, *rows, **which)
        equal((got, found.note), (want, "Bits of exact results: same bits: 9 results."))


# --- claims of pages
def of_page(number, **pages):
    """The verdict of a claim on pages with these tables."""
    known = {"drift": learned.DRIFT, "training": learned.TRAINING}
    records = {known[name]: [table] for name, table in pages.items()}
    return str(page.verdict(CLAIMS[number], CLAIMS[number].find(records)))


def drift(way, **rules):
    return {rule: {"rule": rule, f"{way}, 1 step": first, f"{way}, 9 steps": last}
            for rule, (first, last) in rules.items()}


def test_claims_of_pages(_folder):
    table = lambda adagrad, adam: drift("one by one", sgd=("1e-6", "0.5"), adagrad=("0.5", adagrad), adam=("0.5", adam))
    for ends, want in ((("0.02", "1.7e+05"), HOLDS), (("0.01", "1e-05"), NOT),
                       (("0.01", "0.02"), "only when it is one of: adam (1 of 2 cases)")):
        equal(of_page(9, drift=table(*ends)), want)
    for last, auc, want in (("0.5", "-0.0027 ± 0.0006", HOLDS), ("0", "0.0000 ± 0.0001", NOT),
                            ("0.5", "0.0000 ± 0.0001", "only when it is one of: weights of adam (1 of 2 cases)")):
        equal(of_page(10, drift=drift("dense", adam=("0.2", last)), training={
            "adam, dense": {"variant": "adam, dense", "against": "adam", "AUC, end": auc}}), want)
    for auc, loss, want in (("0.745 ± 0.001", "0.475 ± 0.001", HOLDS), ("0.70 ± 0.01", "0.50 ± 0.01", NOT),
                            ("0.80 ± 0.01", "0.50 ± 0.01", "only when it is one of: AUC (1 of 2 cases)")):
        equal(of_page(12, training={rule: {"rule": rule, "AUC": a, "log loss": b} for rule, a, b in
                                    (("adagrad", "0.75 ± 0.01", "0.47 ± 0.01"), ("rowwise_adagrad", auc, loss))}), want)


# --- the page
def repository(folder, *machines):
    """A folder with the pages that claims read, and records of these machines; returns (page, folders)."""
    study = os.path.join(folder, page.FOLDER)
    for name in learned.MADE_BY:
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        shutil.copy(os.path.join(ROOT, name), os.path.join(folder, name))
    folders = []
    for machine in machines:
        own = os.path.join(folder, "reports", "results", machine)
        os.makedirs(own)
        write(own, "standard", *pair("a", 10, 11))
        folders.append(own)
    return os.path.join(study, "claims.md"), folders


def run(*words):
    return subprocess.run([sys.executable, "-B", os.path.join(HERE, "page.py"), *words], capture_output=True, text=True,
                          check=False)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_bad_input_is_one_line_and_keeps_the_page(folder):
    out, (own,) = repository(folder, "m1")
    tap.script(os.path.dirname(out), "claims.md", "old")
    drift_page = os.path.join(folder, learned.DRIFT)
    drift_text = read(drift_page)

    def fails(why, *folders):
        one_line_error(run(out, *(folders or [own])), why)
        equal(read(out), "old")

    tap.script(folder, "scipy.py", "raise ImportError")
    with mock.patch.dict(os.environ, PYTHONPATH=folder):
        fails("SciPy is missing")
    fails("holds no result", folder)
    write(own, "traces", *pair("a", 10, 11), emb_cpu="Another CPU")
    fails("results of several machines are not merged")
    save("{", own, "traces.json.gz")
    fails("not JSON")
    os.unlink(os.path.join(own, "traces.json.gz"))
    for text, why in ((drift_text.replace("one by one, ", "x, "), "no table with 'one by one'"),
                      (drift_text.replace("| 0.54 |", "| nan |"), "'nan' is no number")):
        tap.script(os.path.dirname(out), "drift.md", text)
        fails(why)
    os.unlink(drift_page)
    fails("make drift writes this page")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "claims"))
