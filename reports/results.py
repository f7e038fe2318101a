# SPDX-License-Identifier: MIT
"""A saved result, read once for every report.

A result is Google Benchmark's JSON with keys of our own: one row per repetition, all of them kept.
Rows that share (workload, rule, kernel, mode) are one Series of Samples; medians and quartiles are
computed here, from the samples, never taken from the library's aggregate rows. A series with one
failed repetition is a failed series: it has no time, only a reason.

Medians are taken of times; rates are worked out of them, so that the columns of a table agree. A share
of a ceiling is the median over the samples, each of which has ceilings measured right before it.

No kernel is named anywhere in the reports. Names, labels, places and traits come from the file, and
the baseline of a speed is the kernel that says dense_gradient.
"""
import argparse
import contextlib
import json
import math
import os
import re
import statistics
import sys
from dataclasses import dataclass, field, replace

from ranks import told_apart

SCHEMA = "1"
# How the driver begins the reason of a kernel that failed its check, broke the device, or crashed.
WRONG = ("WRONG RESULT", "DEVICE ERROR", "CRASHED")
DENSE_MARK = "†"
DENSE_NOTE = ("† sweeps all rows: for this rule another operation than the lazy step, and no fair "
              "base for a speed.")
OVER_MARK = "‡"
OVER_NOTE = ("‡ over 100 %: at the roof, whose ceilings are too low for few or narrow rows and gradients "
             "close by; a few % are noise.")
# Beyond these no figure is to be quoted: a share of the samples, and threads more than there are CPUs. A
# quiet system has so many of its own.
DISTURBED_MOST, LOAD_TOLERATED = 0.1, 0.5
MS_PER_UNIT = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
PEERS = ("torch", "fbgemm")  # families: systems beside the suite
LADDER = "ladder"  # the family of kernels that lack one technique each
STAGES = ("index", "zero", "reduce", "update")


# Every report speaks UTF-8, whatever the locale: a page or a pipe is read as that.
for stream in (sys.stdin, sys.stdout, sys.stderr):
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")


class ResultError(Exception):
    """One line for the user: what was wrong, where, and what to do."""


def write_whole(path, data):
    """Text or bytes; the file has its name when it is whole, and an error names it."""
    part = f"{path}.{os.getpid()}.new"
    try:
        with open(part, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        os.replace(part, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise ResultError(f"{path}: {e.strerror}") from None


class Arguments(argparse.ArgumentParser):
    """An argument parser whose usage errors exit with status 1: 2 means wrong results here."""

    def error(self, message):
        self.print_usage()
        self.exit(1, f"{self.prog}: {message}\n")


@dataclass(frozen=True)
class Kernel:
    name: str
    family: str = "?"
    place: str = "host"
    traits: frozenset = frozenset()
    label: str = ""
    idea: str = ""
    index: int = 0  # position in the file: decides colour and marker in every figure
    where: str = ""  # " (device)" in a file that has kernels of both places

    @property
    def title(self):
        return self.name + self.where

    @property
    def guest(self):
        """Whether it is no kernel of the suite proper: it has a colour that none of those has."""
        return self.family in (*PEERS, LADDER)


@dataclass(frozen=True)
class Sample:
    ms: float
    placement: str
    fingerprint: str  # of the batch: repetitions go round a ring of batches
    counters: dict

    def get(self, key):
        """A counter as a float, None where it is missing, not a number or marked unavailable."""
        value = self.counters.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return None if not math.isfinite(value) or value < 0 else float(value)

    def roof(self):
        """The two terms of the roof in ns per lookup, (memory, caches); None where the sample has none.
        Bytes over GB/s are ns."""
        pairs, lookups = (("line_mib", "rmw_gbs"), ("gather_mib", "gather_gbs")), self.get("lookups")
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

    def values(self, key):
        return [v for v in (s.get(key) for s in self.samples) if v is not None]

    def median(self, key):
        return quartiles(self.values(key))[1]

    def quartiles(self, key):
        return quartiles(self.values(key))

    def at_median(self, key):
        """A rate at the median time: its product with the time is a property of the batch."""
        ns = self.median("ns_per_lookup")
        products = [x.get(key) * x.get("ns_per_lookup") for x in self.samples
                    if x.get(key) is not None and x.get("ns_per_lookup")]
        return quartiles(products)[1] / ns if products else None

    def over(self):
        """The mark of a series that is faster than the roof allows."""
        return OVER_MARK if (self.median("share_roof") or 0) > 1 else ""

    def typical(self):
        """The sample whose time is the (lower) median: its parts add up, medians would not."""
        return sorted(self.samples, key=lambda s: s.ms)[(len(self.samples) - 1) // 2]

    def mark(self):
        """The dagger where this series is not the lazy operation."""
        return DENSE_MARK if self.operation == "dense" else ""


@dataclass
class Group:
    """All series of one workload, rule and mode: what may stand in one table."""
    workload: str
    rule: str
    mode: str
    series: list

    def measured(self):
        return [s for s in self.series if not s.failed]

    def baseline(self, place):
        """The dense baseline of a place, or None. With several, the fastest: the least flattering
        one."""
        dense = [s for s in self.measured()
                 if "dense_gradient" in s.kernel.traits and s.kernel.place == place]
        return min(dense, key=lambda s: s.median("ns_per_lookup") or math.inf, default=None)

    def lazy(self):
        return [s for s in self.measured() if s.operation == "lazy" and s.median("ns_per_lookup")]

    def best(self):
        """The fastest series of the lazy operation, or None."""
        return min(self.lazy(), key=lambda s: s.median("ns_per_lookup"), default=None)

    def fastest(self):
        """The best series, and all that cannot be told from it."""
        times, best = lambda s: s.values("ns_per_lookup"), self.best()
        return [s for s in self.lazy() if s is best or not told_apart(times(s), times(best))]

    def median(self, key, place=None):
        """Median over the samples of all series (of one place): for what belongs to the workload
        or the machine."""
        return quartiles([v for s in self.measured() if place in (None, s.kernel.place)
                          for v in s.values(key)])[1]

    def places(self):
        return sorted({s.kernel.place for s in self.measured()}, reverse=True)

    def placements(self):
        seen = [sample.placement for s in self.measured() for sample in s.samples]
        return {p: seen.count(p) for p in sorted(set(seen))}


@dataclass
class Result:
    path: str
    context: dict
    kernels: dict  # name -> Kernel, in the order of the file
    not_run: list  # (workload, kernel, reason)
    series: list

    def failures(self, groups=None):
        """(kernel, workload, reason) of all failed checks, of these groups or of the whole file:
        failed rows, and kernels that the driver left out because they were wrong."""
        series = [s for g in groups for s in g.series] if groups else self.series
        names = {s.workload for s in series}
        return [(s.kernel.name, s.workload, s.errors[0] if s.errors else "no samples")
                for s in series if s.failed] + [
                    (kernel, workload, reason) for workload, kernel, reason in self.not_run
                    if reason.startswith(WRONG) and (not groups or workload in names)]

    def groups(self, mode):
        """One Group per (workload, rule) in the order of the file; an error if there is none."""
        found = {}
        for s in self.series:
            if s.mode == mode:
                found.setdefault((s.workload, s.rule), []).append(s)
        if not found:
            modes = ", ".join(sorted({s.mode for s in self.series})) or "none"
            raise ResultError(f"{self.path}: no rows in mode {mode} (modes in the file: {modes})")
        return [Group(w, r, mode, series) for (w, r), series in found.items()]

    def disturbed(self):
        """How many samples were, None where nothing says so. Rows tell more than the context, which
        may be that of one run of several."""
        flags = [x.get("disturbed") for s in self.series for x in s.samples]
        if flags and None not in flags:
            return round(sum(flags))
        total = leading_number(self.context.get("emb_disturbed_samples"))
        return None if total is None else round(total)

    def load(self):
        """The threads that ran or wanted to: the run's own, and the mean of others where these were most. Of
        an older result, ' before the run' alone. (load, when); (None, '') where nothing is known."""
        threads = max(map(int, re.findall(r"\d+", str(self.context.get("emb_threads")))), default=0)
        groups = {}
        for s in self.series:
            groups.setdefault((s.workload, s.rule), []).extend(
                (x.get("load_others"), x.get("threads") or threads) for x in s.samples)
        known = [[pair for pair in own if pair[0] is not None] for own in groups.values()]
        means = [tuple(map(statistics.mean, zip(*own))) for own in known if own]
        if means:
            return max(map(sum, means)), ""
        others = leading_number(self.context.get("emb_load_worst"))
        if others is not None:
            return threads + others, ""
        before = leading_number(self.context.get("emb_load_before"))
        return before, "" if before is None else " before the run"

    def caution(self):
        """One line that says why the figures are not to be quoted, as bench itself says; '' where they may."""
        samples, count = sum(len(s.samples) for s in self.series), self.disturbed()
        load, when = self.load()
        cpus = leading_number(self.context.get("num_cpus"))
        known = load is not None and cpus
        if not (count or 0) > DISTURBED_MOST * samples and not (known and load > cpus + LOAD_TOLERATED):
            return ""
        parts = [f"{count} of {samples} samples disturbed"] if count is not None else []
        parts += [f"load {load:.1f} on {cpus:.0f} CPU{'s'[:cpus > 1]}{when}"] if known else []
        return ", ".join(parts) + ": do not quote"

    def doubts(self):
        """Lines: that the run was cut short, by a signal or by its death, and the caution."""
        cut = self.context.get("emb_cut_short")
        return [f"cut short: {cut}"] * bool(cut) + [self.caution()] * bool(self.caution())

    def cautions(self, mark=""):
        """The doubts as lines above a text, with a blank after them; mark: ** makes them bold in a page."""
        return [*(f"{mark}{line}{mark}" for line in self.doubts()), *[""] * bool(self.doubts())]

    def machine(self):
        """One line that says on what the figures were measured."""
        c = self.context
        parts = [str(c.get("emb_cpu") or c.get("host_name") or "unknown machine")]
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
    """The number that a text begins with, None without one."""
    found = re.match(r"\d+(\.\d+)?", str(text))
    return float(found[0]) if found else None


def spread(q):
    """Half the interquartile range as a share of the median, None where there is no median."""
    return (q[2] - q[0]) / 2 / q[1] if q[1] else None


def baseline_ratio(series, base):
    """How many times faster than the baseline, None without one."""
    own, other = series.median("ns_per_lookup"), base.median("ns_per_lookup") if base else None
    return other / own if own and other else None


def family(workload):
    """The workload's name without its alpha: what a curve over alpha holds fixed."""
    return re.sub(r"/?\balpha:[^/]*", "", workload).strip("/") or workload


def load(path):
    """Reads a result file. ResultError where it is missing, not JSON, or not one of ours."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as e:
        raise ResultError(f"{path}: {e.strerror}; 'make bench' writes a result file") from None
    except ValueError as e:
        raise ResultError(f"{path}: not JSON ({e}); was the run cut short?") from None
    context = data.get("context") if isinstance(data, dict) else None
    rows = data.get("benchmarks") if isinstance(data, dict) else None
    if not isinstance(context, dict) or not isinstance(rows, list) or "emb_schema" not in context:
        raise ResultError(f"{path}: not an embfuse result (no emb_schema in its context)")
    if str(context["emb_schema"]) != SCHEMA:
        raise ResultError(f"{path}: schema {context['emb_schema']}, these reports read {SCHEMA}")
    kernels = mark_places(read_kernels(context), rows)
    return Result(str(path), context, kernels, read_not_run(context), read_series(rows, kernels))


def fields(text, count):
    """Splits 'a | b | c' into exactly count stripped fields."""
    parts = [p.strip() for p in str(text).split("|", count - 1)]
    return parts + [""] * (count - len(parts))


def read_not_run(context):
    """The values of emb_not_run_0, 1, ... in the order of their numbers."""
    keys = [k for k in context if re.fullmatch(r"emb_not_run_\d+", k)]
    return [tuple(fields(context[k], 3)) for k in sorted(keys, key=lambda k: int(k[12:]))]


def read_kernels(context):
    kernels = {}
    for key, text in context.items():
        if key.startswith("emb_kernel_") and key != "emb_kernel_os":
            name = key[len("emb_kernel_"):]
            fam, place, traits, label, idea = fields(text, 5)
            traits = frozenset(t.strip() for t in traits.split(",") if t.strip())
            kernels[name] = Kernel(name, fam, place, traits, label or name, idea, len(kernels))
    return kernels


def words(row):
    """The KEY=VALUE words of a row's label."""
    return dict(p.split("=", 1) for p in str(row.get("label", "")).split() if "=" in p)


def mark_places(kernels, rows):
    """Kernels of a device carry the place in their names and labels where the rows have both."""
    used = {words(r).get("kernel") for r in rows if isinstance(r, dict)}
    if len({k.place for k in kernels.values() if k.name in used}) < 2:
        return kernels
    where = {"device": " (device)"}
    return {name: replace(k, where=where.get(k.place, ""), label=k.label + where.get(k.place, ""))
            for name, k in kernels.items()}


def read_series(rows, kernels):
    """Groups the rows of single repetitions. Kernels that the context forgot are added."""
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
    """One repetition: a sample, or an error that makes the whole series a failed one."""
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
