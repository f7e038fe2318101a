#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of reports/compare.py and its statistics, on the golden result and on spoiled copies of it."""
import dataclasses
import json
import math
import os
import re
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN
import compare
import compare_forms
import make_results
import noise_floor
import results
import verdict
from spoiled import disturbed, equal, golden, noise_file, one_line_error, rows_of, run, save, slowed

precise = lambda times, reference, least=verdict.PRECISION: verdict.uncertainty(times, reference) <= least

try:
    verdict.scipy_stats()
except Exception as e:
    tap.skip_all("compare", str(e))


def compared(old, new, **how):
    return compare.compared(results.load(old), results.load(new), **how)


def counted(found):
    return {w: found.words().count(w) for w in sorted(set(found.words()))}


def refused(old, new, *words, **how):
    try:
        compared(old, new, **how)
    except results.ResultError as e:
        for word in words:
            assert word in str(e), f"{word!r} not in {e}"
        assert "\n" not in str(e)
        return
    raise AssertionError("not refused")


# --- statistics
def test_mann_whitney_by_hand(folder):
    low, high = [1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]
    assert abs(verdict.mann_whitney(low, high) - 2 / 252) < 1e-12  # 2 of the C(10,5) orders are as extreme
    assert abs(verdict.mann_whitney([1.0, 3.0], [2.0, 4.0]) - 4 / 6) < 1e-12
    equal(verdict.mann_whitney([1.0, 1.0], [1.0, 1.0]), 1.0)
    assert abs(verdict.mann_whitney([float(i) for i in range(12)], [20.0 + i for i in range(12)]) * 2704156 - 2) < 1e-6


def test_correction_by_hand(folder):
    # Sorted .001 .01 .03 .04, times 4/1 4/2 4/3 4/4, and no larger than the next one.
    got = verdict.corrected([0.04, 0.001, 0.03, 0.01])
    assert all(abs(a - b) < 1e-12 for a, b in zip(got, [0.04, 0.004, 0.04, 0.02])), got


def test_words_of_an_effect(folder):
    quiet, wild = [9.8, 9.9, 10.0, 10.1, 10.2, 10.3, 10.4], [5.0, 7.0, 9.0, 10.1, 12.0, 14.0, 20.0]
    word = lambda old, new, **how: verdict.effect(old, new).word(**how)
    equal(word(quiet, [x + 0.1 for x in quiet]), "SAME")
    equal(word(quiet, wild), "UNSURE")
    equal(word(wild, wild), "SAME")
    equal(word(quiet, [x * 1.2 for x in quiet]), "SLOWER")
    equal(word([x * 1.2 for x in quiet], quiet), "FASTER")
    equal(word(quiet, [x * 1.2 for x in quiet], least=0.3), "SAME")
    equal(word(quiet[:4], [x * 2 for x in quiet[:4]]), "UNSURE")  # too few
    equal(word(quiet, [x * 1.2 for x in quiet], p=0.5), "UNSURE")  # among many rows


def test_precision_in_one_visit_by_hand(folder):
    """Of five samples, the interval of the median is their range."""
    times, tens = lambda low, high: ((low, 9.9, 10.0, 10.1, high),), ((10.0,) * 5,)
    equal([round(x, 9) for x in verdict.interval(times(9.6, 10.2), ())], [10, 9.6, 10.2])
    for reference in ((), tens):
        equal([precise(times(*ends), reference) for ends in ((9.71, 10.29), (9.69, 10), (10, 10.31))],
              [True, False, False])
    equal([precise(times(9.6, 10.4), (), p) for p in (0.03, 0.05)], [False, True])
    few = (tens[0][:4],)
    equal([precise(few, ()), precise(tens, few), precise(tens, times(9.6, 10))], [False] * 3)


def test_precision_over_visits_by_hand(folder):
    """Of three visits whose medians differ by 1 %, the half width is 4.303 * 0.01 / 3 ** 0.5. What a visit does to both
    sides is in no ratio."""
    visits = lambda *shares: tuple((10 * math.exp(x), 9 * math.exp(x), 19 * math.exp(x)) for x in shares)
    still, drift = visits(0, 0, 0), visits(-0.01, 0, 0.01)
    for reference, middle in ((), 10), (still, 1):
        equal([round(math.log(x / middle), 6) for x in verdict.interval(drift, reference)], [0, -0.024841, 0.024841])
        equal([precise(drift, reference, p) for p in (0.025, 0.0255)], [False, True])
    equal(precise(visits(0, 0.5, 1), visits(0, 0.5, 1)), True)
    equal([precise(x, ()) for x in (still, still[:2], ((10.0,),) * 4, visits(0, 0.5, 1))], [True] + [False] * 3)


def test_without_scipy(folder):
    """Tables do without it, comparisons say what to install."""
    save("raise ImportError", folder, "scipy.py")
    one_line_error(run("compare.py", GOLDEN, slowed(folder, 1.1), env={"PYTHONPATH": folder}), "python3-scipy")
    assert "python3-scipy" in run("table.py", GOLDEN, env={"PYTHONPATH": folder}).stdout


# --- verdicts
def test_same_faster_and_slower(folder):
    done = run("compare.py", GOLDEN, GOLDEN)
    equal(done.returncode, 0)
    assert "36 SAME" in done.stdout and "geometric mean of new/old: 1.000" in done.stdout
    found = compared(GOLDEN, slowed(folder, 0.8, "kernel=cpu_sort"))
    equal((found.status(), counted(found)), (0, {"FASTER": 6, "SAME": 30}))
    path = slowed(folder, 1.2, "kernel=cpu_fused")
    found = compared(GOLDEN, path)
    equal((found.status(), counted(found)), (3, {"SAME": 30, "SLOWER": 6}))
    equal(compared(GOLDEN, path, least=0.3).status(), 0)


def test_the_text_of_a_pull_request_opens_what_changed(folder):
    found = compared(GOLDEN, slowed(folder, 1.2, "kernel=cpu_fused"))
    at = next(i for i, r in enumerate(found.rows) if r.word == "SAME")
    found.rows[at] = dataclasses.replace(found.rows[at], word="UNSURE")
    shown, *folded = compare_forms.markdown(found, 3, "slower").split("<details>")
    equal(len(re.findall(r"\| 1\.\d{3} ± \d\.\d{3} \| SLOWER \|", shown)), 6)
    equal([f.partition("</summary>")[0] for f in folded], ["<summary>1 UNSURE", "<summary>29 SAME"])


def test_one_false_row_among_many_is_expected(folder):
    """Five samples on each side are enough for a single row, but not for one of 36; the report says how many are."""
    words = ("kernel=cpu_fused", "mode=cold", "workload=zipf/alpha:0.6")
    found = compared(GOLDEN, slowed(folder, 1.2, *words))
    equal((found.status(), counted(found)), (4, {"SAME": 35, "UNSURE": 1}))
    assert next(r.effect.word() for r in found.rows if r.word == "UNSURE") == "SLOWER"
    assert any("with 36 rows, at least 7 samples" in x for x in compare_forms.text(found))
    equal([verdict.fewest(rows) for rows in (1, 6, 7, 36, 100)], [5, 5, 6, 7, 8])


def test_noise_is_unsure(folder):
    noisy = [save(make_results.dump(make_results.result(noise=0.5, seed=s)), folder, f"{s}.json")
             for s in (1, 2)]
    found = compared(*noisy)
    equal((found.status(), counted(found)), (4, {"UNSURE": 36}))


def test_too_disturbed_is_unsure(folder):
    """A side of which half or more samples were disturbed is UNSURE: its median may be of a disturbed one."""
    with_disturbed = lambda count, factor: disturbed(folder, count, "kernel=cpu_fused", factor=factor)
    counts = lambda *how: counted(compared(GOLDEN, with_disturbed(*how)))
    equal(counts(2, 889), {"SAME": 30, "SLOWER": 6})
    equal([counts(3, factor) for factor in (889, 1, 1 / 889)], [{"SAME": 30, "UNSURE": 6}] * 3)
    path = with_disturbed(3, 889)
    for sides in ((GOLDEN, path), (path, GOLDEN)):
        done = run("compare.py", *sides)
        equal(done.returncode, 4)
        assert "6 of 36 rows are UNSURE: half of the samples of a side were disturbed" in done.stdout, done.stdout


def test_memory_has_a_threshold(folder):
    data = golden()
    for r in rows_of(data, "kernel=cpu_sort", "workload=zipf/alpha:0.6"):
        r["scratch_mib"] *= 1.009
    near = save(data, folder, "near.json")
    equal([compared(*sides).changes for sides in ((GOLDEN, near), (near, GOLDEN))], [[], []])
    for r in rows_of(data, "kernel=cpu_sort", "workload=zipf/alpha:0.6"):
        r["scratch_mib"] *= 1.009
    path = save(data, folder, "more.json")
    found = compared(GOLDEN, path)
    equal([(c.key[2:], c.word) for c in found.changes], [(("cpu_sort", m), "MORE") for m in ("cold", "warm")])
    equal(found.status(), 3)
    found = compared(path, GOLDEN)
    equal(({c.word for c in found.changes}, found.status()), ({"LESS"}, 0))


# --- what is not compared
def of_machine(folder, name, **context):
    return save(golden() | {"context": golden()["context"] | context}, folder, name)


def test_cpus_of_one_name_are_not_one_machine(folder):
    """Nor are runs with other numbers of threads. Without emb_cpu_model, emb_record_machine may name the model."""
    cache = lambda mib: [{"type": "Unified", "level": 3, "size": mib << 20}]
    new = {"emb_cpu_model": "AuthenticAMD, family 25, model 1", "caches": cache(32), "emb_threads": "2"}
    old = {"emb_record_machine": "Synthetic CPU | AuthenticAMD, family 25, model 1, stepping 1 | 2 CPUs | 32768K L3"}
    nothing = {"emb_cpu_model": "unavailable", "emb_record_machine": "? | ?, family ?"}
    both = [of_machine(folder, f"{i}.json", **own) for i, own in enumerate((new, old))]
    for own in (new, old, new | {"caches": cache(32), "emb_cpu_model": None} | old, nothing):
        equal(compared(both[0], of_machine(folder, "same.json", **own)).status(), 0)
    zen4 = "AuthenticAMD, family 25, model 17"
    for change, word in (({"emb_cpu_model": zen4}, f"cpu_model is '{zen4}'"), ({"caches": cache(16)}, "caches is '16384K L3'"),
                         ({"emb_threads": "1"}, "threads is '1'"), ({"num_cpus": 4}, "cpus is '4'")):
        path = of_machine(folder, "other.json", **new | change)
        for first in both:
            refused(first, path, path, word, "--other-machine")


def test_refuses_another_machine(folder):
    data = golden()
    data["context"]["emb_cpu"] = "Another CPU"
    path = save(data, folder, "cpu.json")
    refused(GOLDEN, path, path, "Another CPU", "--other-machine")
    equal(run("compare.py", GOLDEN, path).returncode, 1)
    done = run("compare.py", GOLDEN, path, "--other-machine")
    equal(done.returncode, 0)
    assert "note: cpu differs: " in done.stdout


def test_refuses_other_ids(folder):
    text = json.dumps(golden())
    mark = rows_of(golden(), "workload=zipf/alpha:1.05")[0]["label"].split("fingerprint=")[1][:16]
    path = save(text.replace(mark, "f" * 16), folder, "ids.json")
    one_line_error(run("compare.py", GOLDEN, path), "fingerprint", "zipf/alpha:1.05", mark, "f" * 16, "--other-work")
    equal(compared(GOLDEN, path, other_work=True).status(), 0)
    one_line_error(run("merge.py", GOLDEN, path, "--out", path), "zipf/alpha:1.05", "fingerprint")
    of = lambda name, kind: of_machine(folder, name, **{"emb_workload_zipf/alpha:1.05": f"batch 4 pooling sum{kind}"})
    refused(of("fp32.json", ""), of("bf16.json", " weight_type bf16"), "weight_type is the preset, and bf16")
    text = json.dumps(make_results.result(rules=("adam",)))
    refused(save(text, folder, "dense.json"), save(text.replace("operation=dense", "operation=lazy"), folder, "lazy.json"),
            "operation is dense, and lazy")


def test_rows_of_one_side(folder):
    data = golden()
    gone = rows_of(data, "kernel=cpu_owner", "mode=warm", "workload=zipf/alpha:0.6")
    data["benchmarks"] = [r for r in data["benchmarks"] if r not in gone]
    path = save(data, folder, "gone.json")
    found = compared(GOLDEN, path)
    equal(found.missing, [f"only in {GOLDEN}: zipf/alpha:0.6 rowwise_adagrad cpu_owner warm"])
    equal((found.status(), found.status(allow_missing=True)), (1, 0))
    equal(run("compare.py", GOLDEN).returncode, 1)


def test_a_time_that_is_no_number_fails_its_row(folder):
    data = golden()
    rows_of(data, "kernel=cpu_sort", "mode=cold", "workload=zipf/alpha:0.6")[0]["real_time"] = float("nan")
    found = compared(GOLDEN, save(data, folder, "nan.json"))
    equal((found.status(), [r.word for r in found.rows if not r.effect]), (2, ["FAILED in new"]))


# --- noise
def test_the_floor_of_noise_raises_the_least_effect(folder):
    equal([round(noise_floor.floor_of([0.9, 1.0, 1.0, 1.2], q), 6) for q in (0.5, 0.75, 1)],
          [0.0, round(1 / 0.9 - 1, 6), 0.2])
    keys = [s.key for s in results.load(GOLDEN).series]
    noisy = lambda effect, **context: noise_file(folder, {k: 1 + effect for k in keys}, **context)
    noise = noisy(0.3)
    equal(len(noise_floor.read(noise).pairs), 36)
    path = slowed(folder, 1.2, "kernel=cpu_fused")
    found = compared(GOLDEN, path, noise_file=noise)
    assert abs(found.least - 0.3) < 1e-9 and found.status() == 0, (found.least, found.status())
    assert any(n.startswith("noise: ") and "30.0 %" in n for n in found.notes)
    equal(compared(GOLDEN, path, noise_file=noisy(0.01)).status(), 3)
    found = compared(GOLDEN, path, noise_file=noisy(0.3, emb_cpu="Another CPU"))
    assert found.status() == 3 and any("another machine" in n for n in found.notes)
    one_line_error(run("compare.py", GOLDEN, path, "--noise", GOLDEN), "make noise")
    one_line_error(run("compare.py", GOLDEN, path, "--noise", folder + "/none"), "none", "No such file")


def test_json(folder):
    js = os.path.join(folder, "c.json")
    equal(run("compare.py", GOLDEN, slowed(folder, 1.2, "kernel=cpu_fused"), "--json", js).returncode, 3)
    with open(js, encoding="utf-8") as file:
        data = json.load(file)
    equal((data["status"], len(data["rows"]), data["least"]), (3, 36, 0.05))
    row = next(r for r in data["rows"] if r["verdict"] == "SLOWER")
    assert abs(row["ratio"] - 1.2) < 1e-6 and row["low"] <= row["ratio"] <= row["high"] and row["p"] < 0.05, row


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "compare"))
