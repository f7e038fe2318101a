# SPDX-License-Identifier: MIT
"""What a sharding costs before anybody runs it: the bytes that ranks send, to the byte, and a model of the time.

Closed forms, bytes that a rank sends to others on average, if all rows are equally likely. W ranks, B bags of each, F
features of L lookups and D columns, i bytes of an id, e of an element of outputs and gradients; P ranks have a part of
a table:

    sharding     P   lengths           ids                    outputs, and gradients
    table        1   (W-1)/W F B 4     (W-1)/W F B L i        (W-1)/W F B D e
    row          W   (W-1) F B 4       (W-1)/W F B L i        (W-1) F B D e h
    column       W   (W-1) F B 4       (W-1) F B L i          (W-1)/W F B D e
    table-row    R   R(W-1)/W F B 4    (W-1)/W F B L i        R(W-1)/W F B D e h; R ranks are a node
    data         W   (W-1) F B 4       (W-1) F B L i          no outputs; gradients (W-1) F B D e

h is 1 if a bag's row goes to all ranks that have rows of the table (an all-gather, as in TorchRec), and
1 - (1 - 1/P)^L if it goes only to those that have a row of the bag. Means of tables that are cut by rows have a second
length per bag, and per-sample weights are 4 bytes of each id. TorchRec (torchrec/distributed/dist_data.py) also sends
8-byte splits, which ranks here derive from the lengths.

The time of an exchange is Hockney's model (Parallel Computing 20, 1994): call + alpha * messages + bytes / speed, for
the links of a node and for the network, plus packing and unpacking at the speed of a copy. All ranks wait for the
slowest one in every stage. Of bytes and messages the larger of both directions counts: links are full duplex.
"""
from dataclasses import dataclass, field

import numpy as np

KINDS = ("table", "row", "row-modulo", "column", "table-row", "data")  # data-dense has bytes, and no model of the time
BY_ROWS = ("row", "row-modulo", "table-row")
STAGES = ("lengths", "ids", "lookup", "outputs", "gradients", "update")
LENGTHS, IDS, OUTPUTS, GRADIENTS = FLOWS = range(4)  # the stages that are exchanges, in this order
# Columns of a load, or of what a part of a table brings to its rank. The first four are the flows from the bags of an
# average rank. Then bytes: of rows that a lookup reads and adds up; of outputs that no exchange moves; of rows that a
# step reads and writes; of gradient rows that it adds up. Then lookups of a step, bytes of rows with states, shards,
# and those shards that send outputs.
LOOKED, GATHERED, COPIED, UPDATED, ADDED, LOOKUPS, MEMORY, SHARDS, SENDERS = range(4, 13)
COLUMNS = 13


@dataclass
class Feature:
    pooling: str
    offsets: np.ndarray  # [bags + 1]
    ids: np.ndarray


@dataclass
class Table:
    rows: int
    dim: int
    features: list
    weight: int = 4         # bytes of an element
    states: int = 0         # bytes of the states of an element
    row_states: int = 0     # bytes of the states of a row
    whole_rows: bool = False  # the rule works on whole rows, so columns stay together


@dataclass
class Batch:
    bags: int  # of all ranks
    tables: list
    id_bytes: int = 8  # with the per-sample weight
    element: int = 4   # bytes of an element of outputs and gradients


@dataclass
class Machine:
    """A rank, while all ranks are at work. Bytes per second count reads and writes."""
    nodes: int
    links: tuple  # of the node, and of the network: (seconds of a message, bytes per second of a rank and direction)
    copy: float   # stream
    rows: float   # random rows of memory
    gather: float  # gathered rows of a cache
    memory: float  # bytes of a rank
    call: float = 0.0  # seconds of an exchange, beside its messages
    grouping: float = 0.0  # seconds of a lookup of a step, beside its bytes
    reached: dict = field(default_factory=dict)  # share of the speeds that the local work of a stage reaches; else 1


# A node of 8 H100, and InfiniBand NDR with a card for each. Speeds that are seen: NVLink 370 GB/s, InfiniBand 48 GB/s
# of 50 (NVIDIA/nccl-tests issues 212, 267, 290). An MPI message takes 1 to 2 us, a call of NCCL 10 to 30 us. Memory at
# its nominal 3350 GB/s (the figure of HugeCTR's planner): local work is a lower bound.
H100 = {"links": ((1e-6, 370e9), (1.5e-6, 48e9)), "copy": 3350e9, "rows": 3350e9, "gather": 3350e9, "call": 20e-6,
        "memory": 80 * 2**30}


# --- who has what
def parts_of(kind, ranks, on_node):
    return {"table": 1, "table-row": on_node}.get(kind, ranks)


def places_of(kind, ranks, on_node):
    """How many places there are for a table: ranks, nodes, or one."""
    return {"table": ranks, "table-row": ranks // on_node}.get(kind, 1)


def shares(total, count):
    """Even blocks: bags of ranks, columns of parts."""
    return np.diff(np.arange(count + 1) * total // count)


def shapes(kind, table, parts):
    """(rows, columns) of each part."""
    rows, columns = np.full(parts, table.rows), np.full(parts, table.dim)
    if kind in ("row", "table-row"):
        block = -(-table.rows // parts)
        rows = np.clip(table.rows - np.arange(parts) * block, 0, block)
    elif kind == "row-modulo":
        rows = (table.rows - np.arange(parts) + parts - 1) // parts
    elif kind == "column":
        columns = shares(table.dim, parts)
    return rows, columns


def owners(kind, table, parts, ids):
    return ids % parts if kind == "row-modulo" else ids // -(-table.rows // parts)


def touch(share, lookups):
    """The part of bags with that many lookups that has one on a part that gets `share` of all lookups."""
    less = np.minimum(share, 1 - 1e-16)  # of a share of 1 the logarithm is not finite
    return np.where(np.asarray(share) >= 1, np.asarray(lookups) > 0, -np.expm1(lookups * np.log1p(-less)))


# --- bytes
def counted(kind, table, feature, ranks, parts):
    """[ranks, parts]: lookups of the bags of a rank that a part gets, and bags with such a lookup."""
    bags = len(feature.offsets) - 1
    source = np.repeat(np.arange(ranks), shares(bags, ranks))
    bag = np.repeat(np.arange(bags), np.diff(feature.offsets))
    if kind not in BY_ROWS:
        every = np.ones(parts, int)
        return np.outer(np.bincount(source[bag], minlength=ranks), every), np.outer(shares(bags, ranks), every)
    pairs = bag * parts + owners(kind, table, parts, feature.ids)
    count = lambda p: np.bincount(source[p // parts] * parts + p % parts, minlength=ranks * parts).reshape(ranks, parts)
    return count(pairs), count(np.unique(pairs))


def flows(kind, batch, table, pooling, parts, bags, lookups, touching, all_rows):
    """[ranks, parts, 4]: bytes from the rank with the bags to the part; outputs travel back. bags: [ranks, 1]."""
    by_rows = kind in BY_ROWS
    rows, columns = shapes(kind, table, parts)
    there = (rows > 0) & (columns > 0)
    moved = lookups if pooling == "none" else touching if by_rows and not all_rows else bags
    size = moved * columns * batch.element
    out = np.stack(np.broadcast_arrays(bags * 4 * (1 + (by_rows and pooling == "mean")), lookups * batch.id_bytes,
                                       0 * size if kind == "data" else size, size), axis=-1)
    return out * there[:, None]


def dense_flows(table, ranks):
    """[ranks, ranks, 4] of the kind data-dense: bits of the rows; then the part of the other's block of rows for the
    sum, and the sum of the own block, which is in place at its own."""
    blocks = shares(table.rows, ranks)
    rows = blocks[:, None] + blocks[None, :] * (1 - np.eye(ranks, dtype=int))
    out = np.zeros((ranks, ranks, 4), int)
    out[..., IDS] = (table.rows + 7) // 8
    out[..., GRADIENTS] = rows * table.dim * 4
    return out


def table_flows(kind, batch, table, ranks, on_node, all_rows=False):
    """[ranks, parts, 4] of all features of a table, counted in its ids."""
    if kind == "data-dense":
        return dense_flows(table, ranks)
    parts, bags = parts_of(kind, ranks, on_node), shares(batch.bags, ranks)[:, None]
    return sum(flows(kind, batch, table, f.pooling, parts, bags, *counted(kind, table, f, ranks, parts), all_rows)
               for f in table.features)


def pairs(words, batch, ranks, nodes, all_rows=False):
    """[ranks, ranks, 4]: the bytes from the bags of each rank to the shards of each rank, which the transport counts.
    words: (kind, place) of each table."""
    out = np.zeros((ranks, ranks, 4), int)
    for table, (kind, place) in zip(batch.tables, words):
        parts = parts_of(kind, ranks, ranks // nodes)
        out[:, place * parts % ranks:][:, :parts] += table_flows(kind, batch, table, ranks, ranks // nodes, all_rows)
    return out


# --- time
def need(kind, batch, table, ranks, flow, lookups, touched, seen):
    """[parts, 13]: what the parts of a table bring to their ranks. flow: from the bags of an average rank. lookups, and
    rows that they touch; seen: rows that the lookup of a rank touches, which has only its own bags of copies."""
    rows, columns = shapes(kind, table, len(flow))
    out, copies = np.zeros((len(flow), COLUMNS)), kind == "data"
    out[:, :4] = flow
    out[:, LOOKED] = seen * columns * table.weight
    out[:, GATHERED] = lookups * columns * table.weight / (ranks if copies else 1)
    out[:, COPIED] = flow[:, GRADIENTS] * copies  # an output row for each gradient row that comes back
    row = columns * (table.weight + table.states) + table.row_states
    out[:, UPDATED] = touched * row
    out[:, ADDED] = lookups * columns * batch.element
    out[:, LOOKUPS] = lookups
    out[:, MEMORY] = rows * row
    out[:, SHARDS] = 1
    out[:, SENDERS] = not copies
    return out * ((rows > 0) & (columns > 0))[:, None]


def counted_need(kind, batch, table, ranks, on_node):
    """From the ids of a batch, so that hot rows at the beginning of a table count against blocks of rows."""
    parts = parts_of(kind, ranks, on_node)
    flow = table_flows(kind, batch, table, ranks, on_node).mean(0)
    rows, count = np.unique(np.concatenate([f.ids for f in table.features]), return_counts=True)
    if kind in BY_ROWS:
        of = owners(kind, table, parts, rows)
        lookups, touched = np.bincount(of, count, parts), np.bincount(of, minlength=parts)
    else:
        lookups, touched = count.sum(), len(rows)
    seen = touch(1 / ranks, count).sum() if kind == "data" else touched
    return need(kind, batch, table, ranks, flow, lookups, touched, seen)


def expected_need(kind, batch, table, ranks, on_node, length, all_rows=False):
    """Of one feature with bags of that length, if all rows are equally likely."""
    parts, bags = parts_of(kind, ranks, on_node), batch.bags / ranks
    rows = shapes(kind, table, parts)[0]
    share = rows / table.rows if kind in BY_ROWS else np.ones(parts)
    own = bags * length * share
    flow = flows(kind, batch, table, "sum", parts, bags, own, bags * touch(share, length), all_rows)
    hit = lambda lookups: rows * touch(1 / np.maximum(rows, 1), lookups)
    seen = own if kind == "data" else own * ranks
    return need(kind, batch, table, ranks, flow, own * ranks, hit(own * ranks), hit(seen))


def put(load, needed, place):
    """Adds the parts of a table to the loads of ranks, [ranks, 13]; -needed takes them out."""
    load[place * len(needed) % len(load):][:len(needed)] += needed


def stages(m, load):
    """[ranks, 6]: seconds of every stage."""
    ranks = len(load)
    on_node = ranks // m.nodes

    def both_links(own):
        """For each link: what goes to other ranks, and what comes from them, if every rank has `own` for each."""
        node = np.repeat(own.reshape(m.nodes, on_node, -1).sum(1), on_node, 0)
        return ((node - own, own * (on_node - 1)), (own.sum(0) - node, own * (ranks - on_node)))

    own = load[:, :4]
    messages = both_links((load[:, [SHARDS, SHARDS, SENDERS, SHARDS]] > 0).astype(int))
    moved, seconds = 3 * own, m.call * (sum(map(sum, messages)) > 0)
    moved[:, OUTPUTS] += load[:, COPIED]
    for (alpha, speed), sent, bytes_of in zip(m.links, messages, both_links(own)):
        seconds = seconds + alpha * np.maximum(*sent) + np.maximum(*bytes_of) / speed
        moved += sum(bytes_of)
    out = np.zeros((ranks, 6))
    reached = [m.reached.get(s, 1.0) for s in STAGES]
    out[:, [0, 1, 3, 4]] = seconds + 2 * moved / m.copy / np.take(reached, [0, 1, 3, 4])
    out[:, 2] = (load[:, LOOKED] / m.rows + load[:, GATHERED] / m.gather) / reached[2]
    out[:, 5] = (2 * load[:, UPDATED] / m.rows + load[:, ADDED] / m.gather) / reached[5] + load[:, LOOKUPS] * m.grouping
    return out


def memory(load):
    """Bytes of each rank: rows with states, and what the route of a batch holds: ids and gradients as received and in
    order, and the largest message."""
    ranks, own = len(load), load[:, :4]
    largest = np.maximum(own.sum(0)[[LENGTHS, IDS, GRADIENTS]].max(), ranks * own[:, OUTPUTS])
    return load[:, MEMORY] + 2 * ranks * own.sum(1) + largest


@dataclass
class Cost:
    seconds: float  # of an iteration: in every stage of the slowest rank
    mean: float     # over ranks
    missing: float  # bytes that do not fit into the memory of ranks; 0: feasible
    stages: dict


def cost(m, load):
    times = stages(m, load)
    slowest = times.max(0)
    return Cost(slowest.sum(), times.sum(1).mean(), np.maximum(0, memory(load) - m.memory).sum(),
                dict(zip(STAGES, slowest.tolist())))


def fit_link(points):
    """(alpha, speed) from [(messages, bytes, seconds)], by least squares of the relative error. Neither is negative."""
    x = np.array([(n / s, b / s) for n, b, s in points])
    alpha, per_byte = np.linalg.lstsq(x, np.ones(len(x)), rcond=None)[0]
    if alpha <= 0:
        alpha, per_byte = 0.0, x[:, 1].sum() / (x[:, 1] ** 2).sum()
    return float(alpha), float(1 / max(per_byte, 1e-15))


def machine_of(measured):
    """A machine, from what extras/ranks/study/machine.c prints. One link stands for both where there is no other."""
    fitted = {which: fit_link(measured[which]) for which in ("node", "network") if measured[which]}
    only = next(iter(fitted.values()), (0.0, float("inf")))  # one rank has no links
    return Machine(measured["nodes"], (fitted.get("node", only), fitted.get("network", only)),
                   *(measured[key] for key in ("copy", "rows", "gather", "memory")))
