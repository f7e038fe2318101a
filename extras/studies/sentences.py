# SPDX-License-Identifier: MIT
"""What records say in words, for pages: how fast, how lean and how near to the machine a kernel is, what a GPU has run,
and published times of other systems beside measured ones. No figure of a page is typed."""
import glob
import json
import os
import re
import statistics
from pathlib import Path

import machines
import results
from identity import gpu_text
from program import ResultError, fact
from recorded import ROOT, STORED, older
from section import update
from style import markdown_table, number

VERIFIED = "reports/results/gpu-verified.txt"
TESTED = "gpu-verify.txt"  # in the folder of a GPU
PUBLISHED = "reports/results/published.json"
SECTION = re.compile(r"<!-- table (says-([\w.-]+)|ran|published) -->")
DENSE = "cpu_dense"


# --- a record
def ends(values, text=number):
    """'6.91 (`cached`) to 43.2 (`zipf/alpha:0`)' of {name: value}"""
    low, high = min(values, key=values.get), max(values, key=values.get)
    one = lambda name: f"{text(values[name])} (`{name}`)"
    return one(low) if values[low] == values[high] else f"{one(low)} to {one(high)}"


def of_record(recorded, at):
    """Lines about a machine: what a GPU has run, and the standard workloads, cold. at: the folder of the page, relative
    to the root. The front page has the time alone, and of a CPU the distance from the machine."""
    result, kernel, below = recorded.results["standard"], recorded.kernel, recorded.below
    dense = machines.kernel_on("device" if recorded.gpu else "host", DENSE)
    groups = [g for g in result.groups("cold") if g.of(kernel)]
    if not groups:
        return [f"`standard` has no times of `{kernel}`."]
    own = {g.workload: g.of(kernel) for g in groups}
    first = sum(g.of(kernel) in g.fastest() for g in groups)
    percent = lambda share: f"{100 * share:.0f} %"
    time = (f"* **Time.** `{kernel}` is the fastest kernel that builds its index in the step, or cannot be told from "
            f"it, on {first} of {len(groups)} workloads: {ends({w: s.ns for w, s in own.items()})} ns per lookup "
            f"({', '.join(dict.fromkeys(g.rule for g in groups))}, cold caches; {result.machine()}).")
    for other in (below, dense):
        ratios = {g.workload: g.of(other).ns / g.of(kernel).ns for g in groups if g.of(other)}
        time += f" `{other}` takes {ends(ratios)} times as long." if ratios else ""
    g = groups[0]
    mib = lambda name, key: f"{number(g.of(name).median(key))} MiB"
    rest = "".join(f", `{k}` {mib(k, 'scratch_mib')}" for k in (below, dense) if g.of(k))
    memory = (f"* **Memory.** On `{g.workload}`, where weights and state take {mib(kernel, 'persistent_mib')}, "
              f"`{kernel}` needs {mib(kernel, 'scratch_mib')} of scratch{rest}.")
    lines, shares = [time, memory][:2 if at else 1], {w: v for w, s in own.items() if (v := machines.share_of(s))}
    reached = {w: v for w, v in shares.items() if v <= 1}
    if reached and (at or not recorded.gpu):
        roof = f"[roof]({os.path.relpath('docs/method.md', at)}#traffic-model-and-roof) of the step"
        lines.append(f"* **Distance from the machine.** `{kernel}` reaches {ends(reached, percent)} of the "
                     f"{machines.CEILING if recorded.gpu else roof}."
                     + "".join(f" On `{w}` the ceiling is too low to say." for w in shares if w not in reached))
    planned = {g.workload: 1 - s.ns / g.of(kernel).ns for g in groups if (s := g.of(f"{kernel}_planned"))}
    if recorded.gpu and planned and at:
        lines.append(f"* **Index.** It takes {ends(planned, percent)} of the step, by `{kernel}_planned`.")
    doubt = "; ".join(filter(None, (older({"standard": result}), result.doubt(groups))))
    return [*([f"**{doubt}**", ""] if doubt else []), *(ran([recorded], at) if recorded.gpu else []), *lines]


def with_picture(recorded, at):
    """The picture of the times, and the lines."""
    rule = recorded.results["standard"].groups("cold")[0].rule
    picture = f"{os.path.relpath('reports/results', at)}/{recorded.name}/time-{rule}-cold.svg"
    return [f'<img src="{picture}" width="640" alt="Time per lookup on {recorded.name}">', "",
            *of_record(recorded, at)]


# --- GPUs
def today():
    """The device kernels of this checkout."""
    return sorted(Path(p).stem for p in glob.glob(os.path.join(ROOT, "kernels/*/cuda_*.cu")))


def verified():
    """{device: its kernels} whose code of today passed its tests there."""
    found = {}
    for line in Path(ROOT, VERIFIED).read_text(encoding="utf-8").splitlines():
        kernel, *rest = [part.strip() for part in line.split("|")]
        if rest and not line.startswith("#"):
            found.setdefault(rest[0], set()).add(kernel)
    return found


def ran(recorded, at):
    """A line for each GPU: what ran there, when, of which commit, and which kernels have changed since. at: as for
    of_record()."""
    lines, passed, names = [], verified(), today()
    for r in (r for r in recorded if r.gpu):
        context, path = next(iter(r.results.values())).context, r.path(TESTED)
        folder = os.path.relpath(f"reports/results/{r.name}", at)
        line = (f"* **{context['emb_gpu']}**{gpu_text(context).removeprefix(context['emb_gpu'])}; "
                f"{str(context.get('emb_date', '?'))[:10]}, commit {str(context.get('emb_commit', '?'))[:7]}: "
                f"[times]({folder}/README.md)")
        if os.path.exists(path) and at:
            line += f"; tests: {fact(path, 'result')} ([record]({folder}/{TESTED}))"
        same = [f"`{k}`" for k in names if k in passed.get(context["emb_gpu"], ())]
        line += f". Of the {len(names)} device kernels of today, {len(same)} passed there as they are"
        line += f" ({', '.join(same)})." if same else "."
        if len(same) < len(names):
            line += " **The others have changed since: their times are of older code.**"
        lines.append(line)
    return lines or ["No GPU has run the kernels."]


# --- published times
def published(recorded):
    """A table of published times, each with device and source, beside measured ones of the same workload."""
    known = json.loads(Path(ROOT, PUBLISHED).read_text(encoding="utf-8"))
    rows = [(x["workload"], x["rule"], x["system"], x["device"], f"{x['ms']:.3f}", f"**published**: {x['source']}")
            for x in known]
    wanted = {(x["workload"], x["rule"], x["mode"]) for x in known}
    for r in (r for r in recorded if r.gpu):
        for file in sorted(glob.glob(r.path("*" + STORED))):
            result = results.load(file)
            for g in (g for mode in {s.mode for s in result.series} for g in result.groups(mode)):
                s = g.of(r.kernel)
                if (g.workload, g.rule, g.mode) in wanted and s:
                    source = f"measured: `{os.path.basename(file)}`, commit {result.context['emb_commit'][:7]}"
                    rows.append((g.workload, g.rule, f"`{s.kernel.name}`", result.context["emb_gpu"],
                                 f"{statistics.median(s.times):.3f}", source))
    return markdown_table(("workload", "rule", "system", "device", "ms", "source"), sorted(rows), left=(0, 1, 2, 3, 5))


# --- pages
def publish(page, recorded):
    """Fills the sections of a page."""
    at = os.path.dirname(page)
    for name, machine in SECTION.findall(Path(page).read_text(encoding="utf-8")):
        if name == "ran":
            lines = ran(recorded, at)
        elif name == "published":
            lines = published(recorded)
        else:
            own = next((r for r in recorded if r.name == machine), None)
            if own is None:
                raise ResultError(f"{page}: section {name}: reports/results has no record {machine}")
            lines = with_picture(own, at)
        update(page, name, "\n".join(lines))
