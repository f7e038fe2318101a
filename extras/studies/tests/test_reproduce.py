#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of make reproduce (extras/studies/reproduce.py, items.py): no page is older than its record, every figure and
section belongs to an item, and edits are found."""
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import ROOT
import items
import reproduce
from items import BY_NAME, ITEMS
import spoiled
from spoiled import equal, one_line_error
from test_claims import pair, write

# --- the pages of this repository
def test_no_page_is_older_than_its_record(folder):
    """With a stand-in for gnuplot: pictures are compared by their data."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise tap.Skip("matplotlib is missing") from None
    tap.script(folder, "gnuplot", "#!/bin/sh\necho picture\n")
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(["make", "--no-print-directory", "NVCC=", "reproduce", f"OUT={folder}/it's",
                           f"PYTHON={sys.executable}"], cwd=ROOT, env=env | {"PATH": f"{folder}:{env['PATH']}"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.strip()
    for item in ITEMS:
        assert f"\n{item.name} " in done.stdout, item.name
    an_edit_by_hand_is_found(folder, os.path.join(folder, "it's", "reproduce", "pages"))


GPU_PAGE = os.path.relpath(glob.glob(os.path.join(ROOT, "extras/*/study/gpu.md"))[0], ROOT)
# A page or data of a picture of each kind, and text before the figure that is edited.
KINDS = {"README.md": "<!-- table says -->", "ARTIFACT.md": "<!-- table items -->",
         "docs/cuda.md": "<!-- table ran -->", GPU_PAGE: "<!-- table published -->", f"{items.STUDY}/claims.md": "## 4.",
         f"{items.STUDY}/figures.md": "](", f"{items.STUDY}/results.md": "<!-- table machines -->",
         "reports/results/h200/README.md": "<!-- table standard -->", "reports/results/zen4-2core/crossover.md": "",
         "reports/results/history/history.md": "",
         "reports/results/zen2-2core/time-rowwise_adagrad-cold.tsv": ""}


def an_edit_by_hand_is_found(folder, new):
    """Of one digit on a page of each kind; new: the pages as the records are."""
    ours = os.path.join(folder, "edited")
    reproduce.copy(ROOT, ours)
    more = [("README.md", f"<!-- table {name} -->") for name in ("says-h200", "standard")]
    for file, after in [*KINDS.items(), *more]:
        text = read(ours, file)
        found = re.compile(r"\d").search(text, text.index(after) + len(after))
        put(ours, file, f"{text[:found.start()]}{9 - int(found[0])}{text[found.end():]}")
        equal(reproduce.older(ours, new)[0], [file])
        put(ours, file, text)


def test_edited_records_and_pictures_are_found(folder):
    """Of each kind; in this repository there are none."""
    equal(reproduce.edited(ROOT), [])
    root = os.path.join(folder, "edited")
    reproduce.copy(ROOT, root)
    for file in ("reports/results/h200/standard.json.gz", "reports/results/published.json",
                 "reports/results/h200/gpu-verify.txt", "reports/results/machines.svg", f"{items.STUDY}/claims/4.png",
                 "reports/results/zen4-2core/paper-types-cold.svg"):
        path = os.path.join(root, file)
        with open(path, "rb") as whole:
            bytes_ = whole.read()
        os.unlink(path)
        equal(reproduce.edited(root), [f"{file} is not there; {reproduce.SUMS} has its sum of the last make readme"])
        with open(path, "wb") as out:
            out.write(bytes_[:-1] + bytes([bytes_[-1] ^ 1]))
        assert reproduce.edited(root)[0].startswith(f"{file} was edited; "), file
        with open(path, "wb") as out:
            out.write(bytes_)
    put(root, "reports/results/h200/new.svg", "x")
    assert reproduce.edited(root)[0].startswith("reports/results/h200/new.svg is new; ")


def test_every_figure_and_section_belongs_to_an_item(_folder):
    equal(items.shown(ROOT)[1], [])


# --- planted pages
def tree(folder, name):
    """A repository with one machine and one page."""
    root = os.path.join(folder, name)
    for sub in ("docs", items.STUDY, "reports/results/m1"):
        os.makedirs(os.path.join(root, sub))
    write(os.path.join(root, "reports/results/m1"), "standard", *pair("a", 10, 11, peak_mib=2048),
          emb_record_seconds="90")
    put(root, "README.md", f"# x\n<!-- table standard -->\nfigures\n<!-- end standard -->\n![a]({items.STUDY}/drift.png)\n")
    put(root, f"{items.STUDY}/drift.md", "![a](drift.png)\n")
    put(root, "reports/results/m1/time-rowwise_adagrad-cold.tsv", "1\n")
    return root


def read(root, file):
    with open(os.path.join(root, file), encoding="utf-8") as text:
        return text.read()


def put(root, file, text):
    with open(os.path.join(root, file), "w", encoding="utf-8") as out:
        out.write(text)


def test_an_orphan_is_named(folder):
    root = tree(folder, "a")
    where, orphans = items.shown(root)
    equal((where["standard"], where["drift"], orphans), (["README.md"], ["README.md", f"{items.STUDY}/drift.md"], []))
    put(root, "docs/more.md", "<!-- table odd -->\n<!-- end odd -->\n![b](../odd.png) <img width=1 src=\"also.png\">\n"
        "![elsewhere](https://x.org/a.png)\n")
    equal(items.shown(root)[1], [f"docs/more.md: {thing} belongs to no item of extras/studies/items.py"
                                 for thing in ("section odd", "odd.png", "docs/also.png")])
    put(root, "docs/more.md", "| a | b |\n|---|---|\n| x | **2.5** |\n")
    equal(items.shown(root)[1], ["docs/more.md: a table with figures belongs to no item of extras/studies/items.py"])
    for text, figure in (("It takes 7 ns.", "7 ns"), ("a copy moved 4.1\nTB/s", "4.1 TB/s"),
                         ("1.06 to 2.5\ntimes as long", "1.06 to 2.5 times as"), ("It reaches 42 % of the roof.", "42 % of the roof")):
        put(root, "docs/more.md", f"{text}\n    2 ns of code\n<!-- table items -->\n3 ns\n<!-- end items -->\n")
        equal(items.shown(root)[1], [f"docs/more.md: '{figure}' is typed; a generated section must have it"])


def test_what_differs_is_old(folder):
    ours, new = tree(folder, "a"), os.path.join(folder, "b")
    reproduce.copy(ours, new)
    equal(reproduce.older(ours, new), ([], set()))
    assert os.path.islink(os.path.join(new, "reports/results/m1/standard.json.gz"))
    put(new, "reports/results/m1/time-rowwise_adagrad-cold.tsv", "2\n")
    equal(reproduce.older(ours, new), (["reports/results/m1/time-rowwise_adagrad-cold.tsv"], {"standard"}))
    reproduce.copy(ours, new)
    put(new, "README.md", "# x\n<!-- table standard -->\nother\n<!-- end standard -->\n")
    put(new, "docs/new.md", "")
    equal(reproduce.older(ours, new), (["README.md", "docs/new.md"], {"standard"}))
    equal([reproduce.state(BY_NAME[n], ours, {"standard"}) for n in ("standard", "machines", "scaling", "drift")],
          [reproduce.OLD, reproduce.SAME, reproduce.NOT_THERE, reproduce.BY_RUN])


def test_bad_input_is_one_line(folder):
    for words, why in ((["--again=sh -c 'echo one >&2; echo two >&2; exit 1'"], "reproduce.py: two"),
                       (["--update=no/ARTIFACT.md"], "no/ARTIFACT.md: No such file"),
                       ([f"--update={tap.script(folder, 'page.md', '')}"], "needs one line '<!-- table items -->'")):
        one_line_error(spoiled.run("reproduce.py", os.path.join(folder, "o"), *words), why)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "reproduce"))
