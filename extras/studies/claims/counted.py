# SPDX-License-Identifier: MIT
"""Claims that bytes and counts decide. The counters are those that the suite counts with every sample, so they
depend on the ids and not on the speed of the machine."""
from dataclasses import replace

from claim import Axis, Case, Found, Plot, claim, judge, percent, plain, times
from machines import of_idea
from style import number

FEWER = 0.1     # share of row updates that must fall away
SAVED = 0.9     # share of the gradient's bytes that must be saved
SHOWN = 1.5     # times the gradient, at most in the figure
CUT = 0.9       # as the claim says
KNOWN_RULES = ("sgd", "rowwise_adagrad", "adagrad", "adam")
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
    many steps as it has lookups. The figure is lookups over distinct rows, so how many times as many row
    updates there would be. Sums themselves have a price, which claim 7 shows."""
    cases = []
    for g in by_workload(records):
        share = g.median("distinct") / g.median("lookups")
        cases.append(Case(g.workload, times(1 / share), 1 - share >= FEWER, 1 / share, share))
    return Found(cases)


@claim(2, "Only touched rows are updated", EVERYWHERE,
       "No result of the kernel is of the dense operation, and none failed its check.",
       Plot("rules that a kernel was measured with"))
def only_touched(records):
    """A lazy step leaves rows without lookups alone, bit for bit. A check before and after all samples looks
    at every row of every table of every kernel, and a peer's step is checked once; a kernel that fails has no
    time. The figure is the rules with which a kernel was measured. Some rules move a row by its state alone,
    and then a kernel that sweeps all rows is another operation."""
    rules, dense, failed = {}, {}, set()
    for record in records.values():
        failed |= {kernel for kernel, _, _ in record.failures()}
        for s in record.series:
            if not s.failed:
                rules.setdefault(s.kernel.name, set()).add(s.rule)
                if s.operation == "dense":
                    dense.setdefault(s.kernel.name, set()).add(s.rule)
    cases = []
    for kernel in sorted(rules.keys() | failed):
        other = f", not {', '.join(sorted(dense[kernel]))}" if kernel in dense else ""
        count = len(rules.get(kernel, ()))
        text = "a check failed" if kernel in failed else f"{count} rule{'s'[:count > 1]}{other}"
        cases.append(Case(kernel, text, kernel not in failed and kernel not in dense, count))
    touched = [g.median("distinct") / g.median("rows") for g in cold(records)]
    if touched:
        cases.append(Case("(rows that a batch touches)", f"{percent(min(touched))} to {percent(max(touched))}",
                          None))
    return Found(cases)


def beyond(series):
    """MiB at the observed peak beyond weights and states."""
    peak, persistent = series.median("peak_mib"), series.median("persistent_mib")
    return None if peak is None or persistent is None else peak - persistent


def gradients(group, dense):
    """MiB of the gradient of all rows, and of the gradient of touched rows. The first is the dense kernel's scratch."""
    every = dense.median("scratch_mib")
    return every, every * group.median("distinct") / group.median("rows")


@claim(3, "Fusing saves the memory of the gradient", ("standard",),
       f"*fused* needs less by at least {percent(SAVED)} of the bytes of that gradient.",
       Plot(f"memory saved / gradient, %, {plain(100 * SHOWN)} where it is more", 100 * SAVED), SIZE)
def saves_memory(records):
    """A fused step keeps no gradient in memory, but needs an index of the batch. The figure is the observed
    peak beyond weights and states, in MiB, of *fused* / of the kernel with the gradient. *Dense*: the kernel
    whose gradient has all rows. *Sparse*: the leanest kernel whose gradient has the touched rows."""
    against = {"dense": [], "sparse": []}
    for g in by_workload(records):
        fused, dense = of_idea(g, "cpu_fused"), of_idea(g, "cpu_dense")
        sparse = [s for s in g.lazy() if s is not dense and "fused" not in s.kernel.name and not s.kernel.guest
                  and beyond(s) is not None]
        if not fused or not dense or None in (beyond(fused), beyond(dense), dense.median("scratch_mib")):
            continue
        every, touched = gradients(g, dense)
        rivals = [("dense", dense, every)] + [("sparse", min(sparse, key=beyond), touched)] * bool(sparse)
        for what, rival, gradient in rivals:
            own, its = max(beyond(fused), 0), beyond(rival)
            saved = (its - own) / gradient
            against[what].append(Case(f"{g.workload}, {what}", f"{number(own)} / {number(its)}", saved >= SAVED,
                                      100 * min(SHOWN, saved), gradient))
    note = "; ".join(f"{what}: {judge(cases, SIZE)}" for what, cases in against.items())
    return Found([c for cases in against.values() for c in cases], note=f"By themselves, {note}.")


def volume(group, entries):
    """Bytes of a gradient of this many entries over the bytes of a gradient of all rows."""
    row = FLOAT * group.median("dim")
    return entries * (INDEX + row) / (group.median("rows") * row)


def along(points, key, text, start):
    """The verdict along one counter: of the workloads whose names start like this."""
    own = [replace(case, at=g.median(key)) for g, case in points if g.workload.startswith(start)]
    return f"Along {key} ({start}...): {judge(own, Axis(text, ''))}. " if len(own) > 1 else ""


@claim(5, f"Sparse gradients cut the volume by {percent(CUT)} or more", COUNTED,
       f"The merged gradient saves at least {percent(CUT)} of the bytes.",
       Plot("bytes saved, %", 100 * CUT), Axis(percent, "touched rows"))
def sparse_volume(records):
    """A merged gradient has fp32 values and a number of 8 bytes for every touched row, a dense one values for
    every row of the table. The figure is what the merged gradient saves; in brackets the same of an unmerged
    one, with an entry for every lookup, which can be larger than the dense one. The verdict is on all recorded
    points, of which the table shows the ones along skew (alpha) and along the batch (lookups)."""
    points = []
    for g in by_workload(records):
        lookups, rows, distinct = (g.median(k) for k in ("lookups", "rows", "distinct"))
        merged = volume(g, distinct)
        points.append((g, Case(f"{g.workload}: {plain(lookups)} lookups of {plain(rows)} rows",
                               f"{percent(1 - merged, 4)} ({percent(1 - volume(g, lookups), 4)})", 1 - merged >= CUT,
                               100 * (1 - merged), distinct / rows)))
    cases = [c for _, c in points]
    note = f"It is met at {sum(c.ok for c in cases)} of {len(cases)} points. "
    note += along(points, "alpha", lambda v: f"{v:g}", "zipf/") + along(points, "lookups", plain, "lookups-")
    shown = [c for g, c in points if g.workload.startswith(("zipf/", "lookups-", "cached", "dlrm"))]
    return Found(shown or cases, cases, note.strip())


@claim(11, f"{plain(CLAIMED_ROWS)} x {CLAIMED_DIM} in fp32 take {CLAIMED_MIB} MiB", ("roof", "standard"),
       f"Within {percent(NEAR, 1)} of {CLAIMED_MIB} MiB.", Plot("MiB of weights and states", CLAIMED_MIB),
       Axis(lambda v: f"{plain(v)} bytes", "of state a row"))
def table_bytes(records):
    """Rows times columns times 4 bytes are the weights alone. A rule may keep states beside them. The figure
    is the MiB of the table with the states of the rule, by the suite's counter of persistent bytes. A dense gradient
    would take the bytes of the weights once more."""
    weights = FLOAT * CLAIMED_DIM
    size = lambda row: row * CLAIMED_ROWS / MIB
    near = lambda row: abs(size(row) / CLAIMED_MIB - 1) <= NEAR
    cases, rules = [Case("the weights alone", number(size(weights), 4), near(weights), size(weights), 0)], {}
    for record in records.values():
        for g in (g for g in cold({"": record}) if not g.types and g.median("persistent_mib")):
            width = FLOAT * g.median("dim")
            state = g.median("state_bytes")  # older records have the sum with the weights alone
            state = g.median("persistent_mib") * MIB / g.median("rows") - width if state is None else state
            columns, rest = divmod(round(state), width)  # states of every element, and of the row
            rules.setdefault(int(columns * weights + rest), set()).add(g.rule)
    for state, own in sorted(rules.items()):
        rule = next((r for r in KNOWN_RULES if r in own), min(own)) + " ..." * (len(own) > 1)
        cases.append(Case(f"with {plain(state)} bytes of state a row",
                          f"{number(size(weights + state), 4)} ({rule})", near(weights + state),
                          size(weights + state), state))
    return Found(cases)
