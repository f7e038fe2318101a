#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/import/: files written by the libraries that people write them with become traces."""

import json
import os
import resource
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tests", "support"))
import tap
from tap import ROOT, tool

VENV = os.path.join(ROOT, "build", "import", "venv")
if not os.path.exists(os.path.join(VENV, "complete")):
    tap.skip_all("import", "no build/import/venv; make import FROM=file installs it, with a network")
if sys.argv[1:] != ["here"]:
    python = os.path.join(VENV, "bin", "python")
    os.execv(python, [python, "-W", "ignore", os.path.abspath(__file__), "here"])

import numpy as np
import pandas as pd

USERS, ITEMS = [3, 1, 3, 3, 1], [70, 5, 0, 5, 9]


def ratings():
    return pd.DataFrame({"user": USERS, "item": ITEMS, "rating": [1.5, 2, 3, 4, 5]})


def imported(folder, source, *args):
    """What import.py says."""
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            tool("import.py"),
            os.path.join(folder, source),
            "--to",
            os.path.join(folder, "out"),
            *args,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def bags(folder, *column):
    """The trace as a list of lists."""
    at = [np.load(os.path.join(folder, ".".join(["out", *column, part, "npy"]))) for part in ("ids", "offsets")]
    assert all(a.dtype == np.int64 and a.ndim == 1 for a in at), at
    return [at[0][b:e].tolist() for b, e in zip(at[1], at[1][1:])]


def good(folder, source, *args):
    done = imported(folder, source, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(folder, source, *args):
    """The one line that refuses; nothing is written."""
    done = imported(folder, source, *args)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    assert not [f for f in os.listdir(folder) if f.startswith("out")], os.listdir(folder)
    return done.stderr


def test_every_kind_of_file_has_the_same_ids(folder):
    d, to = ratings(), lambda name: os.path.join(folder, name)
    for name in ("r.csv", "r.csv.gz", "r.csv.bz2", "r.csv.xz", "r.csv.zst"):
        d.to_csv(to(name), index=False)
    d.to_csv(to("r.tsv"), sep="\t", index=False)
    for name in ("r.jsonl", "r.ndjson.gz", "r.jsonl.xz", "r.jsonl.zst"):
        d.to_json(to(name), orient="records", lines=True)
    d.to_parquet(to("r.parquet"))
    d.to_feather(to("r.feather"))
    np.savez(to("r.npz"), user=USERS, item=ITEMS)
    for name in sorted(os.listdir(folder)):
        good(folder, name, "--columns=item")
        assert bags(folder) == [[i] for i in ITEMS], name
        told = json.load(open(to("out.json"), encoding="utf-8"))
        assert (told["source"], told["column"], told["bags"], told["lookups"], told["table"], told["distinct"]) == (
            name,
            "item",
            5,
            5,
            71,
            4,
        ), told
        good(folder, name, "--columns=item", "--by=user") if not name.endswith("npz") else None
    assert bags(folder) == [[70, 0, 5], [5, 9]]


def test_columns_without_names_are_numbered(folder):
    ratings().to_csv(os.path.join(folder, "u.dat"), sep="|", header=False, index=False)
    good(folder, "u.dat", "--format=csv", "--separator=|", "--columns=0 1", "--by=0")
    assert bags(folder, "1") == [[70, 0, 5], [5, 9]] and bags(folder, "0") == [[3, 3, 3], [1, 1]]
    ratings().to_csv(os.path.join(folder, "named.csv"), index=False)
    good(folder, "named.csv", "--columns=1")
    assert bags(folder) == [[i] for i in ITEMS]
    with open(os.path.join(folder, "ml.dat"), "w", encoding="ascii") as f:
        f.write("".join(f"{u}::{i}::5\n" for u, i in zip(USERS, ITEMS)))
    good(folder, "ml.dat", "--format=csv", "--separator=::", "--columns=1", "--skip=1", "--rows=3")
    assert bags(folder) == [[5], [0], [5]]


def test_lists_are_bags(folder):
    lists = [[1, 2], [], [7, 7, 7]]
    pd.DataFrame({"h": lists}).to_parquet(os.path.join(folder, "l.parquet"))
    pd.DataFrame({"h": lists, "t": ["1|2", "", "7|7|7"]}).to_json(
        os.path.join(folder, "l.jsonl"), orient="records", lines=True
    )
    for name in ("l.parquet", "l.jsonl"):
        good(folder, name, "--columns=h")
        assert bags(folder) == lists, name
    pd.DataFrame({"t": ["1|2", None, "7|7|7"], "x": 0}).to_csv(os.path.join(folder, "l.csv"), index=False)
    good(folder, "l.csv", "--columns=t", "--split=|", "--missing=empty")
    assert bags(folder) == lists


def test_arrays_have_offsets_lengths_or_columns(folder):
    flat = np.array([4, 5, 6, 7, 8, 9], np.uint64)
    np.savez(
        os.path.join(folder, "kjt.npz"),
        values=flat,
        lengths=np.array([[1, 2], [0, 3]], np.int32),
        whole=[0, 1, 3, 6],
        without_end=[0, 1, 3],
    )
    good(folder, "kjt.npz", "--columns=values", "--lengths=lengths")
    assert bags(folder, "feature0") == [[4], [5, 6]] and bags(folder, "feature1") == [[], [7, 8, 9]]
    for offsets in ("whole", "without_end"):
        good(folder, "kjt.npz", "--columns=values", "--offsets=" + offsets)
        assert bags(folder) == [[4], [5, 6], [7, 8, 9]], offsets
    np.save(os.path.join(folder, "m.npy"), np.arange(6).reshape(3, 2))
    good(folder, "m.npy")
    assert bags(folder, "ids.0") == [[0], [2], [4]] and bags(folder, "ids.1") == [[1], [3], [5]]


def test_libsvm_and_criteo(folder):
    from scipy.sparse import csr_matrix
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(csr_matrix(np.array([[0, 1, 2], [3, 0, 0]])), [0, 1], os.path.join(folder, "a.svm"))
    good(folder, "a.svm")
    assert bags(folder) == [[1, 2], [0]]
    line = "\t".join(["1", *["9"] * 13, "ffffffff", *["0000000a"] * 24])
    with open(os.path.join(folder, "day_0"), "w", encoding="ascii") as f:
        f.write(f"{line}\t\n{line}\t00000001\n")
    good(folder, "day_0", "--format=criteo", "--ids=modulo:1000")
    assert bags(folder, "14") == [[0xFFFFFFFF % 1000]] * 2 and bags(folder, "20") == [[10]] * 2
    assert bags(folder, "39") == [[], [1]]


def test_ids_are_mapped(folder):
    big = [2**64 - 1, 2**63, 5, 5]
    pd.DataFrame({"h": np.array(big, np.uint64), "name": ["b", "a", "ü", "b"]}).to_parquet(
        os.path.join(folder, "b.parquet")
    )
    pd.DataFrame({"h": big, "name": ["b", "a", "ü", "b"]}).to_csv(os.path.join(folder, "b.csv"), index=False)
    hashed = []
    for name in ("b.parquet", "b.csv"):
        good(folder, name, "--columns=h", "--ids=modulo:1000003")
        assert bags(folder) == [[i % 1000003] for i in big]
        good(folder, name, "--columns=name", "--ids=first-seen")
        assert bags(folder) == [[0], [1], [2], [0]]
        for column in ("h", "name"):
            good(folder, name, "--columns=" + column, "--ids=hash:1000")
            hashed.append(bags(folder))
    assert (
        hashed[:2] == hashed[2:]
        and hashed[0][2] == hashed[0][3]
        and all(0 <= i[0] < 1000 for i in hashed[0] + hashed[1])
    )


def test_bad_files_get_one_line(folder):
    write = lambda name, text: open(os.path.join(folder, name), "w", encoding="utf-8").write(text)
    write("a.csv", "user,item\n1,2\n1,x7\n")
    assert "a.csv: row 2, column item: 'x7'" in refused(folder, "a.csv", "--columns=item")
    assert "which columns are ids" in refused(folder, "a.csv") and "user item" in refused(
        folder, "a.csv", "--columns=nope"
    )
    assert "has no column nope" in refused(folder, "a.csv", "--columns=user", "--by=nope")
    write("b.csv", "u,i\n1,2\n1,\n")
    assert "b.csv: row 2, column i: no value; MISSING=empty" in refused(folder, "b.csv", "--columns=i")
    write("c.csv", "u,i\n1,-4\n")
    assert "row 1, column i: id -4 is outside" in refused(folder, "c.csv", "--columns=i")
    write("d.csv", "u,i\n1,99999999999999999999999\n")
    assert "row 1, column i: '99999999999999999999999'" in refused(folder, "d.csv", "--columns=i", "--ids=modulo:7")
    write("e.csv", "u,i\n1,2,3,4\n")
    write("broken.parquet", "no parquet at all")
    write("empty.csv", "")
    write("none.csv", "u,i\n")
    write("half.jsonl", '{"i": 1}\n{"i": \n')
    pd.DataFrame({"x": [1.5]}).to_parquet(os.path.join(folder, "float.parquet"))
    np.savez(os.path.join(folder, "k.npz"), v=[1, 2, 3], lengths=[1, 1])
    for name, *args in (
        ("e.csv", "--columns=i"),
        ("broken.parquet",),
        ("empty.csv",),
        ("none.csv", "--columns=i"),
        ("half.jsonl",),
        ("float.parquet",),
        ("k.npz", "--columns=v", "--lengths=lengths"),
        ("k.npz", "--columns=v", "--offsets=o"),
        ("missing.csv",),
        ("a.csv", "--columns=user", "--ids=modulo:0"),
        ("a.csv", "--columns=user", "--skip=9"),
    ):
        assert os.path.join(folder, name) in refused(folder, name, *args) or "IDS=modulo:0" in refused(
            folder, name, *args
        )
    write("u.data", "1\t2\n")
    assert "its name says no format; FORMAT=" in refused(folder, "u.data")


def test_a_full_disk_leaves_nothing(folder):
    pd.DataFrame({"i": np.arange(100000)}).to_parquet(os.path.join(folder, "i.parquet"))
    most = 200000
    done = subprocess.run(
        [sys.executable, tool("import.py"), os.path.join(folder, "i.parquet"), "--to", os.path.join(folder, "out")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert not [f for f in os.listdir(folder) if f.startswith("out")], os.listdir(folder)


def test_pieces_give_what_one_does(folder):
    """More rows than are read at once, grouped across the pieces."""
    n = 600_001
    pd.DataFrame({"u": np.arange(n) % 7, "i": np.arange(n) % 1000}).to_csv(os.path.join(folder, "n.csv"), index=False)
    good(folder, "n.csv", "--columns=i", "--by=u")
    assert bags(folder) == [[i % 1000 for i in range(u, n, 7)] for u in range(7)]
    pd.DataFrame({"i": [*range(n - 1), -1]}).to_csv(os.path.join(folder, "m.csv"), index=False)
    assert f"row {n}, column i: id -1" in imported(folder, "m.csv").stderr


def test_bench_takes_the_file_and_records_where_it_is_from(folder):
    ratings().to_csv(os.path.join(folder, "clicks.csv"), index=False)
    once = lambda *more: good(folder, "clicks.csv", "--columns=user item", "--once", *more).strip()
    names = once()
    assert names == once() and names != once("--ids=modulo:3"), names
    bench = os.path.join(ROOT, tap.BUILD, "bench")
    done = subprocess.run([bench, f"--trace={names}", "--filter=sgd/cpu_sort/cold", "--rule=sgd", "--reps=1",
                           "--out=" + os.path.join(folder, "measured")], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    context = json.load(open(os.path.join(folder, "measured", "bench.json"), encoding="utf-8"))["context"]
    origins = [json.loads(v) for k, v in context.items() if k.startswith("emb_trace_")]
    assert [(o["source"], o["column"]) for o in origins] == [("clicks.csv", "item"), ("clicks.csv", "user")], origins


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "import"))
