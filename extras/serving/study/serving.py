#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A frozen table as it is served: mapped (every type), as rows in a Redis server, and in FAISS indexes.

Exports the table in every type, makes requests of ids (Zipf), starts a Redis server of its own on a socket in a
temporary folder, and writes OUTDIR/serving.md and serving.json. Without redis-server, hiredis or FAISS, that part is
left out, and the page says so. A wrong row ends the study with status 2.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
except ImportError:
    np = None

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "reports"))
import program
from program import Arguments, ResultError, say, write_whole
from style import markdown_table, number

TYPES = ("fp32", "fp16", "bf16", "fp8", "int8")
STORED = ("fp32", "int8")
NEIGHBOURS = 10
TEXT = """# Serving a frozen table

`make serving` makes this page (extras/serving/study/serving.md is a copy of one run, on a Zen 4). {table} {requests}
requests for {pooling} rows each, ids by Zipf with alpha {alpha}; {passes} passes after one that is not timed. One
client with one thread; {cpu}, {cpus} CPUs, load {load} before the run. All rows of all requests equal the fp32 table,
within the bound of their type.

## Lookups

{lookups}

* A request ends when its rows are there as fp32. *mmap* is `frozen_lookup()` on the rows of `embfuse export`.
* *Redis* ({redis}): one MGET or HMGET for a request, by hiredis over a Unix socket; bytes are the memory of the server.
  *16 in flight*: 16 requests are sent before the first answer is awaited, and all their times begin with the first one.
* *FAISS* ({faiss}): `reconstruct_batch()` from Python, which adds some microseconds to each request.
{missing}
## Neighbours

{neighbours}

recall@{k}: of the {k} rows that are nearest in fp32, the share that is among the {k} nearest in the type, for {queries}
rows of the table. The search looks at all rows, except IVFFlat's, which looks at 16 cells. FAISS's SQ8 has a range for
each column, embfuse's int8 one for each row.
"""


class Wrong(Exception):
    """A store returned a wrong row."""


def arguments():
    parser = Arguments(__doc__)
    parser.add_argument("outdir", metavar="OUTDIR")
    parser.add_argument("--embfuse", default="build/embfuse")
    parser.add_argument("--serving", default="build/extras/serving/study/serving")
    parser.add_argument("--python", default="build/serving/venv/bin/python", help="a Python that has FAISS")
    parser.add_argument("--redis", default="redis-server", help="the program")
    parser.add_argument("--weight", help="[rows][dim] float32; otherwise clustered rows are made")
    for name, preset, what in (("rows", 200000, "of the table that is made"), ("dims", 64, "of its rows"),
                               ("batch", 2000, "requests"), ("pooling", 64, "rows of a request"),
                               ("reps", 5, "passes"), ("seed", 1, "of all random numbers"),
                               ("queries", 500, "rows whose neighbours are sought")):
        parser.add_argument(f"--{name}", type=lambda text: int(float(text)), default=preset, help=f"{what} [{preset}]")
    parser.add_argument("--alpha", type=float, default=1.05, help="skew of the ids [1.05]")
    args = parser.parse_args()
    for name in ("rows", "dims", "batch", "pooling", "reps", "queries"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is at least 1")
    return args


def clustered(rows, dim, seed):
    """Rows as trained tables have them: around centres, some directions longer than others, norms that differ."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, rows // 50), dim))
    scale = np.arange(1, dim + 1) ** -0.5 * rng.lognormal(0, 0.5, (rows, 1)) * 0.1
    noise = rng.standard_normal((rows, dim), np.float32)
    return ((centres[rng.integers(0, len(centres), rows)] + 0.4 * noise) * scale).astype(np.float32)


def run(command, what):
    """The lines that a program printed, as JSON. Its message is ours if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    raise (Wrong if done.returncode == 2 else ResultError)(f"{what}: {said}")


@contextlib.contextmanager
def redis_server(redis, folder):
    """A server of our own: no port, no files, ended in any case. Yields its socket."""
    socket, log = os.path.join(folder, "redis.sock"), os.path.join(folder, "redis.log")
    settings = {"port": 0, "unixsocket": socket, "save": "", "appendonly": "no", "dir": folder, "logfile": log,
                "daemonize": "no"}
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    server = subprocess.Popen([redis, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while not os.path.exists(socket):
            if server.poll() is not None or time.monotonic() > end:
                raise ResultError(f"{redis} does not start")
            time.sleep(0.02)
        yield socket
    finally:
        server.terminate()
        server.wait()


def redis_version(redis):
    said = subprocess.run([redis, "--version"], capture_output=True, text=True, check=False).stdout.split()
    return next((word[2:] for word in said if word.startswith("v=")), "")


def export(args, folder, weight, kind):
    """Exports the table in a type: what embfuse says about it, and its rows as float32."""
    out = os.path.join(folder, kind)
    said = run([args.embfuse, "export", "--weight", weight, "--type", kind, "--out", out, "--json"], f"export of {kind}")
    run([args.embfuse, "export", "--weight", out, "--type", "fp32", "--format", "npy", "--out", out], f"rows of {kind}")
    return said[0], np.load(out + ".npy", mmap_mode="r")


def nearest(rows, vectors, own, cosine):
    """The rows nearest to each vector, not counting its own row."""
    norms = np.linalg.norm(rows, axis=1) if cosine else np.ones(len(rows), np.float32)
    scale, found = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0), []
    for begin in range(0, len(vectors), 50):  # products of a block with all rows
        product = vectors[begin:begin + 50] @ rows.T * scale
        product[np.arange(len(product)), own[begin:begin + 50]] = -np.inf
        found += list(np.argpartition(-product, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS])
    return found


def recall(exact, rows, queries):
    """Share of the nearest rows of the exact table that stay the nearest in `rows`, by inner product and by cosine."""
    own = np.arange(queries) * (len(exact) // queries)
    shares = {}
    for metric in ("inner_product", "cosine"):
        pairs = zip(*(nearest(table, exact[own], own, metric == "cosine") for table in (exact, rows)))
        shares[f"recall_{metric}"] = np.mean([len({*a} & {*b}) / NEIGHBOURS for a, b in pairs])
    return shares


def exports(args, folder, weight):
    """What is shown of every type. fp32 comes first."""
    found, exact = [], None
    for kind in TYPES:
        said, rows = export(args, folder, weight, kind)
        exact = rows if exact is None else exact
        found.append(said | recall(exact, rows, args.queries))
    return found


def requests(args, folder, rows):
    prefix = os.path.join(folder, "requests")
    spec = (f"workload w; rows {rows}; dim 1; batch {args.batch}; length fixed {args.pooling}; ids zipf; "
            f"alpha {args.alpha}; pooling none; seed {args.seed}")
    run([args.embfuse, "gen", "--spec-text", spec, "--out", prefix], "requests")
    return prefix + ".ids.npy", prefix + ".offsets.npy"


def in_redis(args, folder, files, missing):
    if not shutil.which(args.redis):
        missing.append(f"Redis is left out: there is no {args.redis} (Debian: redis-server).")
        return [], ""
    # A socket has a short name, whatever OUTDIR is.
    with tempfile.TemporaryDirectory(prefix="embfuse") as short, redis_server(args.redis, short) as socket:
        try:
            tables = [os.path.join(folder, kind) for kind in STORED]
            return run([args.serving, socket, *files, args.reps, *tables], "Redis"), redis_version(args.redis)
        except ResultError as e:
            if "built without hiredis" not in str(e):
                raise
    missing.append("Redis is left out: built without hiredis (Debian: libhiredis-dev).")
    return [], ""


def in_faiss(args, files, missing):
    ask = [args.python, "-c", "import faiss, numpy; print(faiss.__version__)"]
    try:
        found = subprocess.run(ask, capture_output=True, text=True, check=False)
    except OSError:
        found = None
    if not found or found.returncode:
        missing.append(f"FAISS is left out: {args.python} does not have it (make serving installs it).")
        return [], ""
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "faiss_index.py")
    options = ["--passes", args.reps, "--queries", args.queries, "--neighbours", NEIGHBOURS]
    return run([args.python, worker, *files, *options], "FAISS"), found.stdout.strip()


def measure(args):
    """Everything that the page shows."""
    missing = []
    with tempfile.TemporaryDirectory(dir=args.outdir) as folder:
        weight = args.weight
        if not weight:
            say(f"{args.rows} clustered rows of {args.dims}")
            weight = os.path.join(folder, "weight.npy")
            np.save(weight, clustered(args.rows, args.dims, args.seed))
        result = {"load": os.getloadavg()[0], "cpu": program.fact("/proc/cpuinfo", "model name"),
                  "cpus": os.cpu_count()}
        say("export and recall of every type")
        result["exports"] = exports(args, folder, weight)
        rows, dim = (result["exports"][0][key] for key in ("rows", "dim"))
        ids, offsets = requests(args, folder, rows)
        exact = os.path.join(folder, "fp32.npy")  # --weight may be another type
        files = (exact, ids, offsets)
        say("mapped tables")
        tables = [os.path.join(folder, kind) for kind in TYPES]
        result["stores"] = run([args.serving, "mmap", *files, args.reps, *tables], "mmap")
        say("Redis")
        stored, result["redis"] = in_redis(args, folder, files, missing)
        say("FAISS")
        searched, result["faiss"] = in_faiss(args, files, missing)
    result["stores"] += stored + searched
    origin = os.path.basename(args.weight) if args.weight else "made in clusters of about 50 rows, with unequal norms"
    result["table"] = f"{rows:,} rows of {dim} elements, {origin}."
    result["missing"] = missing
    result.update({key: getattr(args, key) for key in ("batch", "pooling", "reps", "alpha", "queries")})
    return result


def named(store):
    return store["store"] + (f", {store['in_flight']} in flight" if store["in_flight"] > 1 else "")


def lookups_table(result):
    heads = ["store", "type", "bytes per row", "p50, us", "p99, us", "million lookups/s"]
    rows = [[named(s), s["type"], number(s["bytes_per_row"]), number(s["p50_us"]), number(s["p99_us"]),
             number(s["lookups_per_s"] / 1e6)] for s in result["stores"]]
    return markdown_table(heads, rows, left=(0, 1))


def neighbours_table(result):
    heads = ["table", "type", "bytes per row", "of fp32", "relative RMS error", "recall, inner product", "recall, cosine",
             "search p50, us", "p99, us"]
    whole = result["exports"][0]["row_bytes"]
    share = lambda count: f"{100 * count / whole:.0f} %"
    rows = [["mmap", e["type"], str(e["row_bytes"]), share(e["row_bytes"]), number(e["relative_rms"], 2),
             f"{e['recall_inner_product']:.4f}", f"{e['recall_cosine']:.4f}", "-", "-"] for e in result["exports"]]
    rows += [[s["store"], s["type"], str(s["bytes_per_row"]), share(s["bytes_per_row"]), "-", f"{s['recall']:.4f}", "-",
              number(s["search_p50_us"]), number(s["search_p99_us"])] for s in result["stores"] if "recall" in s]
    return markdown_table(heads, rows, left=(0, 1))


def page(result):
    missing = "".join(f"* {line}\n" for line in result["missing"])
    return TEXT.format(table=result["table"], pooling=result["pooling"], alpha=result["alpha"],
                       requests=f"{result['batch']:,}", passes=result["reps"], cpu=result["cpu"], cpus=result["cpus"],
                       load=f"{result['load']:.1f}", redis=result["redis"] or "not measured",
                       faiss=result["faiss"] or "not measured", missing=missing, k=NEIGHBOURS,
                       queries=f"{result['queries']:,}", lookups="\n".join(lookups_table(result)),
                       neighbours="\n".join(neighbours_table(result)))


def main():
    args = arguments()
    os.makedirs(args.outdir, exist_ok=True)
    if np is None:
        raise ResultError("NumPy is missing (Debian: python3-numpy)")
    try:
        result = measure(args)
    except Wrong as e:
        print(f"serving.py: wrong: {e}", file=sys.stderr)
        return 2
    write_whole(os.path.join(args.outdir, "serving.json"), json.dumps(result, indent=1) + "\n")
    write_whole(os.path.join(args.outdir, "serving.md"), page(result))
    print("\n".join(lookups_table(result) + [""] + neighbours_table(result)))
    for line in result["missing"]:
        print(line)
    return 0


if __name__ == "__main__":
    program.run(main)
