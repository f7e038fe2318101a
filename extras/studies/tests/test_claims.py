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
from claim import CLAIMS, FALSE, TRUE, UNKNOWN, Axis, Case
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
    return claim.judge(found, CLAIMS[number].axis), found


def verdicts(folder, number, *rows_and_wants):
    for rows, want in rows_and_wants:
        equal((number, verdict(folder, number, *rows)[0]), (number, want))


def all_verdicts(folder, number, good, bad, when):
    """The three verdicts of rows that meet the criterion, of others, and of both."""
    verdicts(folder, number, (good, TRUE), (bad, FALSE), (good + bad, f"true {when}"))


# --- the verdict
def test_a_verdict_has_a_limit_or_names(_folder):
    axis = Axis("{:g}".format, "rows")
    cases = lambda *oks: [Case(f"c{i}", ok, 0, float(i)) for i, ok in enumerate(oks)]
    for oks, want in (((True, True), "true"), ((False, False), "false"), ((None,), UNKNOWN), ((), UNKNOWN),
                      ((True, True, False), "true from 1 rows down, false from 2 up"),
                      ((False, True, None), "true from 1 rows up, false from 0 down"),
                      ((False, True, False), "true only for c1"), ((True, False, True), "true but for c1"),
                      ((True, True, False, False, True, True, False, True), "true but for c2, c3 and c6"),
                      ((True, True, True, True, True, False, True, False, False, False),
                       "true from 4 rows down, false from 7 up"),
                      ((True, False) * 5, "true in 5 of 10 cases"),
                      ((False, *(True,) * 30) * 5, "nearly always true, in 150 of 155 cases"),
                      ((True, *(False,) * 30) * 5, "nearly never true, in 5 of 155 cases")):
        equal(claim.judge(cases(*oks), axis), want)
    of_two = [Case(name, ok, 0) for name, ok in (("a", False), ("b", True), ("a", True), ("a", False), ("c", True))]
    equal(claim.judge(of_two), "true but for a, and there in 1 of 3 cases")


# --- claims of counts
def memory(workload, fused, dense, sort, distinct):
    """Peaks in MiB beyond 10 MiB of weights; the gradient of all 10,000 rows has 100 MiB."""
    counters = {"distinct": distinct, "scratch_mib": 100}
    return [series(workload, k, peak_mib=10 + peak, **counters)
            for k, peak in (("cpu_fused", fused), ("cpu_dense", dense), ("cpu_sort", sort))]


def test_claims_of_counts(folder):
    fused = lambda workload, distinct: [series(workload, "cpu_fused", distinct=distinct)]
    all_verdicts(folder, 1, fused("a", 890), fused("b", 910),
                 "from 89 % distinct rows down, false from 91 % up")
    all_verdicts(folder, 2, [series("a", "cpu_fused", rule="adam")],
                 [series("a", "cpu_dense", rule="adam", operation="dense")], "only for cpu_fused")
    wrong = [row | {"error_occurred": True, "error_message": "WRONG RESULT: row 3"} for row in series("a", "cpu_sort")]
    assert Case("cpu_sort", False, 0) in verdict(folder, 2, wrong, series("a", "cpu_fused"))[1]
    good, bad = memory("a", 5, 100, 100, 9000), memory("b", 11, 100, 16, 1000)
    all_verdicts(folder, 3, good, bad, "only for a, dense and a, sparse")
    equal([c.value for c in verdict(folder, 3, *good)[1]], [95, 100 * 95 / 90])  # the gradient of touched rows: 90 MiB
    all_verdicts(folder, 5, fused("a", 900), fused("b", 1000),  # a row of 64 floats and its number have 264 bytes
                 "from 9.0 % touched rows down, false from 10 % up")
    rule = lambda name, row: [series("a", "cpu_fused", rule=name, rows=2**20, state_bytes=row)]
    verdicts(folder, 11, (rule("sgd", 0), TRUE), (rule("rowwise_adagrad", 4), TRUE),
             (rule("adam", 512), "true from 0 bytes of state a row down, false from 1,024 bytes up"))
    equal([f"{c.value:.1f}" for c in verdict(folder, 11, *rule("adam", 512))[1]], ["244.1", "732.4"])


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
    all_verdicts(folder, 4, pair("a", 10, 11), pair("b", 11, 10), "only for a/rowwise_adagrad")
    no_difference = pair("a", [10.0, 11.0, 12.0, 13.0, 14.0], [9.9, 11.1, 12.1, 13.1, 13.9])
    verdicts(folder, 4, (no_difference, TRUE))
    _, found = verdict(folder, 4, *pair("a", 10, 20), *pair("b", 15, 10, persistent_mib=3))
    equal(found, [Case("a/rowwise_adagrad", True, 0.5, 10), Case("b/rowwise_adagrad", False, 1.5, 3)])
    first, good, bad = growth(1000, 10, 10), growth(10000, 30, 15), growth(10000, 29, 10)
    verdicts(folder, 6, (first, UNKNOWN), (first + good, TRUE), (first + bad, FALSE),
             (first + bad + growth(100000, 290, 15),
              "true from 100k rows in the larger table up, false from 10k down"))
    sort = lambda workload, share, distinct: [series(workload, "cpu_sort", 10, index_ms=share * 10e-3, distinct=distinct)]
    all_verdicts(folder, 7, sort("a", 0.6, 100), sort("b", 0.4, 900),
                 "from 10 % distinct rows down, false from 90 % up")
    verdicts(folder, 8, (skew((10, 20, 30), (10,) * 3), TRUE), (skew((50, 40, 30), (10,) * 3), FALSE),
             (skew((1, 2, 3), (10,) * 3), FALSE), (skew((20, 20.5, 30), (10,) * 3), TRUE),
             ([series("zipf/alpha:0", "cpu_atomic")], UNKNOWN),
             (skew((5, 6, 50), (10,) * 3), "true from alpha 1.2 up, false from alpha 1 down"))
    free = lambda workload, ns: [series(workload, "cpu_hash", ns), series(workload, "cpu_fused", 10)]
    all_verdicts(folder, 13, free("a", 9), free("b", 11), "only for a, rowwise_adagrad: cpu_hash")
    verdicts(folder, 13, ([series("a", "cpu_atomic", 9), series("a", "cpu_fused", 10)], UNKNOWN))  # no good rival
    narrow = lambda rule, ns: [series(f"w/weight_type:{kind}", "cpu_fused", t, rule)
                               for kind, t in (("fp32", 10), ("bf16", ns))]
    all_verdicts(folder, 14, narrow("adam", 5), narrow("sgd", 9), "only for w, adam: bf16")


def test_a_gpu_has_verdicts_of_its_own(folder):
    """The kernels of a record of a GPU are those with the same ideas."""
    on = lambda rows: [row | {"name": row["name"].replace("cpu_", "cuda_"),
                              "label": row["label"].replace("cpu_", "cuda_").replace("place=host", "place=device")}
                       for row in rows]
    rows = [on(x) for x in (*pair("a", 10, 11), *skew((10, 20, 30), (10,) * 3))]
    traits = {f"emb_kernel_cuda_{k}": f"fused | device | {t} | {k} | Idea." for k, t in
              (("fused", "deterministic"), ("sort", "deterministic"), ("atomic", "none"))}
    context = traits | {"emb_gpu": "X1", "emb_var_PLACE": "device"}
    for number, want in ((4, TRUE), (8, TRUE), (13, UNKNOWN)):
        equal((number, verdict(folder, number, *rows, **context)[0]), (number, want))
    machines = {"x1": {"standard": results.load(write(folder, "standard", *rows, emb_cut_short="why", **context))},
                "m": {"standard": results.load(write(folder, "other", *pair("a", 11, 10)))}}
    equal(page.answers(CLAIMS[4], machines), {page.ON_CPU: "false (m)", page.ON_GPU: "true (x1, cut short)"})
    equal(page.answers(CLAIMS[14], machines), {page.ON_CPU: UNKNOWN, page.ON_GPU: UNKNOWN})
    equal([*page.answers(CLAIMS[15], machines)], [page.ON_CPU])


def test_compilers(folder):
    built = lambda workload, gcc, clang: [series(workload, "cpu_fused@gcc", gcc), series(workload, "cpu_fused@clang", clang)]
    which = {"emb_var_COMPILERS": "gcc clang"}
    for rows, want in ((built("a", 10, 10.4), TRUE), (built("b", 10, 10.6), FALSE), (built("c", 10, 9), FALSE),
                       (built("a", 10, 10.4) + built("b", 10, 20),
                        "true only for a/cpu_fused, clang/gcc"),
                       (built("a", [10.0, 12.0, 20.0, 30.0], [10.1, 13.0, 21.0, 29.0]), UNKNOWN)):  # noise
        equal(verdict(folder, 15, *rows, **which)[0], want)


# --- claims of pages
def of_page(number, **pages):
    """The verdict of a claim on pages with these tables."""
    known = {"drift": learned.DRIFT, "training": learned.TRAINING}
    records = {known[name]: [table] for name, table in pages.items()}
    return claim.judge(CLAIMS[number].find(records))


def drift(way, **rules):
    return {rule: {"rule": rule, f"{way}, 1 step": first, f"{way}, 9 steps": last}
            for rule, (first, last) in rules.items()}


def test_claims_of_pages(_folder):
    table = lambda adagrad, adam: drift("one by one", sgd=("1e-6", "0.5"), adagrad=("0.5", adagrad), adam=("0.5", adam))
    for ends, want in ((("0.02", "1.7e+05"), TRUE), (("0.01", "1e-05"), FALSE),
                       (("0.01", "0.02"), "true only for adam")):
        equal(of_page(9, drift=table(*ends)), want)
    for last, auc, want in (("0.5", "-0.0027 ± 0.0006", TRUE), ("0", "0.0000 ± 0.0001", FALSE),
                            ("0.5", "0.0000 ± 0.0001", "true only for weights of adam")):
        equal(of_page(10, drift=drift("dense", adam=("0.2", last)), training={
            "adam, dense": {"variant": "adam, dense", "against": "adam", "AUC, end": auc}}), want)
    for auc, loss, want in (("0.745 ± 0.001", "0.475 ± 0.001", TRUE), ("0.70 ± 0.01", "0.50 ± 0.01", FALSE),
                            ("0.80 ± 0.01", "0.50 ± 0.01", "true only for AUC")):
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
