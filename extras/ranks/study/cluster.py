# SPDX-License-Identifier: MIT
"""The best sharding on 8 to 16,384 ranks of a cluster, by extras/ranks/rank_model.py. Nothing here is measured."""
import math
import os

import numpy as np

import rank_model as model
from export import figure, names
from style import COLOURS, markdown_table, number

HERE = os.path.dirname(os.path.abspath(__file__))
# The tables, all alike, of DLRM-DCNv2 in MLPerf: 26 features, 128 columns, fp16 on the wire; fp32 rows. Nodes of H100.
FEATURES, DIM, RANK_BAGS, ON_NODE, RANKS_MOST = 26, 128, 1024, 8, 16384
DRAWN_ROWS = 10**7  # of a table, in the panels below the maps
NOTHING = "nothing fits"
# Ways on the map: kinds of the suite, and flows of other systems.
WAYS = {"table": "table", "row": "row", "row, all-gather": "row", "column": "column",
        "table-row, two hops": "table-row", "data, sparse": "data", "data, all-reduce": "data"}


def two_hops(m):
    """Output and gradient of rows over a node: summed in the node, then one copy to each other node, and back
    (TorchRec's reduce-scatter and all-to-all; for the backward all-to-all and all-gather)."""
    (near, near_speed), (far, far_speed), size = *m.links, FEATURES * RANK_BAGS * DIM * 2
    return (m.call + near * (ON_NODE - 1) + size * (ON_NODE - 1) / near_speed + (m.call if m.nodes > 1 else 0) +
            far * (m.nodes - 1) + size * (m.nodes - 1) / m.nodes / far_speed)


def all_reduce(m, ranks, rows, lookups):
    """Stages with an all-reduce of gradients of all rows: 2 (W-1)/W of them over the slowest link, in 2 log2(W)
    messages; and a pass over them to clear, to add and to apply."""
    size, slowest = FEATURES * rows * DIM * 2, m.links[1 if m.nodes > 1 else 0][1]
    return {"lengths": 0.0, "ids": 0.0,
            "gradients": m.call + 2 * math.log2(ranks) * m.links[1][0] + 2 * (ranks - 1) / ranks * size / slowest,
            "update": (FEATURES * RANK_BAGS * lookups * DIM * 2 / m.gather + 2 * size / m.copy +
                       4 * FEATURES * rows * DIM * 4 / m.rows)}


def modelled(way, ranks, rows, lookups):
    """A point of the map."""
    kind, m = WAYS[way], model.Machine(ranks // ON_NODE, **model.H100)
    table = model.Table(rows, DIM, [], states=4)
    batch = model.Batch(RANK_BAGS * ranks, [], id_bytes=4, element=2)
    needed = model.expected_need(kind, batch, table, ranks, ON_NODE, lookups, way == "row, all-gather")
    on_ranks = np.zeros((ranks, model.COLUMNS))
    for t in range(FEATURES):
        model.put(on_ranks, needed, t % model.places_of(kind, ranks, ON_NODE))
    cost = model.cost(m, on_ranks)
    if kind == "table-row":
        cost.stages["outputs"] = cost.stages["gradients"] = two_hops(m)
    if way == "data, all-reduce":  # a gradient of all rows lies beside them
        cost.stages |= all_reduce(m, ranks, rows, lookups)
        cost.missing = max(0.0, on_ranks[0, model.MEMORY] + FEATURES * rows * DIM * 2 - m.memory) * ranks
    return {"ranks": ranks, "rows": rows, "lookups": lookups, "sharding": way, "seconds": sum(cost.stages.values()),
            "missing": float(cost.missing), "stages": cost.stages}


def points():
    """Every way on every number of ranks, of rows, and of lookups in a bag."""
    numbers = [ON_NODE * 2**k for k in range(int(math.log2(RANKS_MOST // ON_NODE)) + 1)]
    return [modelled(way, ranks, 10**e, lookups)
            for lookups in (1, 8, 64) for ranks in numbers for e in range(3, 10) for way in WAYS]


# --- the map
def cells(there):
    """{(lookups, ranks, rows): the quickest line that fits, or None}"""
    best = {}
    for x in there:
        key = x["lookups"], x["ranks"], x["rows"]
        best.setdefault(key, None)
        if not x["missing"] and (best[key] is None or x["seconds"] < best[key]["seconds"]):
            best[key] = x
    return best


def won(best, lookups, rows):
    """'table from 8, row from 64': the winners over the ranks."""
    text, last = [], None
    for (_, ranks, _), x in sorted((k, x) for k, x in best.items() if (k[0], k[2]) == (lookups, rows)):
        name = x["sharding"] if x else NOTHING
        if name != last:
            text.append(f"{name} from {ranks:,}")
        last = name
    return "; ".join(text)


def winners_table(best):
    axes = [sorted({k[i] for k in best}) for i in (0, 2)]
    return markdown_table(("rows of a table", *(f"{n:g} lookups a bag" for n in axes[0])),
                          [(f"{rows:,}", *(won(best, n, rows) for n in axes[0])) for rows in axes[1]],
                          left=(1, 2, 3))


def picture(there, best, stem):
    """Maps of the best sharding over ranks and rows, a panel for each number of lookups; below each, the time of
    every sharding over the ranks."""
    ways = list(dict.fromkeys(x["sharding"] for x in there))
    lookups, ranks, rows = (sorted({k[i] for k in best}) for i in range(3))
    blocks = []
    for n in lookups:
        blocks.append([[f"{n:g}"], *([ranks.index(k[1]), rows.index(k[2]), ways.index(x["sharding"]) if x else -1,
                                      number(1e3 * x["seconds"], 2) if x else "-"]
                                     for k, x in best.items() if k[0] == n)])
    for n in lookups:
        for way in ways:
            points = [[x["ranks"], 1e3 * x["seconds"]] for x in there if not x["missing"] and
                      (x["lookups"], x["rows"], x["sharding"]) == (n, DRAWN_ROWS, way)]
            blocks.append([[way], *(sorted(points) or [[1e30, 1.0]])])
    return figure(os.path.join(HERE, "scale"), stem, {
        "heading": "Embeddings of an iteration on a cluster: the best sharding",
        "machine": "nodes of 8 H100, InfiniBand NDR; 26 tables x 128, 1024 bags a rank; ms in the cells",
        "caution": "MODELLED: bytes, latency and bandwidth; nothing here is measured", "panels": len(lookups),
        "ways": len(ways), "names": names(ways), "colours": " ".join(COLOURS[:6] + ("#777777",)),
        "ranks": " ".join(f"{r}" for r in ranks), "rows": " ".join(f"{r:.0e}".replace("e+0", "e") for r in rows),
        "lookups": " ".join(f"{n:g}" for n in lookups), "drawn": "10 million"}, blocks)
