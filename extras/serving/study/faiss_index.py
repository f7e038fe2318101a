# SPDX-License-Identifier: MIT
"""The same rows in FAISS indexes: lookups by number (reconstruct_batch) and search of neighbours by inner product.

Runs in an environment that has faiss and numpy. Prints a line of JSON for each index, like
extras/serving/study/serving.c. Every row of every request is compared with the fp32 table before anything is timed."""
import argparse
import json
import math
import sys
import time

import faiss
import numpy as np


def rank(values, share):
    return float(np.sort(values)[max(0, math.ceil(share * len(values)) - 1)])


def timed(call, requests, passes):
    """Times in seconds of all calls, and the seconds of all passes together."""
    seconds, begin = [], time.perf_counter()
    for _ in range(passes):
        for request in requests:
            at = time.perf_counter()
            call(request)
            seconds.append(time.perf_counter() - at)
    return np.array(seconds), time.perf_counter() - begin


def latency(seconds, whole, lookups):
    return {"p50_us": rank(seconds, 0.5) * 1e6, "p99_us": rank(seconds, 0.99) * 1e6, "lookups_per_s": lookups / whole}


def indexes(weight):
    """(name, type, index, bound of the error of each element), of the exact rows."""
    dim, kind = weight.shape[1], faiss.ScalarQuantizer
    product = faiss.METRIC_INNER_PRODUCT
    # A code of 8 bits stands for a step of the range of its column.
    step = (weight.max(0) - weight.min(0)) / 255 * 1.001
    half = np.abs(weight) * 2.0**-11 + 2.0**-24
    yield "FAISS Flat", "fp32", faiss.IndexFlatIP(dim), 0
    yield "FAISS SQfp16", "fp16", faiss.IndexScalarQuantizer(dim, kind.QT_fp16, product), half
    yield "FAISS SQ8", "int8", faiss.IndexScalarQuantizer(dim, kind.QT_8bit, product), step
    # This index looks at the rows of 16 of about 4 sqrt(rows) cells.
    cells = max(1, min(int(4 * len(weight) ** 0.5), len(weight) // 39))
    near = faiss.IndexFlatIP(dim)
    inverted = faiss.IndexIVFFlat(near, dim, cells, product)
    inverted.nprobe = 16
    yield "FAISS IVFFlat", "fp32", inverted, 0


def recall(index, weight, queries, k):
    """Of the k nearest other rows by exact products, the share that the index finds; and the times of the queries."""
    exact = faiss.IndexFlatIP(weight.shape[1])
    exact.add(weight)
    hits = 0
    others = lambda near, q: set([n for n in near if n != q][:k])
    wanted, got = (i.search(weight[queries], k + 1)[1] for i in (exact, index))
    for q, want, have in zip(queries, wanted.tolist(), got.tolist()):
        hits += len(others(want, q) & others(have, q))
    seconds, whole = timed(lambda q: index.search(weight[q:q + 1], k), queries[:200], 1)
    return {"recall": hits / (k * len(queries)), "neighbours": k, "queries": len(queries),
            "search_p50_us": rank(seconds, 0.5) * 1e6, "search_p99_us": rank(seconds, 0.99) * 1e6}


def main():
    parser = argparse.ArgumentParser()
    for name in ("weight", "ids", "offsets"):
        parser.add_argument(name)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--neighbours", type=int, default=10)
    args = parser.parse_args()
    faiss.omp_set_num_threads(1)
    weight = np.load(args.weight)
    ids, offsets = np.load(args.ids).astype(np.int64), np.load(args.offsets)
    requests = [ids[a:b] for a, b in zip(offsets[:-1], offsets[1:])]
    queries = np.arange(args.queries, dtype=np.int64) * (len(weight) // args.queries)
    for name, kind, index, bound in indexes(weight):
        index.train(weight)
        index.add(weight)
        if hasattr(index, "make_direct_map"):
            index.make_direct_map()
        limit = np.broadcast_to(bound, weight.shape)
        for request in requests:
            if not (np.abs(index.reconstruct_batch(request) - weight[request]) <= limit[request]).all():
                print(f"faiss_index: {name} returns a row that is not the one that was added", file=sys.stderr)
                return 2
        found = latency(*timed(index.reconstruct_batch, requests, args.passes), len(ids) * args.passes)
        # An inverted file also keeps the number of a row, and where a row is.
        bytes_per_row = index.code_size + (16 if hasattr(index, "make_direct_map") else 0)
        print(json.dumps({"store": name, "type": kind, "in_flight": 1, "requests": len(requests), "lookups": len(ids),
                          "bytes_per_row": bytes_per_row, **found,
                          **recall(index, weight, queries, args.neighbours)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
