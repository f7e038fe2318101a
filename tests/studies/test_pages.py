#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the pages of recorded machines (studies/pages.py, recorded.py, machines.py). The results are made up."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, tool
import recorded
from spoiled import made_up, need_gnuplot, series


# --- how far figures can be off
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


# --- pages
def golden(folder, name, factor=1.0):
    """A machine's folder with only standard.json."""
    own = os.path.join(folder, "results", name)
    os.makedirs(own)
    with open(GOLDEN, encoding="utf-8") as file:
        data = json.load(file)
    for row in data["benchmarks"]:
        for key in ("real_time", "ns_per_lookup"):
            if key in row:
                row[key] *= factor
    data["context"]["emb_record_machine"] = "Fake | Maker, family 7, model 3, stepping 1 | 2 CPUs"
    with open(os.path.join(own, "standard.json"), "w", encoding="utf-8") as file:
        json.dump(data, file)
    return own


def pages(*words):
    done = subprocess.run([sys.executable, "-B", tool("pages.py"), *words,
                           "--kernel=cpu_fused", "--below=cpu_sort"], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def test_page_of_a_folder_has_what_is_there(folder):
    need_gnuplot()
    own = golden(folder, "m1")
    status, said = pages(own)
    assert status == 0, said
    with open(os.path.join(own, "README.md"), encoding="utf-8") as file:
        page = file.read()
    for text in ("# m1: ", "family 7, model 3", "| `standard.json` | all kernels", "Not recorded: `standard-1-thread`, ",
                 "## Standard workloads", "| cpu_fused |"):
        assert text in page, (text, page)
    assert "<!-- table roof -->" not in page
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
    assert pictures and all(os.path.getsize(os.path.join(own, p)) > 1000 for p in pictures), pictures


def test_front_page_holds_machines_side_by_side(folder):
    need_gnuplot()
    first, second = golden(folder, "m1"), golden(folder, "m2", 2.0)
    shutil.copy(os.path.join(first, "standard.json"), os.path.join(first, "traces.json"))  # m2 has none
    front = os.path.join(folder, "README.md")
    sections = ("standard", "traces", "ladder", "sweep", "scaling", "peers", "peers-1-thread", "iteration", "crossover",
                "machines")
    with open(front, "w", encoding="utf-8") as file:
        file.write("".join(f"<!-- table {s} -->\nstale\n<!-- end {s} -->\n" for s in sections))
    status, said = pages(first, second, f"--front={front}", f"--leading={second}")
    assert status == 0, said
    with open(front, encoding="utf-8") as file:
        page = file.read()
    assert "stale" not in page and page.count("Not recorded on this machine.") == 7, page
    assert "<!-- table traces -->\n**Recorded on m1:**" in page, page
    row = next(line for line in page.splitlines() if line.startswith("| zipf/alpha:0.6 |") and "%" in line
               and "x |" in line)
    cells = [c.strip() for c in row.split("|")[2:-1]]
    one, two = (float(cells[i].split()[0]) for i in (0, 3))
    assert 1.95 < two / one < 2.05 and cells[1] == cells[4], row


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "pages"))
