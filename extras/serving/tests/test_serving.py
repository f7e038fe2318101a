# SPDX-License-Identifier: MIT
"""Frozen tables as files and as they are served: embfuse export and lookup next to NumPy, and the study of serving
with a Redis server that the test starts. The parts with Redis and FAISS are skipped where these are missing."""
import importlib.util
import json
import os
import shutil
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    np = None

import tap

BUILD = os.environ.get("BUILD", "build")
PROGRAM = os.path.join(BUILD, "embfuse")
SERVING = os.path.join(BUILD, "extras", "serving", "study", "serving")
VENV = os.path.join(tap.ROOT, "build", "serving", "venv")
TYPES = ("fp32", "fp16", "bf16", "fp8", "int8")


def run(*args, program=PROGRAM):
    return subprocess.run([program, *map(str, args)], capture_output=True, text=True, check=False)


def embfuse(*args):
    done = run(*args)
    assert done.returncode == 0 and not done.stderr, (args, done.returncode, done.stderr[:300])
    return done.stdout


def clusters(rows, dim, seed):
    """As in trained tables: 20 rows around each centre; norms differ."""
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal((rows // 20 + 1, dim))
    rows_of = centre[rng.integers(0, len(centre), rows)] + 0.3 * rng.standard_normal((rows, dim))
    return (0.1 * rows_of * rng.lognormal(0, 0.5, (rows, 1))).astype(np.float32)


def saved(folder, name, array):
    path = os.path.join(folder, name + ".npy")
    np.save(path, array)
    return path


def to_bf16(x):
    """To nearest, ties to even, in whole numbers."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def from_int8(rows, dim):
    """Codes, then a scale and a bias."""
    scale, bias = np.ascontiguousarray(rows[:, dim:]).view(np.float32).T
    return rows[:, :dim].astype(np.float32) * scale[:, None] + bias[:, None]


def test_npy_and_sources_of_every_type(folder):
    weight, out = clusters(50, 7, 1), os.path.join(folder, "t")
    path = saved(folder, "w", weight)
    for kind, want in (("fp32", weight), ("fp16", weight.astype(np.float16)), ("bf16", to_bf16(weight))):
        embfuse("export", "--weight", path, "--type", kind, "--format", "npy", "--out", out)
        array = np.load(out + ".npy")
        assert array.dtype == want.dtype and np.array_equal(array, want)
        # The file is a source, too; so are raw rows.
        embfuse("export", "--weight", out + ".npy", "--type", "fp32", "--out", out + "2")
        embfuse("export", "--weight", out + "2", "--type", kind, "--format", "npy", "--out", out + "3")
        assert np.array_equal(np.load(out + "3.npy"), want)


def test_lookups_are_those_of_numpy(folder):
    import numpy_oracle
    weight, out = clusters(50, 17, 2), os.path.join(folder, "t")
    path, rows = saved(folder, "w", weight), os.path.join(folder, "rows")
    rng = np.random.default_rng(3)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 40))])
    ids, weights = rng.integers(0, 50, offsets[-1]), rng.standard_normal(offsets[-1]).astype(np.float32)
    for kind, pooling, padding, weighted in (("fp32", "sum", 3, True), ("bf16", "mean", 7, False),
                                             ("int8", "none", -1, True)):
        embfuse("export", "--weight", path, "--type", kind, "--out", out)
        embfuse("lookup", "--table", out, "--ids", saved(folder, "all", np.arange(50, dtype=np.int32)), "--out", rows)
        table = np.load(rows + ".output.npy")
        data = np.fromfile(out + ".rows", np.uint8).reshape(50, -1)
        assert np.array_equal(table, from_int8(data, 17) if kind == "int8" else
                              from_bf16(data.view(np.uint16)) if kind == "bf16" else weight), kind
        flags = ["--lookup-weights", saved(folder, "lw", weights)] if weighted else []
        embfuse("lookup", "--table", out, "--ids", saved(folder, "ids", ids), "--offsets",
                saved(folder, "offsets", offsets), "--pooling", pooling, "--padding", padding, "--threads", 2, "--verify", "--out", rows, *flags)
        batch = {"bags": [40], "tables": [{"dim": 17}], "ids": ids,
                 "features": [{"table": 0, "pooling": pooling, "padding": padding}], "offsets": offsets,
                 "weights": weights if weighted else None,
                 "grad": np.zeros((len(ids) if pooling == "none" else 40, 17))}
        want = numpy_oracle.forward(batch, [(table,)])[0]
        assert np.array_equal(np.load(rows + ".output.npy"), want), (kind, pooling)


def test_errors_are_those_of_numpy(folder):
    weight, out = clusters(400, 16, 4), os.path.join(folder, "t")
    path = saved(folder, "w", weight)
    for kind in ("fp32", "fp8", "int8"):
        said = json.loads(embfuse("export", "--weight", path, "--type", kind, "--out", out, "--json"))
        embfuse("export", "--weight", out, "--type", "fp32", "--format", "npy", "--out", out)
        error = np.load(out + ".npy").astype(np.float64) - weight
        assert abs(said["largest_error"] - np.abs(error).max()) < 1e-7 and said["of_bound"] <= 1
        assert abs(said["relative_rms"] - np.sqrt((error**2).sum() / (weight.astype(np.float64)**2).sum())) < 1e-6


def test_recall_by_hand(_folder):
    """The largest of 30 rows becomes zero: each other row loses one of its 10 nearest rows by inner product."""
    import serving
    exact = np.stack([np.arange(1, 31), np.ones(30)], 1).astype(np.float32)
    assert serving.recall(exact, exact, 30) == {"recall_inner_product": 1, "recall_cosine": 1}
    moved = exact.copy()
    moved[29] = 0
    by = serving.recall(exact, moved, 30)
    assert abs(by["recall_inner_product"] - (29 * 0.9 + 1) / 30) < 1e-9 and by["recall_inner_product"] < by["recall_cosine"] < 1, by


def test_small_weights_are_warned_of(folder):
    """Weights of about 0.001 and of about 1: fp8 rounds those below 2^-10 to 0. One row is all 0."""
    weight, out = np.random.default_rng(5).standard_normal((41, 8)).astype(np.float32), os.path.join(folder, "t")
    weight[:8] *= 0.4
    weight[40] = 0
    for scale in (np.float32(0.001), np.float32(1)):
        path, exact = saved(folder, "w", scale * weight), (scale * weight).astype(np.float64)
        for kind in TYPES:
            done = run("export", "--weight", path, "--type", kind, "--out", out, "--json")
            embfuse("export", "--weight", out, "--type", "fp32", "--format", "npy", "--out", out)
            said, read = json.loads(done.stdout), np.load(out + ".npy").astype(np.float64)
            error = np.linalg.norm(read - exact, axis=1)[:40] / np.linalg.norm(exact, axis=1)[:40]
            median, zeroed = np.sort(error)[19], (read[:40] == 0).all(axis=1).sum()
            assert done.returncode == 0 and said["rough_rows"] == (error > 0.1).sum(), (scale, kind, said)
            assert said["nonzero_rows"] == 40 and said["zeroed_rows"] == zeroed, (scale, kind, said)
            assert abs(said["row_largest"] - error.max()) <= 1e-6 * error.max(), (scale, kind, said)
            assert abs(said["row_median"] - median) <= 0.07 * median, (scale, kind, said)
            if kind == "fp8" and scale < 1:
                assert zeroed > 0 and said["rough_rows"] > 35, said
                want = f"{said['rough_rows']} of 41 rows lose more than a tenth as fp8, and {zeroed} of them become 0"
                assert done.stderr.count("\n") == 1 and want + ": take int8" in done.stderr, done.stderr
            else:
                assert said["rough_rows"] == 0 and not done.stderr, (scale, kind, said, done.stderr)
    assert "nonzero rows become 0" in embfuse("export", "--weight", path, "--type", "int8", "--out", out)


def test_bad_input_is_one_line_and_changes_nothing(folder):
    weight, out = clusters(20, 4, 6), os.path.join(folder, "t")
    path, nan = saved(folder, "w", weight), saved(folder, "nan", np.where(weight == weight[7, 2], np.nan, weight))
    embfuse("export", "--weight", path, "--type", "fp16", "--out", out)
    two, high = saved(folder, "two", np.array([0, 3])), saved(folder, "high", np.array([20, 1, 2]))
    contents = lambda: {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))}
    before, none, to = contents(), os.path.join(folder, "none"), ["--out", out]
    export = lambda source, kind, *flags: ["export", "--weight", source, "--type", kind, *to, *flags]
    for said, args in {
            "nan.npy: element [7][2] is nan": export(nan, "int8"), "unknown type 'int4'": export(path, "int4"),
            "int8 is --format raw": export(path, "int8", "--format", "npy"),
            "none.table: cannot open": export(none, "fp32"),
            "high.npy": ["lookup", "--table", out, "--ids", high, *to],
            "needs --offsets": ["lookup", "--table", out, "--ids", two, "--pooling", "sum", *to],
            "has no checksum": ["lookup", "--table", path, "--ids", two, "--verify", *to]}.items():
        done = run(*args)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and said in done.stderr, (said, done.stderr)
    assert contents() == before


def study(folder, *args, python="no-python"):
    """The study in small; returns the process, its result and its page."""
    out = os.path.join(folder, "study")
    done = subprocess.run([sys.executable, tap.tool("serving.py"), out, "--embfuse", PROGRAM, "--serving", SERVING,
                           "--python", python, "--rows", "2000", "--dims", "16", "--batch", "50", "--pooling", "20",
                           "--reps", "2", "--queries", "50", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        return done, None, None
    with open(os.path.join(out, "serving.json"), encoding="utf-8") as file:
        result = json.load(file)
    with open(os.path.join(out, "serving.md"), encoding="utf-8") as file:
        return done, result, file.read()


def sane(store):
    return 0 < store["p50_us"] <= store["p99_us"] and store["lookups_per_s"] > 0 and store["lookups"] == 1000


def test_the_study_without_redis_and_faiss(folder):
    done, result, page = study(folder, "--redis", "no-redis-server")
    assert done.returncode == 0, done.stderr
    assert [(s["store"], s["type"]) for s in result["stores"]] == [("mmap", t) for t in TYPES]
    assert all(map(sane, result["stores"]))
    assert "Redis is left out: there is no no-redis-server" in page and "FAISS is left out" in page


def test_redis_serves_the_same_rows(folder):
    if not shutil.which("redis-server"):
        raise tap.Skip("no redis-server")
    done, result, _ = study(folder)
    assert done.returncode == 0, done.stderr
    if any("without hiredis" in line for line in result["missing"]):
        raise tap.Skip("built without hiredis")
    stored = [s for s in result["stores"] if s["store"].startswith("Redis")]
    assert [(s["store"], s["type"], s["in_flight"]) for s in stored] == [
        (f"Redis {how}", kind, flight) for kind in ("fp32", "int8") for how in ("MGET", "HMGET") for flight in (1, 16)]
    assert all(map(sane, stored))


def test_a_wrong_row_is_found(folder):
    table, ids = os.path.join(folder, "t"), saved(folder, "ids", np.arange(20))
    weight = clusters(20, 4, 9)
    embfuse("export", "--weight", saved(folder, "w", weight), "--type", "fp16", "--out", table)
    weight[13, 1] *= 1.01
    done = run("mmap", saved(folder, "other", weight), ids, saved(folder, "offsets", np.array([0, 10, 20])), 1, table,
               program=SERVING)
    assert done.returncode == 2 and "element 1 of row 13 is" in done.stderr, done.stderr


def test_faiss_holds_the_same_rows(folder):
    if not os.path.exists(os.path.join(VENV, "complete")):
        raise tap.Skip("no FAISS: make serving installs it")
    done, result, _ = study(folder, "--redis", "no-redis-server", python=os.path.join(VENV, "bin", "python"))
    assert done.returncode == 0, done.stderr
    found = {s["store"]: s for s in result["stores"] if s["store"].startswith("FAISS")}
    assert list(found) == ["FAISS Flat", "FAISS SQfp16", "FAISS SQ8", "FAISS IVFFlat"]
    assert all(map(sane, found.values()))
    assert found["FAISS Flat"]["recall"] == 1 and found["FAISS SQ8"]["recall"] > 0.8
    # Both search all rows by products with the same roundings: their recall is about equal.
    fp16 = next(e for e in result["exports"] if e["type"] == "fp16")
    assert abs(found["FAISS SQfp16"]["recall"] - fp16["recall_inner_product"]) < 0.02


if __name__ == "__main__":
    if np is None:
        print("1..0 # SKIP no NumPy")
        sys.exit()
    sys.exit(tap.run(globals(), "serving"))
