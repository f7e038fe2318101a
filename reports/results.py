# SPDX-License-Identifier: MIT
"""Reads a saved result for all reports.

A result is Google Benchmark's JSON with additional keys: one row per repetition, all of them kept. Rows
that share (workload, rule, kernel, mode) form one Series of Samples. Medians and quartiles are computed
here from the samples, never taken from the library's aggregate rows. One failed repetition makes its
series fail: such a series has no time, only a reason.

Rates are computed from median times, so that the columns of a table agree. The share of a
ceiling is computed for each sample, from the ceilings measured last before it; the reports show the median.

The reports name no kernel. Names, labels, places and traits come from the file, and the baseline of a
speed is the kernel with the trait dense_gradient.
"""
import json
import math
import re
import statistics
from collections import Counter
from dataclasses import dataclass, field, replace

from doubts import Doubts
from identity import gpu_text, of_gpu, one_work
from program import ResultError, read_text
from verdict import PRECISION, told_apart, uncertainty

SCHEMA = "1"
# The reason starts with one of these if a kernel failed its check, broke the device, or crashed.
WRONG = ("WRONG RESULT", "DEVICE ERROR", "CRASHED")
DENSE_MARK = "†"
DENSE_NOTE = ("† updates all rows: for this rule another operation than the lazy step, so speeds relative to it are "
              "not fair.")
PLANNED_MARK = "§"
PLANNED_NOTE = ("§ builds its index before the step. The time leaves the index out, so the kernel is never called the "
                "fastest. The time of an iteration includes it.")
UNSURE_MARK = "~"  # of a row that is not to be quoted; Result.caution() says why
NOTES = {DENSE_MARK: DENSE_NOTE, PLANNED_MARK: PLANNED_NOTE,
         UNSURE_MARK: "~ or grey: not to be quoted."}
OVER_MARK = "‡"
OVER_NOTE = ("‡ over 100 %: at the roof. Its ceilings are too low where a batch touches few rows, where rows are narrow, "
             "or where gradients are still in a near cache. A few % over it are noise.")
MS_PER_UNIT = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
PEERS = ("torch", "fbgemm")  # families of other systems that the suite is compared with
LADDER = "ladder"  # the family of kernels with one technique left out
STAGES = ("index", "zero", "reduce", "update")
ITERATION = "iteration"  # the mode whose times are of forward, plan and step together
MODES = ("cold", "warm", ITERATION)  # a report shows the first that there is
FORWARD, GRADIENT, WEIGHT_GRAD = "forward", "gradient", "weight_grad"  # in place of a rule
TYPES = ("weight_type", "momentum_type", "grad_type", "rounding")  # keys of a workload
MANY_RULES = 4  # from this many on, the rules of a workload are one table and one figure


@dataclass(frozen=True)
class Kernel:
    name: str
    family: str = "?"
    place: str = "host"
    traits: frozenset = frozenset()
    label: str = ""
    index: int = 0  # position among the kernels of its operation: decides colour and marker; see same_looks()
    where: str = ""  # " (device)" for a device kernel in a file that has kernels of both places

    @property
    def title(self):
        return self.name + self.where

    @property
    def guest(self):
        """True for a peer or a rung of the ladder, which have colours of their own."""
        return self.family in (*PEERS, LADDER)


def operation_text(rule, mode="cold"):
    """The operation of a kernel, for titles."""
    others = {FORWARD: "Embedding forward", GRADIENT: "Gradient as rows and values",
              WEIGHT_GRAD: "Gradient of per-sample weights"}
    return others.get(rule, "Embedding " + "forward + " * (mode == ITERATION) + f"backward + {rule}")


def notes_of(marks):
    """The notes that explain these marks."""
    return [note for mark, note in NOTES.items() if mark in marks]


def marks_explained(groups):
    """The notes that explain the marks of all rows of these groups."""
    return notes_of({mark for g in groups for s in g.measured() for mark in g.mark(s)})


def caches(mode):
    """The state of the caches at the start of a sample, for titles."""
    return ("cold" if mode == ITERATION else mode) + " caches"


@dataclass(frozen=True)
class Sample:
    ms: float
    placement: str
    fingerprint: str  # of the batch: repetitions cycle through a ring of batches
    counters: dict

    def get(self, key):
        """A counter as a float, or None if it is missing, not a number or marked unavailable."""
        value = self.counters.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return None if not math.isfinite(value) or value < 0 else float(value)

    def roof(self):
        """The two terms of the roof in ns per lookup, (memory, caches); None if the sample has no roof.
        Bytes divided by GB/s are ns."""
        memory = "line_gbs" if self.get("line_gbs") else "rmw_gbs"  # old results have rmw_gbs alone
        pairs, lookups = (("line_mib", memory), ("gather_mib", "gather_gbs")), self.get("lookups")
        if not lookups or not all(self.get(key) for pair in pairs for key in pair):
            return None
        return tuple(self.get(mib) * 2**20 / self.get(gbs) / lookups for mib, gbs in pairs)


@dataclass
class Series:
    workload: str
    rule: str
    kernel: Kernel
    mode: str
    operation: str = "lazy"
    check: str = "?"
    samples: list = field(default_factory=list)
    errors: list = field(default_factory=list)

    @property
    def key(self):
        return (self.workload, self.rule, self.kernel.name, self.mode)

    @property
    def failed(self):
        return bool(self.errors) or not self.samples

    @property
    def fingerprints(self):
        return {s.fingerprint for s in self.samples}

    @property
    def times(self):
        return [s.ms for s in self.samples]

    @property
    def ns(self):
        """The median time per lookup, or None."""
        return self.median("ns_per_lookup")

    @property
    def disturbed(self):
        """The number of disturbed samples."""
        return round(sum(self.values("disturbed")))

    def visits(self):
        """{visit: ns per lookup of its samples}; all of one in results that know no visits."""
        found = {}
        for s in self.samples:
            if s.get("ns_per_lookup") is not None:
                found.setdefault(s.get("visit") or 0, []).append(s.get("ns_per_lookup"))
        return found

    def beside(self, reference=None):
        """The two arguments of interval() and uncertainty(), of the visits that both series have."""
        own, over = self.visits(), reference.visits() if reference else {}
        both = [v for v in sorted(own) if v in over or not reference]
        return tuple(tuple(own[v]) for v in both), tuple(tuple(over[v]) for v in both if reference)

    def values(self, key):
        return [v for v in (s.get(key) for s in self.samples) if v is not None]

    def median(self, key):
        return quartiles(self.values(key))[1]

    def quartiles(self, key):
        return quartiles(self.values(key))

    def at_median(self, key):
        """A rate at the median time: rate times time is a property of the batch."""
        products = [x.get(key) * x.get("ns_per_lookup") for x in self.samples
                    if x.get(key) is not None and x.get("ns_per_lookup")]
        return quartiles(products)[1] / self.ns if products else None

    def over(self):
        """The mark of a series that is faster than the roof allows."""
        return OVER_MARK if (self.median("share_roof") or 0) > 1 else ""

    def typical(self):
        """The sample with the (lower) median time: its stages add up, medians of stages would not."""
        return sorted(self.samples, key=lambda s: s.ms)[(len(self.samples) - 1) // 2]

    @property
    def planned(self):
        """True if a part of the work was done ahead and is not in the time."""
        return self.mode != ITERATION and (self.median("plan_ms") or 0) > 0

    def mark(self):
        """A key of NOTES if the series is another operation than the lazy step, or if its time leaves out a part; otherwise ""."""
        return DENSE_MARK if self.operation == "dense" else PLANNED_MARK if self.planned else ""


@dataclass
class Group:
    """All series of one workload, rule and mode: one table."""
    workload: str
    rule: str
    mode: str
    series: list
    types: dict = field(default_factory=dict)  # the entries of TYPES in which the workload differs from the default
    precision: float = PRECISION

    def measured(self):
        return [s for s in self.series if not s.failed]

    def baseline(self, place):
        """The dense baseline of a place, or None. Of several, the fastest one: the least flattering."""
        dense = [s for s in self.measured()
                 if "dense_gradient" in s.kernel.traits and s.kernel.place == place]
        return min(dense, key=lambda s: s.ns or math.inf, default=None)

    def lazy(self):
        return [s for s in self.measured() if not s.mark() and s.ns]

    def best(self):
        """The fastest series of the lazy operation, or None."""
        return min(self.lazy(), key=lambda s: s.ns, default=None)

    def fastest(self):
        """The best series, and all that do not differ from it significantly."""
        times, best = lambda s: s.values("ns_per_lookup"), self.best()
        return [s for s in self.lazy() if s is best or not told_apart(times(s), times(best))]

    def uncertainty(self, series):
        """How uncertain the time of a series over the best one's is, or of the best one alone; None: not known."""
        best = self.best()
        return uncertainty(*series.beside(None if series is best else best))

    def quotable(self, series):
        """Whether it is certain enough; None: not known."""
        share = self.uncertainty(series)
        return None if share is None else share <= self.precision

    def mark(self, series):
        """The marks of a series in a table of this group."""
        return series.mark() + UNSURE_MARK * (self.quotable(series) is False)

    def median(self, key, place=None):
        """Median over the samples of all series (of one place), for counters of the workload or machine."""
        return quartiles([v for s in self.measured() if place in (None, s.kernel.place)
                          for v in s.values(key)])[1]

    def places(self):
        return sorted({s.kernel.place for s in self.measured()}, reverse=True)

    def of(self, kernel):
        """The measured series of a kernel, or None."""
        return next((s for s in self.measured() if s.kernel.name == kernel), None)


@dataclass
class Result(Doubts):
    path: str
    context: dict
    kernels: dict  # name -> Kernel, in the order of the file
    not_run: list  # (workload, kernel, reason)
    series: list
    precision: float = PRECISION  # of rows that may be quoted

    def failures(self, groups=None):
        """(kernel, workload, reason) of all failed checks in these groups or in the whole file:
        failed rows, and kernels that the driver left out because they were wrong."""
        series = [s for g in groups for s in g.series] if groups else self.series
        names = {s.workload for s in series}
        return [(s.kernel.name, s.workload, s.errors[0] if s.errors else "no samples")
                for s in series if s.failed] + [
                    (kernel, workload, reason) for workload, kernel, reason in self.not_run
                    if reason.startswith(WRONG) and (not groups or workload in names)]

    def left_out(self, groups=None):
        """Lines about kernels without a time, and why: all failures, then what was not run."""
        where = lambda workload: "all workloads" if workload == "*" else workload
        return [*(f"FAILED {kernel} on {workload}: {why}" for kernel, workload, why in self.failures(groups)),
                *(f"not run: {kernel} on {where(workload)}: {why}" for workload, kernel, why in self.not_run
                  if not why.startswith(WRONG))]

    def of_cold_parts(self, series):
        """The time of an iteration divided by the sum of its parts, each timed alone with cold caches: the fastest
        forward, the plan and the step. None if a part is not in the result. A value below 1 means that the step finds
        rows in a cache because the forward has just read them."""
        at = lambda rule, name: [s for s in self.series if not s.failed and s.mode == "cold" and s.ns and
                                 s.workload == series.workload and s.rule == rule and
                                 s.kernel.place == series.kernel.place and name in (None, s.kernel.name)]
        steps, forwards = at(series.rule, series.kernel.name), at(FORWARD, None)
        if not (steps and forwards and series.ns):
            return None
        ms = steps[0].median("plan_ms") or 0
        plan = 1e6 * ms / steps[0].median("lookups") if ms else 0
        return series.ns / (min(s.ns for s in forwards) + plan + steps[0].ns)

    def mode(self, asked=""):
        """The mode that was asked for; if none was, the first one of the file."""
        there = {s.mode for s in self.series}
        return asked or next((m for m in MODES if m in there), MODES[0])

    def groups(self, mode):
        """One Group per (workload, rule) in the order of the file; an error if there is none."""
        found = {}
        for s in self.series:
            if s.mode == mode:
                found.setdefault((s.workload, s.rule), []).append(s)
        if not found:
            modes = ", ".join(sorted({s.mode for s in self.series})) or "none"
            raise ResultError(f"{self.path}: no rows in mode {mode} (modes in the file: {modes})")
        types = lambda w: dict(re.findall(rf" ({'|'.join(TYPES)}) (\w+)",
                                          str(self.context.get(f"emb_workload_{w}", ""))))
        return [Group(w, r, mode, series, types(w), self.precision) for (w, r), series in found.items()]

    def machine(self):
        """One line about the machine that the figures were measured on."""
        c = self.context
        parts = [str(c.get("emb_cpu") or c.get("host_name") or "unknown machine")]
        if of_gpu(c):
            return gpu_text(c)
        if c.get("emb_gpu"):
            parts.insert(0, str(c["emb_gpu"]))
        if c.get("emb_threads"):
            parts.append(f"{c['emb_threads']} thread" + "s" * (str(c["emb_threads"]) != "1"))
        if str(c.get("emb_virtualised", "")).lower() not in ("", "0", "no", "none", "false"):
            parts.append("virtual machine")
        if c.get("emb_note"):
            parts.append(str(c["emb_note"]))
        return ", ".join(parts)


def quartiles(values):
    """(first quartile, median, third quartile) by linear interpolation; Nones without values."""
    if not values:
        return (None, None, None)
    if len(values) == 1:
        return (values[0],) * 3
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def leading_number(text):
    """The number at the beginning of a text, or None."""
    found = re.match(r"\d+(\.\d+)?", str(text))
    return float(found[0]) if found else None


def spread(q):
    """Half the interquartile range as a share of the median, or None without a median."""
    return (q[2] - q[0]) / 2 / q[1] if q[1] else None


def family(workload, axes=("alpha",)):
    """The workload's name with these axes removed. Without alpha, all points of a curve over alpha have one name."""
    return re.sub(rf"/?\b(?:{'|'.join(axes)}):[^/]*", "", workload).strip("/") or workload


def by_workload(groups):
    """{workload: its groups, one per rule}"""
    found = {}
    for g in groups:
        found.setdefault(g.workload, []).append(g)
    return found


def by_state(groups):
    """Groups of several rules, those with few bytes of state first."""
    return sorted(groups, key=lambda g: (g.median("state_bytes") or 0, g.rule))


def by_speed(groups):
    """The kernels that have a time, sorted by the median, over the groups, of their time divided by the best one."""
    ratios = {}
    for g in groups:
        for s in g.measured():
            if g.best() and s.ns:
                ratios.setdefault(s.kernel, []).append(s.ns / g.best().ns)
    return sorted(ratios, key=lambda k: (quartiles(ratios[k])[1], k.index))


def load(path, precision=PRECISION):
    """Reads a result file. Raises ResultError if it is missing, is not JSON, is not an embfuse result, or uses one name
    for different work."""
    try:
        data = json.loads(read_text(path))
    except OSError as e:
        raise ResultError(f"{path}: {e.strerror or e}; 'make bench' writes a result file") from None
    except ValueError as e:
        raise ResultError(f"{path}: not JSON ({e}); was the run cut short?") from None
    context = data.get("context") if isinstance(data, dict) else None
    rows = data.get("benchmarks") if isinstance(data, dict) else None
    if not isinstance(context, dict) or not isinstance(rows, list) or "emb_schema" not in context:
        raise ResultError(f"{path}: not an embfuse result (no emb_schema in its context)")
    if str(context["emb_schema"]) != SCHEMA:
        raise ResultError(f"{path}: schema {context['emb_schema']}, these reports read {SCHEMA}")
    kernels = mark_places(read_kernels(context), rows)
    series = read_series(rows, kernels)
    one_work(path, series)
    return Result(str(path), context, kernels, read_not_run(context), series, precision)


def fields(text, count):
    """Splits 'a | b | c' into exactly count stripped fields."""
    parts = [p.strip() for p in str(text).split("|", count - 1)]
    return parts + [""] * (count - len(parts))


def read_not_run(context):
    """The values of emb_not_run_0, 1, ... in the order of their numbers."""
    keys = [k for k in context if re.fullmatch(r"emb_not_run_\d+", k)]
    return [tuple(fields(context[k], 3)) for k in sorted(keys, key=lambda k: int(k[12:]))]


def add_not_run(context, entries):
    """Adds (workload, kernel, reason) to those that a context has."""
    first = len(read_not_run(context))
    context |= {f"emb_not_run_{first + i}": " | ".join(entry) for i, entry in enumerate(entries)}


def operation_of(family):
    return family if family in (FORWARD, GRADIENT, WEIGHT_GRAD) else "step"


def read_kernels(context):
    kernels, count = {}, Counter()
    for key, text in context.items():
        if key.startswith("emb_kernel_") and key != "emb_kernel_os":
            name = key[len("emb_kernel_"):]
            fam, place, traits, label, _ = fields(text, 5)
            traits = frozenset(t.strip() for t in traits.split(",") if t.strip())
            operation = operation_of(fam)
            kernels[name] = Kernel(name, fam, place, traits, label or name, count[operation])
            count[operation] += 1
    return kernels


def same_looks(results):
    """Gives a kernel one index, and so one colour and marker, in all of these results: the index that it has in the
    newest of them, or the next one that no other kernel of its operation has. What shares no figure with kernels keeps
    its own: builds of one kernel (cpu_fused@gcc), and rows of no kernel (latency/65536)."""
    known = {}
    kind = lambda k: (operation_of(k.family), k.guest)
    for result in sorted(results, key=lambda r: str(r.context.get("emb_date", "")), reverse=True):
        for name, kernel in result.kernels.items():
            index, taken = kernel.index, {k.index for k in known.values() if kind(k) == kind(kernel)}
            while index in taken:
                index += 1
            if re.fullmatch(r"\w+", name):
                known.setdefault(name, replace(kernel, index=index))
            result.kernels[name] = replace(kernel, index=known.get(name, kernel).index)
        for s in result.series:
            s.kernel = result.kernels[s.kernel.name]


def words(row):
    """The KEY=VALUE words of a row's label."""
    return dict(p.split("=", 1) for p in str(row.get("label", "")).split() if "=" in p)


def mark_places(kernels, rows):
    """Adds the place to the names and labels of device kernels if the rows have both places."""
    used = {words(r).get("kernel") for r in rows if isinstance(r, dict)}
    if len({k.place for k in kernels.values() if k.name in used}) < 2:
        return kernels
    where = {"device": " (device)"}
    return {name: replace(k, where=where.get(k.place, ""), label=k.label + where.get(k.place, ""))
            for name, k in kernels.items()}


def read_series(rows, kernels):
    """Groups the rows of single repetitions. Adds kernels that are not in the context."""
    found = {}
    for row in rows:
        if not isinstance(row, dict) or row.get("run_type", "iteration") == "aggregate":
            continue
        label = words(row)
        title = str(row.get("name", "?"))
        name = label.get("kernel", title)
        kernel = kernels.setdefault(name, Kernel(name, place=label.get("place", "host"), label=name,
                                                 index=len(kernels)))
        key = (label.get("workload", "?"), label.get("rule", "?"), name, label.get("mode", "cold"))
        if key not in found:
            found[key] = Series(key[0], key[1], kernel, key[3], label.get("operation", "lazy"),
                                label.get("check", "?"))
        add_row(found[key], row, label)
    return list(found.values())


def add_row(series, row, label):
    """Adds one repetition: a sample, or an error that makes the whole series fail."""
    time, unit = row.get("real_time"), MS_PER_UNIT.get(row.get("time_unit", "ms"))
    if row.get("error_occurred"):
        series.errors.append(str(row.get("error_message") or "no message"))
    elif not isinstance(time, (int, float)) or not unit or not (0 < time < math.inf):
        series.errors.append(f"no usable real_time: {time!r} {row.get('time_unit')}")
    else:
        counters = dict(row)
        ms, lookups = time * unit, row.get("lookups")
        if "ns_per_lookup" not in row and isinstance(lookups, (int, float)) and lookups > 0:
            counters["ns_per_lookup"] = ms * 1e6 / lookups
        series.samples.append(Sample(ms, label.get("placement", "unknown"),
                                     label.get("fingerprint", "?"), counters))
