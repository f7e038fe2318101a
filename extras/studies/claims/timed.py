# SPDX-License-Identifier: MIT
"""Claims that times decide: of kernels of one run, which took turns. A difference counts if a rank test tells the
samples apart."""
from drawings.choose import against_fp32, type_text
from claim import Axis, Case, Plot, claim, percent
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


# --- 4
@claim(4, "Fused is faster", EVERYWHERE,
       "*fused* is the fastest, or cannot be told from it. A line of the table: at all points of the record.",
       Plot("time of fused / time of the fastest other kernel", 1, True),
       Axis(lambda v: f"{number(v)} MiB", "of weights and states"))
def fused_is_faster(records):
    """*Fused* groups, sums and updates in one pass. Its rivals are all other lazy kernels and peers of the same
    run, on every recorded workload and rule."""
    cases = []
    for g in (g for name, record in records.items() for g in cold({name: record})):
        fused = of_idea(g, FUSED)
        other = fastest(s for s in g.lazy() if s is not fused)
        if fused in g.lazy() and other:
            cases.append(Case(f"{g.workload}/{g.rule}", fused in g.fastest(), fused.ns / other.ns,
                              g.median("persistent_mib")))
    return cases


# --- 6
@claim(6, "Dense cost grows with the table, and sparse does not", ("scaling",),
       f"*dense* takes at least {GROWS}x, and *fused* at most {STAYS}x.",
       Plot("time of dense with ten times the rows, x", GROWS, True), Axis(short, "rows in the larger table"))
def dense_grows(records):
    """The rows of the table grow, and the lookups stay. A sparse step is not free of the table: more rows mean more
    distinct rows among the same lookups, and more of them out of the caches."""
    groups = {g.median("rows"): g for g in cold(records) if g.workload.startswith("rows-")}
    at = {rows: pair for rows, g in groups.items() if all(pair := (of_idea(g, DENSE), of_idea(g, FUSED)))}
    cases = []
    for rows in sorted(rows for rows in at if rows / DECADE in at):
        dense, fused = (large.ns / small.ns for large, small in zip(at[rows], at[rows / DECADE]))
        name = f"{short(rows / DECADE)} to {short(rows)} rows"
        cases.append(Case(name, dense >= GROWS and fused <= STAYS, dense, rows))
    return cases


# --- 7
def index_share(series):
    """The index of the sample with the median time, as a share of it."""
    sample = series.typical()
    return (sample.get("index_ms") or 0) / sample.ms


@claim(7, "Sorting is the bottleneck", ("standard", "traces"),
       f"The index takes more than {percent(HALF)} of the step of *sort*.",
       Plot("sort / step, %", 100 * HALF), Axis(percent, "distinct rows"))
def sort_is_bottleneck(records):
    """*Sort* sorts all lookups by row, sums, and updates. A part below a half says that gradients and rows take
    longer than their order."""
    shares = [(g, index_share(s)) for g in by_workload(records) if (s := of_idea(g, SORT))]
    return [Case(g.workload, share > HALF, 100 * share, g.median("distinct") / g.median("lookups"))
            for g, share in shares]


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
       "*atomic* is slower, and by a larger factor than without skew (alpha 0). A factor within "
       f"{percent(ALIKE, 1)} of that does not count.",
       Plot("time of atomic / time of the best deterministic kernel, over the same at alpha 0", 1),
       Axis(lambda v: f"alpha {v:g}", ""))
def atomics_lose(records):
    """*Atomic* adds every lookup to its row with atomic operations, so that threads take turns on a hot row."""
    cases = []
    for own in curves(records):
        best = [fastest(s for s in g.lazy() if "deterministic" in s.kernel.traits) for g in own]
        if all(best):
            atomic = [of_idea(g, ATOMIC) for g in own]
            ratios = [a.ns / b.ns * best[0].ns / atomic[0].ns for a, b in zip(atomic, best)]
            cases += [Case(g.workload, None if abs(ratio - 1) <= ALIKE else slower(a, b) and ratio > 1, ratio,
                           g.median("alpha")) for g, a, b, ratio in zip(own, atomic, best, ratios)]
    return cases


# --- 13
@claim(13, "Determinism is slow", ("standard", "traces", "peers"),
       "The kernel that is not deterministic is the faster one.",
       Plot("time of the best deterministic kernel / time of the best other one", 1, True))
def determinism_is_slow(records):
    """A deterministic kernel gives the same bits on every run and for every number of threads. Kernels that add every
    lookup by an atomic operation are slow for other reasons, and no rivals here: those are PyTorch's sparse step,
    FBGEMM, and on a GPU a hash table. Bits across compilers are another matter
    ([method](../../../docs/method.md#determinism))."""
    cases = []
    for g in (g for name, record in records.items() for g in cold({name: record})):
        own = {True: [], False: []}
        for s in (s for s in g.lazy() if "_atomic" not in s.kernel.name):
            own["deterministic" in s.kernel.traits].append(s)
        free, fixed = fastest(own[False]), fastest(own[True])
        if free and fixed:
            cases.append(Case(f"{g.workload}, {g.rule}: {free.kernel.name}", slower(fixed, free), fixed.ns / free.ns))
    return cases


# --- 14
@claim(14, "bf16 halves the time", ("types",),
       f"The time is at most {HALVED} of that in fp32.", Plot("time / time in fp32", HALVED))
def bf16_halves(records):
    """Weights, gradients or momenta in bf16 instead of fp32, at the same workload and rule; of each the fastest
    kernel. Arithmetic stays in fp32, so an element is converted when it is read and written."""
    cases = []
    for (rule, name), (plain_, narrow) in against_fp32(cold(records)).items():
        for g in narrow:
            if set(g.types.values()) <= {"fp32", "bf16"} and "rounding" not in g.types:
                ratio = g.best().ns / plain_.best().ns
                cases.append(Case(f"{name}, {rule}: {type_text(g.types)}", ratio <= HALVED, ratio))
    return cases


# --- 15
def alike(name, series, base):
    ratio = series.ns / base.ns
    near = abs(ratio - 1) <= ALIKE
    return Case(name, True if near else False if told_apart(ns(series), ns(base)) else None, ratio)


@claim(15, "gcc or clang makes no difference", ("compilers",),
       f"The medians differ by at most {percent(ALIKE, 1)}.",
       Plot("time of a build / time of the first build", 1 + ALIKE, True), gpu=False)
def compilers_alike(records):
    """The CPU kernels are built by each compiler at the same flags, and the builds take turns in one run. Medians
    that differ by more, of samples that cannot be told apart, do not count."""
    cases = []
    for record in records.values():
        first, *others = str(record.context.get("emb_var_COMPILERS", "")).split() or [""]
        for g in cold(records):
            for s in (s for s in g.measured() if s.kernel.name.endswith(f"@{first}")):
                kernel = s.kernel.name.removesuffix(f"@{first}")
                cases += [alike(f"{g.workload}/{kernel}, {other}/{first}", its, s) for other in others
                          if (its := g.of(f"{kernel}@{other}"))]
    return cases
