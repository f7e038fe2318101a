# SPDX-License-Identifier: MIT
"""A recorded machine: a folder of results, each measured by a step of `make record`. This module lists the
steps, identifies the machine and the measured code of a result, and compares results of one machine where
they measured the same."""
import glob
import hashlib
import os
import re
import subprocess
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

from identity import of_gpu
from program import ResultError, cpu_model, fact
from results import load, quartiles
from style import markdown_table, number

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MEASURED = ("Makefile", "rules", "kernels", "harness", "datasets")  # what every figure depends on
NOISY = 0.1  # share of disturbed samples: a step with more is measured again
STORED = ".json.gz"  # how the name of a recorded result ends


@dataclass(frozen=True, eq=False)
class Step:
    name: str
    what: str         # one line for the page
    target: str       # of make
    variables: tuple  # of make: (("REPS", "7"), ...); {kernel}, {below} and {traces} are filled in
    results: dict     # name in the folder: path in OUT, where make writes it
    minutes: float    # on two cores
    code: tuple = ()  # measured code beside MEASURED


# The most important steps come first. The number of samples is odd, so that the median is one of them.
STEPS = (
    Step("standard", "all kernels on the standard workloads, cold and warm", "bench",
         (("REPS", "7"),), {"standard": "bench.json"}, 8),
    Step("standard-1-thread", "the fastest kernels on the standard workloads, on one thread", "bench",
         (("THREADS", "1"), ("MODES", "cold"), ("REPS", "7"), ("FILTER", "cpu_(fused|hash|sort)/")),
         {"standard-1-thread": "bench.json"}, 6),
    Step("forward", "the lookup of the forward pass on the standard workloads, cold and warm", "bench",
         (("RULE", "forward"), ("REPS", "7")), {"forward": "bench.json"}, 2),
    Step("roof", "every rule against the roof: row-wise Adagrad on all workloads, the others on the first",
         "bench", (("SPEC", "datasets/roof.spec"), ("RULE", "all"), ("MODES", "cold"), ("REPS", "5"),
                   ("FILTER", "^(pooled/[^/]*/{kernel}|.*/rowwise_adagrad/({kernel}|{below}))/")),
         {"roof": "bench.json"}, 9),
    Step("winners", "which kernel wins, over skew, width, rule and type", "bench",
         (("SPEC", "datasets/crossover.spec"), ("RULE", "rowwise_adagrad adam"), ("MODES", "cold"), ("REPS", "3"),
          ("FILTER", "cpu_(fused|hash|sort)/")), {"winners": "bench.json"}, 8),
    Step("types", "narrow types beside fp32", "bench",
         (("SPEC", "datasets/types.spec"), ("MODES", "cold"), ("REPS", "5"),
          ("FILTER", "cpu_(fused|hash|sort)/")), {"types": "bench.json"}, 5),
    Step("traces", "all kernels on recorded traces", "bench",
         (("TRACE", "{traces}"), ("MODES", "cold"), ("REPS", "9")), {"traces": "bench.json"}, 2),
    Step("small-batches", "batches of 1,000 to 30,000 lookups", "bench",
         (("SPEC", "datasets/small-batches.spec"), ("MODES", "cold"), ("REPS", "15"),
          ("FILTER", "cpu_(fused|hash|sort)/")), {"small-batches": "bench.json"}, 2),
    Step("peers", "PyTorch and FBGEMM beside the kernels; once more on one thread", "peers",
         (("REPS", "7"),), {"peers": "peers/bench.json", "peers-1-thread": "peers-1-thread/bench.json"}, 12,
         ("cli", "extras/peers")),
    Step("iteration", "forward, backward and optimizer as one, beside PyTorch and FBGEMM", "peers",
         (("RULE", "adagrad rowwise_adagrad"), ("MODES", "iteration"), ("MODE", "iteration"), ("REPS", "7"),
          ("FILTER", "^(zipf/alpha:(0|1.05|1.2)|cached|single-hot|dlrm-2022)/[^/]*/"
                     "({kernel}|{kernel}_planned|cpu_dense|torch_.*|fbgemm)/")),
         {"iteration": "peers/bench.json"}, 8, ("cli", "extras/peers")),
    Step("ladder", "what each technique is worth", "ladder", (("REPS", "9"),),
         {"ladder": "ladder/bench.json"}, 4, ("extras/studies/ladder",)),
    Step("tune", "the fastest prefetches beside the defaults", "tune", (), {"tune": "tune/tune.json"}, 0.2,
         ("extras/studies/tune", "extras/studies/tune.py")),
    Step("memory", "latency over spans, and what prefetches are worth", "memory", (),
         {"memory": "memory/memory.json"}, 0.6, ("extras/studies/memory", "extras/studies/memory.py")),
    Step("sweep", "one kernel beside the others on some 110 points", "sweep", (("REPS", "5"),),
         {"sweep": "sweep/sweep.json"}, 14, ("extras/studies/sweep.py",)),
    Step("crossover", "when does a dense gradient beat a sparse one?", "crossover", (("REPS", "3"),),
         {"crossover": "crossover/crossover.json"}, 5, ("extras/studies/crossover.py",)),
    Step("noise", "the effect that identical code shows, and what slowdowns are found", "noise",
         (("REPS", "7"), ("COMPARISONS", "40"), ("FILTER", "^cached/rowwise_adagrad/cpu_(fused|hash|sort)/")),
         {"noise": "noise/noise.json"}, 25, ("extras/studies/noise.py", "extras/studies/turns.py")),
    Step("compilers", "the CPU kernels as each compiler builds them", "bench-compilers", (("REPS", "7"),),
         {"compilers": "compilers/bench.json"}, 6, ("extras/studies/compilers.py", "extras/studies/turns.py")),
    Step("isa", "one portable build at each level of instructions", "bench-isa",
         (("REPS", "7"), ("FILTER", "/({kernel}|{below})/")), {"isa": "isa/bench.json"}, 8,
         ("extras/studies/compilers.py", "extras/studies/turns.py")),
    Step("scaling", "time against lookups, rows and threads", "scaling", (("REPS", "3"), ("MOST", "1e8")),
         {"scaling": "scaling/scaling.json"}, 9, ("extras/studies/scaling.py",)))
RESULTS = {name: step for step in STEPS for name in step.results}
USUAL = ("standard", "standard-1-thread", "forward", "small-batches")  # 25 minutes on two cores


# --- the machine and the code of a result
def read_word(path):
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return "?"


def of_cpu(key):
    return fact("/proc/cpuinfo", key) or "?"


def caches():
    """'48K L1 data', ... of the first CPU."""
    folders = sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"))
    parts = ((read_word(f"{f}/size"), read_word(f"{f}/level"), read_word(f"{f}/type")) for f in folders)
    return ", ".join(f"{size} L{level}" + f" {kind.lower()}" * (kind != "Unified")
                     for size, level, kind in parts) or "?"


def cpu_name():
    return of_cpu("model name")


def machine(compiler):
    """One text with everything that must be the same for all results of a folder."""
    ids = f"{cpu_model()}, stepping {of_cpu('stepping')}"
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    except OSError as e:
        raise ResultError(f"{compiler}: {e.strerror}") from None
    pages = re.search(r"\[(\w+)\]", read_word("/sys/kernel/mm/transparent_hugepage/enabled"))
    return " | ".join((cpu_name(), ids, f"{len(os.sched_getaffinity(0))} CPUs", caches(),
                       version.stdout.partition("\n")[0] or "?",
                       f"huge pages {pages[1] if pages else '?'}"))


def files_of(paths):
    for path in (Path(ROOT, p) for p in paths):
        inside = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix not in (".md", ".pyc"))
        yield from inside or [path]


def without_comments(name, text):
    """The text of a file without comments and blank lines. In C and C++ every comment goes, and the way that a
    statement is laid out; elsewhere a line that begins with #. So what follows other text on such a line, and
    docstrings, stay."""
    if name.endswith((".c", ".h", ".cu", ".cuh", ".cpp")):
        # Literals come first, so that no comment begins in one.
        text = re.sub(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/""",
                      lambda found: found[1] or " ", text, flags=re.S)
        return " ".join(text.split())
    text = re.sub(r"(?m)^[ \t]*#.*$", "", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def digest(paths):
    """A hash of files: names, and text without comments."""
    whole = hashlib.sha256()
    for path in paths:
        name, text = os.path.relpath(path, ROOT), path.read_text(encoding="utf-8", errors="replace")
        whole.update(f"{name}\0{without_comments(name, text)}\0".encode())
    return whole.hexdigest()[:16]


def code(step):
    """A hash of everything that a step measures. A commit would change with every page. Older records have a hash with
    comments, which no code of today has."""
    return digest(files_of((*MEASURED, *step.code)))


def kernels():
    """A hash of the host kernels and the update rules alone, which what is around them does not change."""
    return digest(p for p in files_of(("rules", "kernels")) if p.suffix in (".c", ".h") and p.parent.name != "device")


def older(results):
    """A line about those of {name: result} that were recorded with other host kernels than today's; '' if none was.
    Without a hash of the kernels, the hash of everything counts. A GPU has a line of its own: see sentences.ran()."""
    old = {}
    for name, result in results.items():
        c = result.context
        today = c.get("emb_record_kernels") == kernels() or c.get("emb_record_code") == code(RESULTS[name])
        if not today and not of_gpu(c):
            old[name] = str(c.get("emb_date", "?"))[:10]
    if not old:
        return ""
    names = f"`{'`, `'.join(old)}`: " * (len(old) < len(results))
    dates = " to ".join(dict.fromkeys((min(old.values()), max(old.values()))))
    return f"{names}recorded with kernels of {dates}; newer ones exist"


def make_command(step, variables):
    """The command as a user types it."""
    words = (f"{k}={v}" if re.fullmatch(r"[\w./:,+-]+", v) else f"{k}='{v}'" for k, v in variables.items())
    return " ".join(["make", step.target, *words])


def disturbed(result):
    """(samples that were disturbed, all samples)"""
    return sum(s.disturbed for s in result.series), sum(len(s.samples) for s in result.series)


def share(result):
    some, every = disturbed(result)
    return some / every if every else 0.0


def stored(folder, name):
    """The path of a recorded result, whether it is there or not."""
    return os.path.join(folder, name + STORED)


def in_folder(folder):
    """{name: result} of the files in a folder, in the order of the steps."""
    paths = {name: stored(folder, name) for name in RESULTS}
    return {name: load(path) for name, path in paths.items() if os.path.exists(path)}


# --- the same point in every file
Point = namedtuple("Point", "workload rule kernel threads medians")  # medians: {file: ns per lookup}


def ratio(point):
    return max(point.medians.values()) / min(point.medians.values())


def what_is_equal(series, result):
    """What two series must share beside ids. The first one of several compilers built all other files."""
    first = str(result.context.get("emb_var_COMPILERS", "")).partition(" ")[0]
    facts = (series.median(key) for key in ("threads", "dim", "rows", "tables", "bags", "lookups"))
    return (series.rule, series.kernel.name.removesuffix(f"@{first}"), *facts)


def same_points(results):
    """Points with the same batches, rule, kernel and threads in several files, cold; largest ratio first."""
    points, workloads = {}, {}
    for name, result in results.items():
        for s in result.series:
            if s.failed or s.mode != "cold" or not s.ns:
                continue
            first = next((workloads[f] for f in s.fingerprints if f in workloads), (name, s.workload))
            workloads |= {f: first for f in s.fingerprints}
            equal = what_is_equal(s, result)
            point = points.setdefault((first, equal),
                                      Point(first[1], equal[0], equal[1], int(equal[2] or 0), {}))
            point.medians[name] = s.ns
    return sorted((p for p in points.values() if len(p.medians) > 1), key=ratio, reverse=True)


def same_point_lines(results):
    """Markdown: how far the figures of this machine can be off, and the table that shows it."""
    points = same_points(results)
    if not points:
        return ["No workload was measured in more than one file."]
    ratios = quartiles([ratio(p) for p in points])
    names = [n for n in results if any(n in p.medians for p in points)]
    rows = [(p.workload, p.rule, p.kernel, str(p.threads), *(number(p.medians.get(n)) for n in names),
             f"{ratio(p):.2f}") for p in points]
    heads = ("workload", "rule", "kernel", "threads", *names, "max/min")
    return [f"{len(points)} kernels were timed on the same batches, with the same rule and threads, in "
            f"several files. The largest of their medians over the smallest is typically {ratios[1]:.2f}x, more "
            f"than {ratios[2]:.2f}x for a quarter of them, and {ratio(points[0]):.2f}x at most. **Figures of "
            "different files can be off by that much**; the kernels of one file took turns, and compare "
            "more closely.", "", "<details><summary>The same point in every file</summary>", "",
            *markdown_table(heads, rows, left=(0, 1, 2)),
            "", "ns per lookup, median, cold caches.", "</details>"]
