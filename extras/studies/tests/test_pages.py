#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of what pages say of a record: how far its figures can be off (extras/studies/recorded.py), and that a run was cut
short. test_reproduce.py has the pages."""
import os
import sys

sys.dont_write_bytecode = True
import tap
import machines
import pages
import recorded
from made_results import made_up, series
from spoiled import equal

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
    drawn = machines.picture(columns, "cpu_fused", "cpu_fused", os.path.join(folder, "m"), {"m": found["standard"]})
    equal(drawn.variables["caution"], f"m: {line}")
    text = claims_page.page({"m": found, claims_page.ANY: {}}, folder)
    assert "1 of the 1 files were cut short, or have rows" in text.replace("\n", " "), text


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "pages"))
