#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of what pages say of a record: how far its figures can be off (extras/studies/recorded.py), and that a run was cut
short. test_reproduce.py has the pages."""
import os
import sys
from unittest import mock

sys.dont_write_bytecode = True
import tap
import identity
import machines
import pages
import program
import recorded
import results
import sentences
from made_results import made_up, need_matplotlib, series
from spoiled import equal, one_line_error, run

sys.path.insert(0, os.path.join(tap.ROOT, "extras", "studies", "claims"))
import page as claims_page


def result_of(folder, name, rows, **context):
    """A result of rows (workload, kernel, ns, fingerprint, threads, mode)."""
    return made_up(folder, name, *(series(w, k, [ns], "sgd", mode=mode, mark=f, threads=threads)
                                   for w, k, ns, f, threads, mode in rows), **context)


def test_the_same_point_is_found_by_its_ids(folder):
    result_of(folder, "standard", [("zipf", "a", 10.0, "f", 2, "cold"), ("zipf", "a", 10.0, "g", 2, "cold"),
                                   ("hot", "a", 5.0, "h", 2, "cold"), ("zipf", "a", 1.0, "f", 2, "warm")])
    result_of(folder, "roof", [("pooled", "a", 12.0, "f", 2, "cold"), ("hot", "a", 50.0, "x", 2, "cold")])
    result_of(folder, "ladder", [("zipf", "a", 9.0, "g", 2, "cold"), ("zipf", "b", 70.0, "g", 2, "cold")])
    result_of(folder, "compilers", [("zipf", "a@gcc", 18.0, "f", 2, "cold"),
                                    ("zipf", "a@clang", 90.0, "f", 2, "cold")], emb_var_COMPILERS="gcc clang")
    result_of(folder, "scaling", [("t-1", "a", 30.0, "f", 1, "cold"), ("t-2", "a", 11.0, "f", 2, "cold")])
    points = recorded.same_points(recorded.in_folder(folder))
    assert len(points) == 1 and points[0].workload == "zipf" and points[0].threads == 2, points
    assert points[0].medians == {"standard": 10.0, "roof": 12.0, "ladder": 9.0, "compilers": 18.0,
                                 "scaling": 11.0}, points
    assert "2.00x at most" in recorded.same_point_lines(recorded.in_folder(folder))[0]


def test_a_run_that_was_cut_short_says_so(folder):
    """On the page of its machine, beside other machines, in their picture, and in a count of the claims."""
    why = "Terminated after 1 of 9 samples"
    result_of(folder, "standard", [("zipf", "cpu_fused", 10.0, "f", 2, "cold")], emb_cut_short=why)
    found, line = recorded.in_folder(folder), f"cut short: {why}"
    equal(list(pages.noise_lines(found))[:2], [f"- **`standard`: {line}**", ""])
    assert f"; **{line}**." in machines.legend("m", found["standard"], "..")
    columns = {"m": machines.cells(found["standard"], "cpu_fused", "cpu_fused")}
    need_matplotlib()
    drawn = machines.picture(columns, "cpu_fused", "cpu_fused", {"m": found["standard"]})
    equal(drawn.texts[0].get_text(), f"m: {line}")
    text = claims_page.page({"m": found, claims_page.ANY: {}}, os.path.join(folder, "claims"))
    assert "1 of the 1 files were cut short, or have rows" in text.replace("\n", " "), text


def test_a_record_of_older_kernels_says_so(folder):
    """On its page, beside other machines and in the sentences; the front page is led by a record of today's."""
    facts = {"old": {}, "today": {"emb_record_kernels": recorded.kernels()},
             "same": {"emb_record_code": recorded.code(recorded.RESULTS["standard"])}}
    records = {}
    for name, context in facts.items():
        os.mkdir(os.path.join(folder, name))
        result_of(os.path.join(folder, name), "standard", [("zipf", "cpu_fused", 10.0, "f", 2, "cold")], **context)
        records[name] = pages.Recorded(os.path.join(folder, name), "cpu_fused", "cpu_sort")
    said, line = {}, "recorded with kernels of 2024-01-02; newer ones exist"
    for name, record in records.items():
        result = record.results["standard"]
        said[name] = ["\n".join(pages.text(record, {})), machines.legend("m", result, ".."),
                      "\n".join(sentences.of_record(record, ""))]
        equal((name, [line in text for text in said[name]]), (name, [name == "old"] * 3))
    equal([r.of_today() for r in records.values()], [False, True, True])
    both = {"standard": records["today"].results["standard"], "forward": records["old"].results["standard"]}
    equal(recorded.older(both), f"`forward`: {line}")
    equal(recorded.older({"standard": gpu_record(folder).results["standard"]}), "")
    page = tap.script(folder, "front.md", "".join(f"<!-- table {n} -->\n<!-- end {n} -->\n" for n in pages.FRONT))
    for order, led in (("old today", "today"), ("same today", "same"), ("old", "old")):
        own = [records[name] for name in order.split()]
        with mock.patch.object(machines, "publish"):
            pages.front({page: own[0]}, own)
        with open(page, encoding="utf-8") as text:
            shown = text.read()
        assert f"/{led}/time-sgd-cold.svg" in shown and (line in shown) == (led == "old"), shown


# --- GPUs
GPU = {"emb_gpu": "NVIDIA X1", "emb_gpu_driver": "NVIDIA Open Module  500.1.2  Release", "emb_gpu_cuda_runtime": "13.0",
       "emb_var_PLACE": "device", "emb_date": "2026-01-02T03:04:05Z"}


def gpu_record(folder, **context):
    """The record of a GPU with two kernels on two workloads."""
    traits = {f"emb_kernel_{k}": f"fused | device | deterministic | {k} | Idea." for k in ("cuda_fused", "cuda_sort")}
    rows = [series(w, k, ns, share_rmw=0.25, place="device", scratch_mib=ns) for w, fast in (("a", 1.0), ("b", 2.0))
            for k, ns in (("cuda_fused", fast), ("cuda_sort", 3 * fast))]
    made_up(folder, "standard", *rows, **GPU | traits | context)
    return pages.Recorded(folder, "cpu_fused", "cpu_sort")


def test_a_gpu_is_a_machine(folder):
    """Its identity is GPU, driver and CUDA, whatever the host is; a result of both places has a CPU, too."""
    equal(results.Result("x", GPU | {"emb_cpu": "C"}, {}, [], []).machine(), "NVIDIA X1, driver 500.1.2, CUDA 13.0")
    for change, want in (({"emb_cpu": "Other", "num_cpus": 64, "emb_threads": 64}, None), ({"emb_gpu": "Y2"}, "gpu"),
                         ({"emb_gpu_driver": "501.0"}, "gpu_driver"), ({"emb_gpu_cuda_runtime": "12.9"}, "cuda")):
        equal(identity.other_machine(GPU | {"emb_cpu": "A CPU"}, GPU | change), want)
    both = GPU | {"emb_var_PLACE": "all", "emb_cpu": "C"}
    equal(identity.other_machine(both, both | {"emb_cpu": "D"}), "cpu")
    record = gpu_record(folder, emb_cut_short="Terminated after 1 of 9 samples")
    equal((record.kernel, record.below), ("cuda_fused", "cuda_sort"))
    equal(machines.texts(machines.cells(record.results["standard"], "cpu_fused", "cpu_sort")["a"], "cpu_fused"),
          ("1.00 ±0 %", "3.00x", "25 %"))
    text = "\n".join(pages.text(record, {}))
    for part in ("NVIDIA X1, driver 500.1.2, CUDA 13.0\n", "- driver: 500.1.2\n",
                 "* **NVIDIA X1**, driver 500.1.2, CUDA 13.0; 2026-01-02",
                 "**cut short: Terminated after 1 of 9 samples**", "1.00 (`a`) to 2.00 (`b`) ns per lookup"):
        assert part in text, (part, text)
    assert "- CPU:" not in text


def test_what_a_gpu_has_run_comes_from_records(folder):
    host = os.path.join(folder, "host")
    os.makedirs(host)
    result_of(host, "standard", [("zipf", "cpu_fused", 10.0, "f", 2, "cold")])
    equal(sentences.ran([pages.Recorded(host, "cpu_fused", "cpu_sort")], "."), ["No GPU has run the kernels."])
    record = gpu_record(folder)
    tap.script(folder, sentences.TESTED, "result: 7 passed, 0 failed\n")
    today = sentences.today()
    changed = f"(`{today[0]}`). **The others have changed"
    for own, want in ((today, "passed there as they are"), (today[:1], changed)):
        with mock.patch.object(sentences, "verified", lambda own=own: {"NVIDIA X1": {*own}}):
            text = " ".join("\n".join(sentences.ran([record], folder)).split())
        assert "7 passed, 0 failed" in text and want in text and ("changed" in text) == (len(own) < len(today)), text


def test_published_times_are_marked(folder):
    table = sentences.published([])
    assert len(table) > 2 and all("| **published**: " in line and "NVIDIA H" in line for line in table[2:]), table
    rows = [series("dynamicemb", "cuda_fused", 2.0, "sgd", mode="warm", place="device")]
    made_up(folder, "dynamicemb", *rows, **GPU)
    made_up(folder, "standard", *rows, **GPU)
    assert any("| NVIDIA X1 | 0.002 | measured: `dynamicemb.json.gz`" in line
               for line in sentences.published([pages.Recorded(folder, "cpu_fused", "cpu_sort")]))


def test_a_page_of_an_unknown_record_is_an_error(folder):
    page = tap.script(folder, "page.md", "<!-- table says-none -->\n<!-- end says-none -->\n")
    try:
        sentences.publish(page, [])
    except program.ResultError as e:
        assert "reports/results has no record none" in str(e), e
    else:
        raise AssertionError("it was taken")


def test_pages_without_scipy_are_an_error(folder):
    """Kernels that differ would count as alike, and nobody would see it."""
    tap.script(folder, "scipy.py", "raise ImportError")
    made_up(folder, "standard", series("a", "cpu_fused"))
    with mock.patch.dict(os.environ, PYTHONPATH=folder):
        one_line_error(run("pages.py", folder, "--kernel=cpu_fused", "--below=cpu_sort", "--front=none.md"), "SciPy is missing")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "pages"))
