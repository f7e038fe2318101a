# SPDX-License-Identifier: MIT
"""Claims that times decide: of kernels of one run, which took turns. A difference counts if a rank test tells the
samples apart."""
from drawings.choose import against_fp32, type_text
from claim import Axis, Case, Found, Plot, claim, percent, plain, times
from counted import EVERYWHERE, by_workload, cold
from machines import of_idea
from paper import short
from results import family
from style import number
from verdict import told_apart

FUSED, SORT, DENSE, ATOMIC = "cpu_fused", "cpu_sort", "cpu_dense", "cpu_atomic"
GROWS, STAYS = 3, 1.5  # at least and at most, for ten times as many rows
DECADE = 10
HALF = 0.5
HALVED = 0.55          # a half, and noise
ALIKE = 0.05           # relative difference of medians that does not matter


def ns(series):
    return series.values("ns_per_lookup")


def slower(series, other):
    """Whether it takes longer, and not by chance."""
    return series.ns > other.ns and told_apart(ns(series), ns(other))


def fastest(series):
    return min((s for s in series if s.ns), key=lambda s: s.ns, default=None)


def duel(a, b):
    """'239 / 7.06 (33.8x)'"""
    return f"{number(a.ns)} / {number(b.ns)} ({times(a.ns / b.ns)})"


# --- 4
def span(groups, key):
    """'1 to 2': the values of a counter."""
    values = [v for g in groups if (v := g.median(key)) is not None]
    text = lambda v: plain(v) if v == round(v) else number(v)
    return " to ".join(dict.fromkeys(text(v) for v in (min(values), max(values)))) if values else "-"


def where(lost, groups):
    """A sentence about what the lost points have in common, if they are not like all points."""
    facts = ((name, span(lost, key), span(groups, key))
             for name, key in (("threads", "threads"), ("MiB of weights and states", "persistent_mib")))
    text = "; ".join(f"{name}: {own} there, {every} at all points" for name, own, every in facts if own != every)
    return f"Not the fastest at {len(lost)} of {len(groups)} points" + f" ({text})" * bool(text) + "."


@claim(4, "Fused is faster", EVERYWHERE,
       "*fused* is the fastest, or cannot be told from it. A line of the table: at all points of the record.",
       Plot("time of fused / time of the fastest other kernel", 1, True),
       Axis(lambda v: f"{number(v)} MiB", "of weights and states"))
def fused_is_faster(records):
    """*Fused* groups, sums and updates in one pass. Its rivals are all other lazy kernels and peers of the
    same run, on every recorded workload and rule. The figure is the points at which it is the fastest or
    cannot be told from it, and the largest ratio of its time to the time of the fastest."""
    cases, points, lost, groups = [], [], [], []
    for name, record in records.items():
        own = [g for g in cold({name: record}) if of_idea(g, FUSED) in g.lazy() and len(g.lazy()) > 1]
        fused = [of_idea(g, FUSED) for g in own]
        ratios = [s.ns / g.best().ns for g, s in zip(own, fused)]
        others = [s.ns / fastest(x for x in g.lazy() if x is not s).ns for g, s in zip(own, fused)]
        good = [s in g.fastest() for g, s in zip(own, fused)]
        if own:
            cases.append(Case(name, f"{sum(good)} of {len(own)}, at most {times(max(ratios))}", all(good)))
        points += [Case(f"{g.workload}/{g.rule}", "", ok, other, g.median("persistent_mib"))
                   for g, ok, other in zip(own, good, others)]
        lost += [g for g, ok in zip(own, good) if not ok]
        groups += own
    return Found(cases, points, where(lost, groups) if lost else "")


# --- 6
@claim(6, "Dense cost grows with the table, and sparse does not", ("scaling",),
       f"*dense* takes at least {GROWS}x, and *fused* at most {STAYS}x.",
       Plot("time of dense with ten times the rows, x", GROWS, True), Axis(short, "rows in the larger table"))
def dense_grows(records):
    """The rows of the table grow, and the lookups stay. The figure is the time with the larger table over that
    with the smaller one, which has a tenth of the rows: of *dense* / of *fused*. A sparse step is not free
    of the table: more rows mean more distinct rows among the same lookups, and more of them out of the caches."""
    groups = sorted((g for g in cold(records) if g.workload.startswith("rows-")), key=lambda g: g.median("rows"))
    at = {g.median("rows"): pair for g in groups if all(pair := (of_idea(g, DENSE), of_idea(g, FUSED)))}
    grown = lambda large, small: [its.ns / own.ns for its, own in zip(at[large], at[small])]
    text = lambda ratios: " / ".join(map(times, ratios))
    cases = []
    for rows in (rows for rows in at if rows / DECADE in at):
        dense, fused = grown(rows, rows / DECADE)
        cases.append(Case(f"{short(rows / DECADE)} to {short(rows)} rows", text((dense, fused)),
                          dense >= GROWS and fused <= STAYS, dense, rows))
    if not cases:
        return Found(cases)
    return Found(cases, note=f"From {short(min(at))} to {short(max(at))} rows: {text(grown(max(at), min(at)))}.")


# --- 7
def index_share(series):
    """The index of the sample with the median time, as a share of it."""
    sample = series.typical()
    return (sample.get("index_ms") or 0) / sample.ms


@claim(7, "Sorting is the bottleneck", ("standard", "traces"),
       f"The index takes more than {percent(HALF)} of the step of *sort*.",
       Plot("sort / step, %", 100 * HALF), Axis(percent, "distinct rows"))
def sort_is_bottleneck(records):
    """*Sort* sorts all lookups by row, sums, and updates. The figure is the sort's part of its step, and in
    brackets the part that *fused* spends on its index: cpu_fused deals lookups into buckets, which it sorts later in
    L1, and cuda_fused sorts. A part below a half says that gradients and rows take longer than their order."""
    cases = []
    for g in by_workload(records):
        sort, fused = of_idea(g, SORT), of_idea(g, FUSED)
        if sort:
            more = f" ({percent(index_share(fused))})" if fused else ""
            cases.append(Case(g.workload, percent(index_share(sort)) + more, index_share(sort) > HALF,
                              100 * index_share(sort), g.median("distinct") / g.median("lookups")))
    return Found(cases)


# --- 8
def curves(records):
    """[groups by rising alpha] of the workloads with several alphas, from 0 on."""
    found = {}
    for g in cold(records):
        if g.median("alpha") is not None and of_idea(g, ATOMIC) and g.best():
            found.setdefault((family(g.workload), g.rule), []).append(g)
    curves_ = (sorted(own, key=lambda g: g.median("alpha")) for own in found.values())
    return [own for own in curves_ if len(own) > 1 and own[0].median("alpha") == 0]


@claim(8, "Atomics lose under skew", ("standard",),
       "*atomic* is slower, and by a larger factor than without skew (alpha 0).",
       Plot("time of atomic / time of the best deterministic kernel, over the same at alpha 0", 1),
       Axis(lambda v: f"alpha {v:g}", ""))
def atomics_lose(records):
    """*Atomic* adds every lookup to its row with atomic operations, so that threads take turns on a hot row.
    The figure is its time / the time of the fastest deterministic kernel, in ns per lookup."""
    cases, notes = [], []
    for own in curves(records):
        atomic = [of_idea(g, ATOMIC) for g in own]
        best = [fastest(s for s in g.lazy() if "deterministic" in s.kernel.traits) for g in own]
        if not all(best):
            continue
        ratios = [a.ns / b.ns for a, b in zip(atomic, best)]
        for i, g in enumerate(own):
            ok = slower(atomic[i], best[i]) and ratios[i] > ratios[0] if i else None
            cases.append(Case(g.workload, duel(atomic[i], best[i]), ok,
                              ratios[i] / ratios[0], g.median("alpha")))
        loses = "It loses without skew, too." if slower(atomic[0], best[0]) else "Without skew it does not lose."
        change = lambda series: f"{series[-1].ns / series[0].ns:.2f}"
        notes.append(f"{loses} From alpha 0 to {own[-1].median('alpha'):g} its own time per lookup changes by a "
                     f"factor of {change(atomic)}, the time of the best other kernel by {change(best)}.")
    return Found(cases, note=" ".join(notes))


# --- 13
@claim(13, "Determinism is slow", ("standard", "traces", "peers"),
       "The kernel that is not deterministic is the faster one.",
       Plot("time of the best deterministic kernel / time of the best other one", 1, True))
def determinism_is_slow(records):
    """A deterministic kernel gives the same bits on every run and for every number of threads. The figure is
    the ns per lookup of the fastest kernel without that trait / of the fastest with it. Kernels that add every lookup
    by an atomic operation are slow for other reasons, and no rivals here: those are PyTorch's sparse step, FBGEMM, and
    on a GPU a hash table. Bits across compilers are another matter
    ([method](../../../docs/method.md#determinism))."""
    cases = []
    for g in (g for name, record in records.items() for g in cold({name: record})):
        own = {True: [], False: []}
        for s in (s for s in g.lazy() if "_atomic" not in s.kernel.name):
            own["deterministic" in s.kernel.traits].append(s)
        free, fixed = fastest(own[False]), fastest(own[True])
        if free and fixed:
            cases.append(Case(f"{g.workload}, {g.rule}: {free.kernel.name}", duel(free, fixed), slower(fixed, free),
                              fixed.ns / free.ns))
    return Found(cases)


# --- 14
@claim(14, "bf16 halves the time", ("types",),
       f"The time is at most {HALVED} of that in fp32.", Plot("time / time in fp32", HALVED))
def bf16_halves(records):
    """Weights, gradients or momenta in bf16 instead of fp32, at the same workload and rule. The figure is the
    time of the fastest kernel over that in fp32, and in brackets the same of the compulsory bytes. Arithmetic
    stays in fp32, so an element is converted when it is read and written."""
    cases = []
    for (rule, name), (plain_, narrow) in against_fp32(cold(records)).items():
        for g in narrow:
            if set(g.types.values()) <= {"fp32", "bf16"} and "rounding" not in g.types:
                ratio = g.best().ns / plain_.best().ns
                bytes_ = g.median("compulsory_mib") / plain_.median("compulsory_mib")
                cases.append(Case(f"{name}, {rule}: {type_text(g.types)}", f"{ratio:.2f}x ({bytes_:.2f}x)",
                                  ratio <= HALVED, ratio))
    return Found(cases)


# --- 15
def alike(name, series, base):
    ratio = series.ns / base.ns
    near = abs(ratio - 1) <= ALIKE
    unsure = not near and not told_apart(ns(series), ns(base))
    return Case(name, f"{ratio:.2f}x" + " ?" * unsure, None if unsure else near, ratio)


@claim(15, "gcc or clang makes no difference", ("compilers",),
       f"The medians differ by at most {percent(ALIKE, 1)}. ?: they differ by more, but the samples cannot be told "
       "apart; that does not count.", Plot("time of a build / time of the first build", 1 + ALIKE, True), gpu=False)
def compilers_alike(records):
    """The CPU kernels are built by each compiler at the same flags, and the builds take turns in one run. The
    figure is the time of a build over the time of the first build."""
    cases, bits = [], []
    for record in records.values():
        first, *others = str(record.context.get("emb_var_COMPILERS", "")).split() or [""]
        bits += [str(v) for k, v in record.context.items() if k.startswith("emb_bits_")]
        for g in cold(records):
            for s in (s for s in g.measured() if s.kernel.name.endswith(f"@{first}")):
                kernel = s.kernel.name.removesuffix(f"@{first}")
                for other in others:
                    its = g.of(f"{kernel}@{other}")
                    if its:
                        cases.append(alike(f"{g.workload}/{kernel}, {other}/{first}", its, s))
    return Found(cases, note=f"Bits of exact results: {'; '.join(bits)}." * bool(bits))
