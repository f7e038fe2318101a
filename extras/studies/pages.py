#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the pages of recorded machines from their results alone: README.md and the pictures of each folder.
With --front it also fills the tables of the front page and its further pages: tables of one leading machine,
and one table of all machines; and on every page the sections of sentences.py.

notes.md in the folder of a machine adds what the results do not say.
"""
import os
import glob
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "reports"))
import compilers
import items
import machines
import sentences
import memory
import noise
import noise_floor
import program
import ratios
import tune
from figures import draw_across
from identity import gpu, of_gpu
from plots import KINDS, draw_all
from points import STUDIES, report
from program import Arguments, ResultError, write_whole
from recorded import (NOISY, RESULTS, STORED, disturbed, in_folder, make_command, older, read_word,
                      same_point_lines, share)
from results import same_looks
from section import update
from style import markdown_table
from table import markdown, overview
from verdict import scipy_stats

NOT_RECORDED = "Not recorded on this machine."
TITLES = {"standard": "Standard workloads", "standard-1-thread": "Standard workloads on one thread",
          "forward": "Lookup of the forward pass",
          "roof": "Every rule against the roof", "winners": "Which kernel wins",
          "types": "Narrow types beside fp32", "traces": "Real traces",
          "small-batches": "Small batches",
          "peers": "Beside PyTorch and FBGEMM", "peers-1-thread": "Beside FBGEMM, everything on one thread",
          "iteration": "Forward, backward and optimizer as one",
          "ladder": "What each technique is worth", "sweep": "Everywhere?", "crossover": "Dense or sparse gradient",
          "tune": "Prefetches", "memory": "Memory", "noise": "Noise", "compilers": "Compilers",
          "isa": "Levels of instructions", "scaling": "Time against lookups, rows and threads"}
INTRO = {"roof": "Workloads that memory alone decides. The roof is not a law: rows of a bucket are visited\n"
                 "in ascending order, which can beat the random-row ceiling.",
         "sweep": "All points: [sweep.md](sweep.md).", "scaling": "All of it: [scaling.md](scaling.md)."}
ACROSS = {"roof": "rules-", "winners": "winners-", "types": "types"}  # figures across rules, points and types
MODES = {"iteration": "iteration"}  # of a result, if not cold
# The rule that all peers have, and the figure that shows a result with peers.
PEERS = {"peers": "time-adagrad", "iteration": "stages-adagrad"}
FRONT = ("says", "standard", "traces", "ladder", "sweep", "scaling", "peers", "peers-1-thread", "iteration",
         "crossover")


class Recorded:
    def __init__(self, folder, kernel, below):
        self.name, self.results, self.folder = os.path.basename(os.path.abspath(folder)), in_folder(folder), folder
        self.gpu = bool(self.results) and of_gpu(next(iter(self.results.values())).context)
        self.kernel, self.below = (machines.kernel_on("device" if self.gpu else "host", k) for k in (kernel, below))

    def path(self, file):
        return os.path.join(self.folder, file)

    def of_today(self):
        """Whether it has times of the host kernels of today."""
        return not self.gpu and "standard" in self.results and not older({"standard": self.results["standard"]})

    def section(self, name, page, front=False, note=()):
        """Fills a section of a page, if need be with the note that its result is missing; after `note`."""
        result = self.results.get("standard" if name == "says" else name)
        if result is None:
            lines = [NOT_RECORDED]
        elif name == "says":
            lines = sentences.with_picture(self, os.path.dirname(page))
        elif name in STUDIES:
            lines = [report(name, result, self.folder, self.kernel, self.below)[1]]
        elif name in ("compilers", "isa"):
            lines = compilers.table(result)
        elif name == "noise":
            lines = noise.page(result)
        elif name in ("tune", "memory"):
            lines = {"tune": tune, "memory": memory}[name].page(self.path(name + STORED))
        elif name in PEERS or name == "peers-1-thread":
            picture = os.path.relpath(self.path(f"{name}.svg"), os.path.dirname(page))
            lines = ratios.page(result, ratios.by_rule(result, MODES.get(name, "cold")), self.kernel,
                                picture if name in PEERS else None)
        else:
            lines = (overview if front else markdown)(result, "cold")
        update(page, name, "\n".join(line.rstrip() for line in [*note, *lines]))

    def plots(self, name, folder):
        """Draws a result; returns the files."""
        return list(draw_all(self.results[name], folder, MODES.get(name, "cold")))

    def pictures(self):
        """{name: the pictures of its section}"""
        shown = {name: [name + ".svg"] for name in STUDIES}
        for name in self.results.keys() & {"standard", "forward"}:
            shown[name] = [os.path.basename(p) for p in self.plots(name, self.folder)]
        for name, figures in ACROSS.items():
            if name in self.results:
                drawn = draw_across(self.results[name], self.folder, "cold", ["svg"], figures)
                shown[name] = [os.path.basename(p) for p in drawn]
        if "noise" in self.results:
            shown["noise"] = [os.path.basename(p) for p in noise.draw(noise_floor.of(self.results["noise"]),
                                                                      self.path("noise")) if p.endswith(".svg")]
        for name in PEERS.keys() & self.results.keys():  # their sections show the picture
            with tempfile.TemporaryDirectory() as folder:
                drawn = self.plots(name, folder)
                chosen = [p for p in drawn if os.path.basename(p).startswith(PEERS[name])]
                shutil.copy((chosen or drawn)[0], self.path(f"{name}.svg"))
        return shown

    def page(self):
        """Writes the page of the folder."""
        if not self.results:
            raise ResultError(f"{self.folder}: holds no result; make record NAME={self.name} measures them")
        page = self.path("README.md")
        write_whole(page + ".part", "\n".join(text(self, self.pictures())) + "\n")
        for name in self.results:
            self.section(name, page + ".part")
        os.replace(page + ".part", page)
        print(page)


def text(recorded, pictures):
    """The page with empty sections."""
    results = recorded.results
    out = [f"# {recorded.name}: {next(iter(results.values())).machine()}", "",
           "Generated by `make readme` from the results in this folder, which hold every sample and, in their\n"
           "contexts, everything that is known of machine and build.", ""]
    out += [f"- {title}: {fact}" for title, fact in facts(results).items()] + [""]
    notes = recorded.path("notes.md")
    if os.path.exists(notes):
        out += [read_word(notes), ""]
    if recorded.gpu and "standard" in results:
        out += [*sentences.of_record(recorded, recorded.folder), ""]
    if older(results):
        out += [f"**{older(results)}**", ""]
    missing = [f"`{n}`" for n in RESULTS if n not in results]
    others = [os.path.basename(p) for p in sorted(glob.glob(recorded.path("*" + STORED)))]
    others = [f"`{n}`" for n in others if n.removesuffix(STORED) not in results]
    out += ["## Files", "", *files(results), "",
            *([f"Also here, of other code and in no table below: {', '.join(others)}.", ""] if others else []),
            *([f"Not recorded: {', '.join(missing)}.", ""] if missing else []),
            "## How far these figures can be off", "", *noise_lines(results), "",
            *same_point_lines(results), ""]
    for name in results:
        out += [f"## {TITLES[name]}", "", *([INTRO[name], ""] if name in INTRO else []),
                *(f"![{TITLES[name]}: {p.removesuffix('.svg')}]({p})" for p in pictures.get(name, [])),
                "", f"<!-- table {name} -->", f"<!-- end {name} -->", ""]
    return out


def all_of(results, key, short=str):
    """The values of a key in all contexts, each one once."""
    found = (r.context.get(key) for r in results.values())
    return "; ".join(dict.fromkeys(short(v) for v in found if v not in (None, "")))


def size(bytes_):
    return f"{bytes_ / 2**20:g} MiB" if bytes_ >= 2**20 else f"{bytes_ / 2**10:g} KiB"


def caches(results):
    found = next((r.context["caches"] for r in results.values() if r.context.get("caches")), [])
    return ", ".join(f"{size(c['size'])} L{c['level']}"
                     + f" {c['type'].lower()}" * (c["type"] != "Unified")
                     + f" of {c['num_sharing']} CPUs" * (c["num_sharing"] > 1) for c in found)


def facts(results):
    """{title: fact} of the machine and the build, without those that no result has."""
    if all(of_gpu(r.context) for r in results.values()):
        names = {"GPU": "gpu", "driver": "gpu_driver", "CUDA": "gpu_cuda_runtime",
                 "compute capability": "gpu_capability", "multiprocessors": "gpu_multiprocessors",
                 "memory": "gpu_memory", "L2 cache": "gpu_l2", "nvcc": "nvcc"}
        shorter = {"driver": lambda v: gpu({"emb_gpu_driver": v})["gpu_driver"],
                   "nvcc": lambda v: v.partition(" -I")[0]}
        every = {k: all_of(results, f"emb_{name}", shorter.get(k, str)) for k, name in names.items()}
        every["host"] = f"{all_of(results, 'emb_cpu')}, {all_of(results, 'num_cpus')} CPUs"
        return {k: v for k, v in every.items() if v}
    family = [part for part in all_of(results, "emb_record_machine").split(" | ") if "family" in part]
    brackets = lambda v: re.sub(r".*\[(\w+)\].*", r"\1", v)
    every = {"CPU": all_of(results, "emb_cpu") + "".join(f" ({f})" for f in family[:1]),
             "CPUs": all_of(results, "num_cpus") or all_of(results, "emb_threads"),
             "caches": caches(results),
             "memory": all_of(results, "emb_ram", lambda v: f"{int(v.split()[0]) / 2**20:.1f} GiB"),
             "virtual machine": all_of(results, "emb_virtualised"),
             "compiler": all_of({n: r for n, r in results.items() if n != "compilers"}, "emb_compiler"),
             "flags": all_of(results, "emb_flags", lambda v: " ".join(re.findall(r"-[Omf]\S+", v))),
             "transparent huge pages": all_of(results, "emb_thp", brackets),
             "Linux": all_of(results, "emb_kernel_os"), "libraries": all_of(results, "emb_libraries")}
    return {k: v for k, v in every.items() if v}


def command(result, step):
    """The command that made a result. If the result lacks it: the step's variables that its context has."""
    names = ("PLACE", "SPEC", "RULE", "REPS", "FILTER") if of_gpu(result.context) else dict(step.variables)
    known = {k: result.context.get(f"emb_var_{k}") for k in names}
    said = result.context.get("emb_record_command")
    return said or make_command(step, {k: v for k, v in known.items() if v})


def origin(result):
    """(commit, date, samples, the share of them that was disturbed), as texts."""
    c, (some, every) = result.context, disturbed(result)
    return (str(c.get("emb_commit", "?"))[:12] + " + changes" * (c.get("emb_dirty") == "yes"),
            str(c.get("emb_date") or c.get("date") or "?")[:16].replace("T", " "), str(every),
            f"{100 * some / every:.0f} %" if every else "-")


def files(results):
    rows = []
    for name, result in results.items():
        step, c, (commit, date, *samples) = RESULTS[name], result.context, origin(result)
        seconds = c.get("emb_record_seconds")
        rows.append((f"`{name}{STORED}`", step.what, "`" + command(result, step).replace("|", "\\|") + "`", commit, date,
                     f"{float(seconds) / 60:.1f}" if seconds else "-", *samples))
    heads = ("file", "what", "made by", "commit", "date", "minutes", "samples", "disturbed")
    return markdown_table(heads, rows, left=range(5))


def noise_lines(results):
    """Which files were cut short or disturbed, and how long their steps waited and how often they ran."""
    cut = [f"- **`{n}`: {r.cut_short()}**" for n, r in results.items() if r.cut_short()]
    yield from cut + [""] * bool(cut)
    noisy = [f"`{n}` {100 * share(r):.0f} %" for n, r in results.items() if share(r) > NOISY]
    if noisy:
        yield (f"Other work ran beside these; more than {100 * NOISY:.0f} % of their samples were disturbed even on the "
               f"last try: {', '.join(noisy)}. Their tables say which rows are not to be quoted.")
    else:
        yield f"No file has more than {100 * NOISY:.0f} % of disturbed samples."
    yield ""
    for name, result in results.items():
        for key in ("emb_record_waited", "emb_record_attempts"):
            if result.context.get(key):
                yield f"- `{name}`: {'waited ' * key.endswith('waited')}{result.context[key]}"


# --- the front page, in one page or several
def lead(path, leading):
    """Points the links of a page's prose to the leading machine, but not those to the history."""
    page = Path(path).read_text(encoding="utf-8")
    page = re.sub(r"reports/results/(?!history/)[\w.-]+/", f"reports/results/{leading.name}/", page)
    page = re.sub(r"(?<=\]\()((?:\.\./)*reports/results)/[\w.-]+(?=\))", rf"\1/{leading.name}", page)
    write_whole(path, page)


def page_of(section, paths):
    """The page that has the comments of a section, or else the first page."""
    has = lambda path: f"<!-- table {section} -->" in Path(path).read_text(encoding="utf-8")
    return next(filter(has, paths), paths[0])


def front(leading_of, recorded, *kernels):
    """Fills the tables of pages, {path: its leading machine}: from the record of that machine, or of another one if it
    lacks the record. Also fills the table of all machines. The page with the sentences is led by a record of the
    kernels of today if there is one."""
    paths = list(leading_of)
    first = page_of("says", paths)
    leading_of[first] = next((r for r in (leading_of[first], *recorded) if r.of_today()), leading_of[first])
    for path, leading in leading_of.items():
        lead(path, leading)
    for name in FRONT:
        page = page_of(name, paths)
        leading = leading_of[page]
        own = next((r for r in (leading, *recorded) if name in r.results), leading)
        note = [f"**Recorded on {own.name}:**", ""] if own.name != leading.name else []
        line = older({name: own.results[name]}) if name in own.results else ""
        note += [f"**{line}**", ""] if line else []
        own.section(name, page, front=True, note=note)
    machines.publish(recorded, page_of(machines.NAME, paths), *kernels)


def main():
    KINDS[:] = ["svg"]
    parser = Arguments(__doc__)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="reports/results/NAME")
    parser.add_argument("--front", metavar="README.md", action="append",
                        help="also update the front page; repeat the option for its further pages")
    parser.add_argument("--leading", metavar="FOLDER", action="append",
                        help="the machine whose tables it shows; once, or once for each page")
    parser.add_argument("--kernel", required=True, metavar="NAME", help="the kernel under study")
    parser.add_argument("--below", required=True, metavar="NAME", help="the kernel to compare it with")
    args = parser.parse_args()
    if args.front:
        scipy_stats()  # without it, kernels that differ would count as alike
    leading = args.leading or args.folders[:1]
    known = {f: Recorded(f, args.kernel, args.below) for f in map(os.path.normpath, (*args.folders, *leading))}
    same_looks([result for r in known.values() for result in r.results.values()])
    machine = lambda folder: known[os.path.normpath(folder)]
    recorded = [machine(f) for f in args.folders]
    for r in recorded:
        r.page()
    if args.front:
        if len(leading) not in (1, len(args.front)):
            parser.error(f"{len(args.front)} pages and {len(leading)} leading machines: one, or one for each page")
        machines_of = map(machine, leading * len(args.front))
        front(dict(zip(args.front, machines_of)), recorded, args.kernel, args.below)
        for page in items.pages("."):
            sentences.publish(page, recorded)


if __name__ == "__main__":
    program.run(main)
