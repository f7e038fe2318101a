# SPDX-License-Identifier: MIT
"""Claims that bytes and counts decide. The counters are those that the suite counts with every sample, so they
depend on the ids and not on the speed of the machine."""
from claim import Axis, Case, Plot, claim, percent, plain
from machines import of_idea
from style import number

FEWER = 0.1     # share of row updates that must fall away
SAVED = 0.9     # share of the gradient's bytes that must be saved
SHOWN = 1.5     # times the gradient, at most in the figure
CUT = 0.9       # as the claim says
CLAIMED_MIB, CLAIMED_ROWS, CLAIMED_DIM = 244, 500_000, 128
NEAR = 0.01     # relative difference that still is the claimed figure
FLOAT, INDEX = 4, 8  # bytes of an element and of a row number in a gradient
MIB = 2**20
SIZE = Axis(lambda v: f"{number(v)} MiB", "of gradient")
COUNTED = ("standard", "traces", "scaling", "sweep", "crossover")
EVERYWHERE = ("standard", "standard-1-thread", "roof", "winners", "types", "traces", "peers", "sweep", "crossover",
              "scaling")


def whole(group):
    """Whether all of it has times and the counters of its batch."""
    return (group.measured() and all(s.ns for s in group.measured())
            and all(group.median(key) for key in ("lookups", "distinct", "rows", "dim")))


def cold(records, key=lambda g: (g.workload, g.rule)):
    """The groups of all records that were measured with cold caches, the first of each key."""
    found = {}
    for record in records.values():
        if any(s.mode == "cold" for s in record.series):
            for g in filter(whole, record.groups("cold")):
                found.setdefault(key(g), g)
    return list(found.values())


def by_workload(records):
    """The first rule of each workload."""
    return cold(records, lambda g: g.workload)


@claim(1, "Summing first avoids redundant work", ("standard", "traces"),
       f"At least {percent(FEWER)} of the row updates fall away.",
       Plot("lookups / distinct rows", 1 / (1 - FEWER), True), Axis(percent, "distinct rows"))
def summing_first(records):
    """Duplicates of an id within a batch are summed, and their row takes one step. Without that a row takes as
    many steps as it has lookups. Sums themselves have a price, which claim 7 shows."""
    shares = {g.workload: g.median("distinct") / g.median("lookups") for g in by_workload(records)}
    return [Case(name, 1 - share >= FEWER, 1 / share, share) for name, share in shares.items()]


@claim(2, "Only touched rows are updated", EVERYWHERE,
       "No result of the kernel is of the dense operation, and none failed its check.",
       Plot("rules that a kernel was measured with"))
def only_touched(records):
    """A lazy step leaves rows without lookups alone, bit for bit. A check before and after all samples looks
    at every row of every table of every kernel, and a peer's step is checked once; a kernel that fails has no
    time. Some rules move a row by its state alone, and then a kernel that sweeps all rows is another operation."""
    series = [s for record in records.values() for s in record.series]
    bad = {kernel for record in records.values() for kernel, _, _ in record.failures()}
    bad |= {s.kernel.name for s in series if s.operation == "dense" and not s.failed}
    names = sorted({s.kernel.name for s in series} | bad)
    return [Case(name, name not in bad, len({s.rule for s in series if s.kernel.name == name and not s.failed}))
            for name in names]


def beyond(series):
    """MiB at the observed peak beyond weights and states."""
    peak, persistent = series.median("peak_mib"), series.median("persistent_mib")
    return None if peak is None or persistent is None else peak - persistent


@claim(3, "Fusing saves the memory of the gradient", ("standard",),
       f"*fused* needs less by at least {percent(SAVED)} of the bytes of that gradient.",
       Plot(f"memory saved / gradient, %, {plain(100 * SHOWN)} where it is more", 100 * SAVED), SIZE)
def saves_memory(records):
    """A fused step keeps no gradient in memory, but needs an index of the batch. What is compared is the observed
    peak beyond weights and states. *Dense*: the kernel whose gradient has all rows. *Sparse*: the leanest kernel
    whose gradient has the touched rows."""
    cases = []
    for g in by_workload(records):
        fused, dense = of_idea(g, "cpu_fused"), of_idea(g, "cpu_dense")
        sparse = [s for s in g.lazy() if s is not dense and "fused" not in s.kernel.name and not s.kernel.guest
                  and beyond(s) is not None]
        if not fused or not dense or None in (beyond(fused), beyond(dense), dense.median("scratch_mib")):
            continue
        every = dense.median("scratch_mib")  # the gradient of all rows
        rivals = [("dense", dense, every)]
        if sparse:
            rivals.append(("sparse", min(sparse, key=beyond), every * g.median("distinct") / g.median("rows")))
        for what, rival, gradient in rivals:
            saved = (beyond(rival) - max(beyond(fused), 0)) / gradient
            cases.append(Case(f"{g.workload}, {what}", saved >= SAVED, 100 * min(SHOWN, saved), gradient))
    return cases


@claim(5, f"Sparse gradients cut the volume by {percent(CUT)} or more", COUNTED,
       f"The merged gradient saves at least {percent(CUT)} of the bytes.",
       Plot("bytes saved, %", 100 * CUT), Axis(percent, "touched rows"))
def sparse_volume(records):
    """A merged gradient has fp32 values and a number of 8 bytes for every touched row, a dense one values for
    every row of the table."""
    cases = []
    for g in by_workload(records):
        rows, distinct, row = g.median("rows"), g.median("distinct"), FLOAT * g.median("dim")
        saved = 1 - distinct * (INDEX + row) / (rows * row)
        cases.append(Case(g.workload, saved >= CUT, 100 * saved, distinct / rows))
    return cases


@claim(11, f"{plain(CLAIMED_ROWS)} x {CLAIMED_DIM} in fp32 take {CLAIMED_MIB} MiB", ("roof", "standard"),
       f"Within {percent(NEAR, 1)} of {CLAIMED_MIB} MiB.", Plot("MiB of weights and states", CLAIMED_MIB),
       Axis(lambda v: f"{plain(v)} bytes", "of state a row"))
def table_bytes(records):
    """Rows times columns times 4 bytes are the weights alone. A rule may keep states beside them, which are in the
    suite's counter of persistent bytes. A dense gradient would take the bytes of the weights once more."""
    weights, states = FLOAT * CLAIMED_DIM, {0}
    for g in (g for record in records.values() for g in cold({"": record})):
        width, state = FLOAT * g.median("dim"), g.median("state_bytes")
        if not g.types and state is not None:
            columns, rest = divmod(round(state), width)  # states of every element, and of the row
            states.add(int(columns * weights + rest))
    size = lambda state: (weights + state) * CLAIMED_ROWS / MIB
    return [Case(f"with {plain(state)} bytes of state a row", abs(size(state) / CLAIMED_MIB - 1) <= NEAR, size(state),
                 state) for state in sorted(states)]
