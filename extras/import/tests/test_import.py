#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/import/: files written by the libraries that people write them with become traces."""

import contextlib
import importlib.util
import io
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
import program

spec = importlib.util.spec_from_file_location("importer", tool("import.py"))  # import is no name of a module
importer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(importer)

# An interpreter that has PyTorch, as tap.use_torch() finds it, beside the one that has pandas.
TORCH = os.environ.setdefault("TORCH_PYTHON", os.path.join(ROOT, "build", "peers", "venv", "bin", "python"))
LIMITED = """
import resource, runpy, sys
import numpy, pandas, pyarrow.compute, sklearn.datasets
own = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (own + int(sys.argv[1]), own + int(sys.argv[1])))
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
USERS, ITEMS = [3, 1, 3, 3, 1], [70, 5, 0, 5, 9]


def ratings():
    return pd.DataFrame({"user": USERS, "item": ITEMS, "rating": [1.5, 2, 3, 4, 5]})


def imported(folder, source, *args):
    """What import.py says, in this process, since it takes a second to load its libraries."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    sys.argv = command(folder, source, *args)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program.run(importer.main)
        except SystemExit as e:  # with a text it prints that and has status 1
            status = e.code or 0
            if isinstance(status, str):
                status = 1
                print(e.code, file=err)
    return subprocess.CompletedProcess(sys.argv, status, out.getvalue(), err.getvalue())


def command(folder, source, *args):
    return [tool("import.py"), os.path.join(folder, source), "--to", os.path.join(folder, "out"), *args]


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
    """The one line that refuses and names the file; nothing is written."""
    before = sorted(os.listdir(folder))
    done = imported(folder, source, *args)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, (source, args, done.returncode, done.stderr)
    assert os.path.join(folder, source) in done.stderr and not done.stdout, (source, args, done.stderr)
    assert sorted(os.listdir(folder)) == before, os.listdir(folder)
    return done.stderr


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def cut(folder, name, short):
    """The first two thirds of a file."""
    with open(os.path.join(folder, name), "rb") as whole, open(os.path.join(folder, short), "wb") as part:
        data = whole.read()
        part.write(data[:len(data) * 2 // 3])


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
        wanted = {"source": name, "column": "item", "bags": 5, "lookups": 5, "table": 71, "distinct": 4}
        assert told | wanted == told, told
        good(folder, name, "--columns=item", "--by=user") if not name.endswith("npz") else None
    assert bags(folder) == [[70, 0, 5], [5, 9]]


def test_columns_without_names_are_numbered(folder):
    ratings().to_csv(os.path.join(folder, "u.dat"), sep="|", header=False, index=False)
    good(folder, "u.dat", "--format=csv", "--separator=|", "--columns=0 1", "--by=0")
    assert bags(folder, "1") == [[70, 0, 5], [5, 9]] and bags(folder, "0") == [[3, 3, 3], [1, 1]]
    ratings().to_csv(os.path.join(folder, "named.csv"), index=False)
    good(folder, "named.csv", "--columns=1")
    assert bags(folder) == [[i] for i in ITEMS]
    write(folder, "ml.dat", "".join(f"{u}::{i}::5\n" for u, i in zip(USERS, ITEMS)))
    good(folder, "ml.dat", "--format=csv", "--separator=::", "--columns=1", "--skip=1", "--rows=3")
    assert bags(folder) == [[5], [0], [5]]


def test_lists_are_bags(folder):
    lists = [[1, 2], [], [7, 7, 7]]
    d = pd.DataFrame({"h": lists, "t": ["1|2", "", "7|7|7"]})
    d.to_parquet(os.path.join(folder, "l.parquet"))
    d.to_json(os.path.join(folder, "l.jsonl"), orient="records", lines=True)
    for name in ("l.parquet", "l.jsonl"):
        good(folder, name, "--columns=h")
        assert bags(folder) == lists, name
    pd.DataFrame({"t": ["1|2", None, "7|7|7"], "x": 0}).to_csv(os.path.join(folder, "l.csv"), index=False)
    good(folder, "l.csv", "--columns=t", "--split=|", "--missing=empty")
    assert bags(folder) == lists


def test_arrays_have_offsets_lengths_or_columns(folder):
    np.savez(os.path.join(folder, "kjt.npz"), values=np.arange(4, 10, dtype=np.uint64),
             lengths=np.array([[1, 2], [0, 3]], np.int32), whole=[0, 1, 3, 6], without_end=[0, 1, 3])
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
    write(folder, "day_0", f"{line}\t\n{line}\t00000001\n")
    good(folder, "day_0", "--format=criteo", "--ids=modulo:1000")
    assert bags(folder, "14") == [[0xFFFFFFFF % 1000]] * 2 and bags(folder, "20") == [[10]] * 2
    assert bags(folder, "39") == [[], [1]]


def test_ids_are_mapped(folder):
    big = [2**64 - 1, 2**63, 5, 5]
    d, hashed = pd.DataFrame({"h": np.array(big, np.uint64), "name": ["b", "a", "ü", "b"]}), []
    d.to_parquet(os.path.join(folder, "b.parquet"))
    d.to_csv(os.path.join(folder, "b.csv"), index=False)
    for name in ("b.parquet", "b.csv"):
        good(folder, name, "--columns=h", "--ids=modulo:1000003")
        assert bags(folder) == [[i % 1000003] for i in big]
        good(folder, name, "--columns=name", "--ids=first-seen")
        assert bags(folder) == [[0], [1], [2], [0]]
        for column in ("h", "name"):
            good(folder, name, "--columns=" + column, "--ids=hash:1000")
            hashed.append(bags(folder))
    assert hashed[:2] == hashed[2:] and hashed[0][2] == hashed[0][3], hashed
    assert all(0 <= i[0] < 1000 for i in hashed[0] + hashed[1]), hashed


def test_tensors_of_pytorch(folder):
    """The files of dlrm_datasets are a tuple of indices, offsets and lengths [features, bags]."""
    done = subprocess.run([TORCH, "-W", "ignore", "-c", """if True:
        import gzip, sys, torch
        t = torch.tensor
        dlrm = t([4, 5, 6, 7, 8, 9]), t([0, 1, 3, 3, 6]), t([[1, 2], [0, 3]], dtype=torch.int32)
        torch.save(dlrm, "dlrm.pt")
        torch.save(dlrm, "old.pt", _use_new_zipfile_serialization=False)
        with gzip.open("dlrm.pt.gz", "wb") as file:
            torch.save(dlrm, file)
        torch.save({"user": t([3, 1]), "item": t([7, 9])}, "dict.pt")
        torch.save([t([3, 1]), t([7, 9]), t([0, 2])], "list.pt")
        torch.save(t([[3, 7], [1, 9]]), "one.pth")
        torch.save({"user": t([3.5])}, "float.pt")
        torch.save({"user": 3}, "none.pt")
        """], cwd=folder, capture_output=True, text=True, check=False) if os.path.exists(TORCH) else None
    if not done or "No module named 'torch'" in done.stderr:
        raise tap.Skip("no PyTorch; TORCH_PYTHON names an interpreter that has it")
    assert done.returncode == 0, done.stderr
    for name in ("old.pt", "dlrm.pt.gz"):
        good(folder, name)
        assert bags(folder, "feature0") == [[4], [5, 6]] and bags(folder, "feature1") == [[], [7, 8, 9]], name
    good(folder, "dlrm.pt", "--columns=feature1")
    assert bags(folder) == [[], [7, 8, 9]]
    good(folder, "dict.pt", "--columns=item")
    assert bags(folder) == [[7], [9]]
    for name, columns in (("list.pt", ("0", "1", "2")), ("one.pth", ("ids.0", "ids.1"))):
        good(folder, name)
        assert [bags(folder, c) for c in columns[:2]] == [[[3], [1]], [[7], [9]]], name
    assert "column user: float holds no ids" in refused(folder, "float.pt")
    assert "takes a tensor, or a list" in refused(folder, "none.pt")
    cut(folder, "dlrm.pt", "cut.pt")
    refused(folder, "cut.pt")


def test_without_pytorch_the_line_says_how(folder):
    write(folder, "a.pt", "")
    without = tap.script(folder, "without", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without installed modules
    had, os.environ["TORCH_PYTHON"] = TORCH, without
    try:
        assert "TORCH_PYTHON names an interpreter" in refused(folder, "a.pt")
    finally:
        os.environ["TORCH_PYTHON"] = had


def test_bad_ids_get_one_line_with_row_and_column(folder):
    for name, text, says, *args in (
        ("text.csv", "user,item\n1,2\n1,x7\n", "row 2, column item: 'x7'", "--columns=item"),
        ("missing.csv", "u,i\n1,2\n1,\n", "row 2, column i: no value; MISSING=empty", "--columns=i"),
        ("short.csv", "u,i\n1,2\n1\n", "row 2, column i: no value", "--columns=i"),
        ("negative.csv", "u,i\n1,-4\n", "row 1, column i: id -4 is outside", "--columns=i"),
        ("large.csv", "u,i\n1,2\n1,281474976710656\n", "row 2, column i: id 281474976710656 is out", "--columns=i"),
        ("beyond.csv", "i\n1\n18446744073709551616\n", "row 2, column i: '18446744073709551616'", "--ids=modulo:7"),
        ("both.csv", "i\n9223372036854775808\n-1\n", "row 2, column i: '-1'", "--ids=modulo:7"),
        ("float.csv", "i\n1\n2.0\n", "row 2, column i: '2.0'"),
        ("long.csv", "u,i\n1,2\n1,2,3,4\n", "line 3, saw 4", "--columns=i"),
        ("list.csv", "t\n1|2\n3|x\n", "row 2, column t: 'x'", "--split=|"),
        ("null.jsonl", '{"i": 1}\n{"i": null}\n', "row 2, column i: no value"),
        ("half.jsonl", '{"i": 1}\n{"i": \n', "JSON parse error"),
        ("mixed.jsonl", '{"i": 1}\n{"i": "a"}\n', "JSON parse error"),
        ("negative.jsonl", '{"i": [1, 2]}\n{"i": [3, -2]}\n', "row 2, column i: id -2 is outside"),
        ("float.jsonl", '{"i": 1.5}\n', "column i: double holds no ids"),
        ("negative.svm", "1 3:1\n0 -3:1\n", "line 2: Invalid index -3"),
        ("text.svm", "1 3:1\n0 3:1 4:1\n1 x\n", "line 3:"),
        ("large.svm", "1 3:1\n0 99999999999:1\n", "line 2: value too large"),
    ):
        write(folder, name, text)
        assert says in refused(folder, name, *args), (name, refused(folder, name, *args))
    pd.DataFrame({"x": [1.5]}).to_parquet(os.path.join(folder, "float.parquet"))
    assert "column x: double holds no ids" in refused(folder, "float.parquet")
    line = "\t".join(["1", *["9"] * 13, "0x2", *["0000000a"] * 25])
    write(folder, "day_0", line + "\n")
    told = refused(folder, "day_0", "--format=criteo", "--ids=modulo:9")
    assert "row 1, column 14: '0x2' is no hexadecimal id" in told, told


def test_files_that_are_no_trace_get_one_line(folder):
    write(folder, "a.csv", "user,item\n1,2\n")
    for says, *args in (
        ("which columns are ids",),
        ("has no column nope; its columns: user item", "--columns=nope"),
        ("has no column nope", "--columns=user", "--by=nope"),
        ("no ids in 0 rows after SKIP", "--columns=user", "--skip=9"),
    ):
        assert says in refused(folder, "a.csv", *args)
    for name in ("e.csv", "e.tsv.gz", "e.jsonl", "e.parquet", "e.feather", "e.npy", "e.npz", "e.svm", "e.svm.xz"):
        write(folder, name, "")
        refused(folder, name)
        write(folder, "not." + name, "neither ids\nnor an archive\n")
        refused(folder, "not." + name)
    write(folder, "none.csv", "u,i\n")
    pd.DataFrame({"i": np.empty(0, np.int64)}).to_parquet(os.path.join(folder, "none.parquet"))
    np.save(os.path.join(folder, "none.npy"), np.empty(0, np.int64))
    for name in ("none.csv", "none.parquet", "none.npy"):
        assert "no ids in 0 rows" in refused(folder, name, *["--columns=i"] * (name == "none.csv"))
    np.savez(os.path.join(folder, "k.npz"), v=[1, 2, 3], lengths=[1, 1], cube=np.zeros((2, 2, 2)))
    assert "do not cut 3 ids into bags" in refused(folder, "k.npz", "--columns=v", "--lengths=lengths")
    assert "names an array beside" in refused(folder, "k.npz", "--columns=v", "--offsets=o")
    assert "of one length" in refused(folder, "k.npz", "--columns=v lengths")
    assert "has no column cube" in refused(folder, "k.npz", "--columns=cube")
    refused(folder, "missing.csv")
    write(folder, "u.data", "1\t2\n")
    assert "its name says no format; FORMAT=" in refused(folder, "u.data")
    assert "IDS=modulo:0" in imported(folder, "a.csv", "--columns=user", "--ids=modulo:0").stderr
    done = subprocess.run([sys.executable, tool("import.py"), os.path.join(folder, "a.csv"), "--to=a,b"], text=True,
                          capture_output=True, check=False)
    assert done.returncode == 1 and "TO=a,b: a comma separates traces" in done.stderr, done.stderr


def test_compressed_files_that_are_cut_short_get_one_line(folder):
    """The module zstandard reads such a file without a word."""
    rng = np.random.default_rng(1)
    d = pd.DataFrame({"i": rng.integers(0, 1 << 40, 50_000)})
    lines = "".join(f"1 {i}:1\n" for i in rng.integers(0, 1 << 30, 50_000))
    np.savez_compressed(os.path.join(folder, "r.npz"), i=d["i"])
    for end in (".gz", ".bz2", ".xz", ".zst"):
        d.to_csv(os.path.join(folder, "r.csv" + end), index=False)
        d.to_json(os.path.join(folder, "r.jsonl" + end), orient="records", lines=True)
        name = os.path.join(folder, "r.svm" + end)
        with pd.io.common.get_handle(name, "w", compression="infer") as file:
            file.handle.write(lines)
        name = os.path.join(folder, "r.npy" + end)
        with pd.io.common.get_handle(name, "wb", compression="infer", is_text=False) as file:
            np.save(file.handle, d["i"].to_numpy())
    names = sorted(os.listdir(folder))
    assert len(names) == 17, names
    for name in names:
        cut(folder, name, "cut." + name)
        refused(folder, "cut." + name)
    sizes = set()
    for name in names:
        good(folder, name)
        sizes.add(len(bags(folder)))
    assert sizes == {50_000}, sizes


def test_a_full_disk_leaves_nothing(folder):
    d = pd.DataFrame({"i": np.arange(100000)})
    d.to_parquet(os.path.join(folder, "i.parquet"))
    np.savez_compressed(os.path.join(folder, "i.npz"), i=d["i"])
    d.to_csv(os.path.join(folder, "i.csv"), index=False)
    for name in ("i.parquet", "i.npz", "i.csv"):
        for most in (100, 200_000, 800_100):  # at once, while ids are written, and near their end
            done = subprocess.run([sys.executable, *command(folder, name)], capture_output=True, text=True, check=False,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
            assert done.returncode == 1 and done.stderr.count("\n") == 1, (name, most, done.stderr)
            assert "File too large" in done.stderr, (name, most, done.stderr)
            assert sorted(os.listdir(folder)) == ["i.csv", "i.npz", "i.parquet"], os.listdir(folder)


def test_memory_does_not_grow_with_the_file(folder):
    """Each file would take more than the limit as a whole, which is beside what the libraries take."""
    many, limit = 16_000_000, 96 << 20
    ids = np.lib.format.open_memmap(os.path.join(folder, "n.npy"), "w+", np.int64, (many,))  # zeros, which take no disk
    np.savez_compressed(os.path.join(folder, "n.npz"), ids=ids)
    line = "1 " + " ".join(f"{i}:1" for i in range(10, 90)) + "\n"
    write(folder, "n.svm", line * 75_000)
    write(folder, "n.jsonl", f'{{"i": 1, "t": "{"text" * 400}"}}\n' * 100_000)
    for name, lookups in (("n.npy", many), ("n.npz", many), ("n.svm", 6_000_000), ("n.jsonl", 100_000)):
        done = subprocess.run([sys.executable, "-c", LIMITED, str(limit), *command(folder, name),
                               *["--columns=i"] * name.endswith("jsonl")], text=True, capture_output=True, check=False,
                              env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, (name, done.stderr)
        told = json.load(open(os.path.join(folder, "out.json"), encoding="utf-8"))
        assert told["lookups"] == lookups, (name, told)


def test_pieces_give_what_one_does(folder):
    """More rows than are read at once, grouped across the pieces."""
    n = 600_001
    pd.DataFrame({"u": np.arange(n) % 7, "i": np.arange(n) % 1000}).to_csv(os.path.join(folder, "n.csv"), index=False)
    good(folder, "n.csv", "--columns=i", "--by=u")
    assert bags(folder) == [[i % 1000 for i in range(u, n, 7)] for u in range(7)]
    pd.DataFrame({"i": [*range(n - 1), -1]}).to_csv(os.path.join(folder, "m.csv"), index=False)
    assert f"row {n}, column i: id -1" in imported(folder, "m.csv").stderr


def test_blanks_and_commas_in_names(folder):
    """make import FROM= and make bench TRACE= take them; a trace has none, since a comma separates traces in TRACE=."""
    where = os.path.join(folder, "my clicks, new")
    os.mkdir(where)
    source = os.path.join(where, "user's items, v2.csv")
    ratings().to_csv(source, index=False)
    make = lambda *args: subprocess.run(["make", "--no-print-directory", "-s", "NVCC=", *args], cwd=ROOT, text=True,
                                        capture_output=True, check=False)
    done = make("import", "FROM=" + source, "COLUMNS=item", "BY=user", f"TO={folder}/one two")
    assert done.returncode == 0, done.stderr
    assert f"make bench TRACE='{folder}/one two.ids.npy'" in done.stdout, done.stdout
    assert "5 rows of user's items, v2.csv as csv, names in line 1: 1 feature, 1 column ignored, bags by user, " \
           "ids by keep" in done.stdout.replace("\n", " "), done.stdout
    shown = make("--eval", "shown: ; @echo '[$(TRACE)]'", "shown", "TRACE=" + source, "COLUMNS=item", f"TO={folder}/t")
    assert shown.returncode == 0 and shown.stdout.startswith(f"[{folder}/t-") and "," not in shown.stdout, shown
    assert os.path.exists(shown.stdout.strip()[1:-1]), shown.stdout
    imported_here = subprocess.run([sys.executable, tool("import.py"), source, "--columns=item user"], cwd=folder,
                                   text=True, capture_output=True, check=False)
    assert imported_here.returncode == 0, imported_here.stderr
    assert sorted(os.listdir(os.path.join(folder, "build", "import")))[0] == "user_s_items__v2.item.ids.npy"


def test_a_table_is_no_trace(folder):
    """u.data of MovieLens: numbers with tabs between them. The line that refuses names the import, which works."""
    table = "".join(f"{u}\t{i}\t5\t88125094{u}\n" for u, i in zip(USERS, ITEMS))
    for name in ("u.data", "u.txt"):
        write(folder, name, table)
        reads = ["bench", f"--trace={folder}/{name}"] if name == "u.data" else ["embfuse", "stats", f"{folder}/{name}"]
        done = subprocess.run([os.path.join(ROOT, tap.BUILD, reads[0]), *reads[1:]], cwd=ROOT, text=True,
                              capture_output=True, check=False)
        assert done.returncode == 1, done.stderr
        assert f"make import FROM='{folder}/{name}'" in done.stderr, done.stderr
        good(folder, name, "--format=tsv", "--columns=1", "--by=0")
        assert bags(folder) == [[70, 0, 5], [5, 9]]


def test_the_sidecar_says_what_stats_say(folder):
    rng = np.random.default_rng(7)
    np.savez(os.path.join(folder, "s.npz"), ids=rng.zipf(1.3, 5000) % 3000, lengths=[0, 4000, 0, 1, 999])
    said = good(folder, "s.npz", "--lengths=lengths")
    assert "5 rows of s.npz as npz: 1 feature, 0 columns ignored, bags by row, ids by keep" in said, said
    told = json.load(open(os.path.join(folder, "out.json"), encoding="utf-8"))
    done = subprocess.run([os.path.join(ROOT, tap.BUILD, "embfuse"), "stats", os.path.join(folder, "out.ids.npy"),
                           "--bags=5", "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (stats,) = json.loads(done.stdout)
    shared = ("bags", "lookups", "distinct", "distinct_share", "hottest_share", "top_10_share", "top_1_percent_share",
              "mean_bag", "longest_bag", "empty_bags")
    assert all(abs(told[k] - stats[k]) < 1e-5 for k in shared), (told, stats)
    assert told["table"] == stats["table_rows"] and told["distinct"] > 100, told


def test_escapes_and_lists_without_a_header(folder):
    """As the file of the RecSys Challenge of Twitter: \\x01 between columns, tabs between the ids of a list."""
    write(folder, "part", "101\t7\t7\x01\x01x\n102\x01a\x01y\n")
    good(folder, "part", "--format=csv", "--separator=\\x01", "--columns=0", "--split=\\t")
    assert bags(folder) == [[101, 7, 7], [102]]


def test_bench_takes_the_file_and_records_where_it_is_from(folder):
    ratings().to_csv(os.path.join(folder, "clicks.csv"), index=False)
    once = lambda *more: good(folder, "clicks.csv", "--columns=user item", "--once", *more).strip()
    names = once()
    assert names == once() and names != once("--ids=modulo:3"), names
    bench = os.path.join(ROOT, tap.BUILD, "bench")
    done = subprocess.run([bench, f"--trace={names}", "--filter=sgd/cpu_sort/cold", "--rule=sgd", "--reps=1",
                           f"--out={folder}/measured"], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    context = json.load(open(os.path.join(folder, "measured", "bench.json"), encoding="utf-8"))["context"]
    origins = [json.loads(v) for k, v in context.items() if k.startswith("emb_trace_")]
    assert [(o["source"], o["column"]) for o in origins] == [("clicks.csv", "item"), ("clicks.csv", "user")], origins
    assert [(o["ids"], o["distinct_share"]) for o in origins] == [("keep", 0.8), ("keep", 0.4)], origins


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "import"))
