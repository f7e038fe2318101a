#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the pages of recorded machines from their results alone: README.md and the pictures of each folder.
With --front it also fills the tables of the front page and its further pages: tables of one leading machine,
and one table of all machines.

notes.md in the folder of a machine adds what the results do not say.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
REPORTS, PEERS = (os.path.join(HERE, "..", room) for room in ("reports", "peers"))
sys.path.insert(0, REPORTS)
import machines
from recorded import (NOISY, RESULTS, disturbed, in_folder, make_command, read_word, same_point_lines,
                      share)
from results import Arguments, ResultError
from section import update

NOT_RECORDED = "Not recorded on this machine."
TITLES = {"standard": "Standard workloads", "roof": "Every rule against the roof", "traces": "Real traces",
          "peers": "Beside PyTorch and FBGEMM", "peers-1-thread": "Beside FBGEMM, everything on one thread",
          "ladder": "What each technique is worth", "sweep": "Everywhere?", "compilers": "Compilers",
          "scaling": "Time against lookups, rows and threads"}
INTRO = {"roof": "Workloads that memory alone decides. The roof is not a law: rows of a bucket are visited\n"
                 "in ascending order, which can beat the random-row ceiling.",
         "sweep": "All points: [sweep.md](sweep.md).", "scaling": "All of it: [scaling.md](scaling.md)."}
FRONT = ("standard", "traces", "ladder", "sweep", "scaling", "peers", "peers-1-thread")


def run(*command):
    """The output of a report; if it fails, an error with its last line."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ResultError([f"{command[0]} failed", *done.stderr.strip().splitlines()][-1])
    return done.stdout


def script(name):
    """The path of a report, or of a study that draws its own result."""
    return next(p for p in (os.path.join(room, name + ".py") for room in (REPORTS, HERE)) if os.path.exists(p))


def beside(page, path):
    """A path as a link in the page."""
    return os.path.relpath(path, os.path.dirname(os.path.abspath(page)))


@dataclass
class Recorded:
    folder: str
    kernel: str
    below: str

    @property
    def name(self):
        return os.path.basename(os.path.abspath(self.folder))

    def path(self, file):
        return os.path.join(self.folder, file)

    # --- sections of a page, each written by its report
    def table(self, name, page, front):
        run(script("table"), self.path(name + ".json"), *(["--overview"] if front else []),
            "--update", page, "--section", name)

    def watched(self, name, page, *more):
        run(script(name), self.path(name + ".json"), self.folder, f"--kernel={self.kernel}", *more,
            "--update", page, "--section", name)

    def compilers(self, page):
        update(page, "compilers", run(script("compilers"), "--table", self.path("compilers.json")))

    def peers(self, name, page, front):
        shown = beside(page, self.path("peers.png")) if front else "peers.png"
        picture = ["--picture", shown] if name == "peers" else []
        run(os.path.join(PEERS, "ratios.py"), self.path(name + ".json"), f"--base={self.kernel}", *picture,
            "--update", page, "--section", name)

    def section(self, name, page, front=False):
        """Fills a section, if need be with the note that its result is missing."""
        if not os.path.exists(self.path(name + ".json")):
            update(page, name, NOT_RECORDED)
        elif name in ("standard", "traces", "roof"):
            self.table(name, page, front)
        elif name.startswith("peers"):
            self.peers(name, page, front)
        elif name == "compilers":
            self.compilers(page)
        else:
            self.watched(name, page, *([f"--below={self.below}"] if name == "ladder" else []))

    # --- pictures
    def plots(self, name, folder):
        """Draws a result; returns the PNGs. The first one of each rule shows the times."""
        return [p for p in run(script("plots"), self.path(name + ".json"), folder).splitlines()
                if p.endswith(".png")]

    def peers_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            drawn = self.plots("peers", folder)
            adagrad = [p for p in drawn if "-adagrad-" in p]  # the rule that all peers have
            shutil.copy((adagrad or drawn)[0], self.path("peers.png"))

    # --- the page of the folder
    def page(self):
        results = in_folder(self.folder)
        if not results:
            raise ResultError(f"{self.folder}: holds no result; make record NAME={self.name} measures them")
        drawn = self.plots("standard", self.folder) if "standard" in results else []
        pictures = {"standard": [os.path.basename(p) for p in drawn]}
        for name in ("ladder", "sweep", "scaling"):
            pictures[name] = [name + ".png"] if name in results else []
        if "peers" in results:
            self.peers_picture()
        page = self.path("README.md")
        with open(page + ".part", "w", encoding="utf-8") as file:
            file.write("\n".join(text(self, results, pictures)) + "\n")
        for name in results:
            self.section(name, page + ".part")
        os.replace(page + ".part", page)
        print(page)


def text(recorded, results, pictures):
    """The page with empty sections."""
    out = [f"# {recorded.name}: {next(iter(results.values())).machine()}", "",
           "Generated by `make readme` from the results in this folder, which hold every sample and, in their\n"
           "contexts, everything that is known of machine and build.", ""]
    out += [f"- {title}: {fact}" for title, fact in facts(results).items()] + [""]
    notes = recorded.path("notes.md")
    if os.path.exists(notes):
        out += [read_word(notes), ""]
    missing = [f"`{n}`" for n in RESULTS if n not in results]
    out += ["## Files", "", *files(results), "",
            *([f"Not recorded: {', '.join(missing)}.", ""] if missing else []),
            "## How far these figures can be off", "", *noise_lines(results), "",
            *same_point_lines(results), ""]
    for name in results:
        out += [f"## {TITLES[name]}", "", *([INTRO[name], ""] if name in INTRO else []),
                *(f"![{TITLES[name]}: {p.removesuffix('.png')}]({p})" for p in pictures.get(name, [])),
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
    known = {k: result.context.get(f"emb_var_{k}") for k, _ in step.variables}
    said = result.context.get("emb_record_command")
    return said or make_command(step, {k: v for k, v in known.items() if v})


def files(results):
    bar = lambda row: "| " + " | ".join(row) + " |"
    heads = ("file", "what", "made by", "commit", "date", "minutes", "samples", "disturbed", "load of others")
    yield bar(heads)
    yield bar(["---"] * 5 + ["---:"] * 4)
    for name, result in results.items():
        step, c, (some, every) = RESULTS[name], result.context, disturbed(result)
        seconds = c.get("emb_record_seconds")
        yield bar((f"`{name}.json`", step.what, "`" + command(result, step).replace("|", "\\|") + "`",
                   str(c.get("emb_commit", "?"))[:12] + " + changes" * (c.get("emb_dirty") == "yes"),
                   str(c.get("emb_date", "?"))[:16].replace("T", " "),
                   f"{float(seconds) / 60:.1f}" if seconds else "-", str(every),
                   f"{100 * some / every:.0f} %" if every else "-",
                   str(c.get("emb_load_worst", "-"))))


def noise_lines(results):
    """Which files were disturbed, and how long their steps waited and how often they ran."""
    noisy = [f"`{n}` {100 * share(r):.0f} %" for n, r in results.items() if share(r) > NOISY]
    if noisy:
        yield (f"Other work ran beside these; more than {100 * NOISY:.0f} % of their samples had an "
               f"involuntary context switch even on the last try: {', '.join(noisy)}. **Do not quote their "
               "figures without the ratios below.**")
    else:
        yield f"No file has more than {100 * NOISY:.0f} % of disturbed samples."
    yield ""
    for name, result in results.items():
        for key in ("emb_record_waited", "emb_record_attempts"):
            if result.context.get(key):
                yield f"- `{name}`: {'waited ' * key.endswith('waited')}{result.context[key]}"


# --- the front page, in one page or several
def lead(path, leading):
    """Points the links of a page's prose to the leading machine."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    page = re.sub(r"reports/results/[\w.-]+/", f"reports/results/{leading.name}/", page)
    page = re.sub(r"(?<=\]\()((?:\.\./)*reports/results)/[\w.-]+(?=\))", rf"\1/{leading.name}", page)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(page)
    os.replace(path + ".new", path)


def page_of(section, paths):
    """The page that has the comments of a section, or else the first page."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            if f"<!-- table {section} -->" in file.read():
                return path
    return paths[0]


def front(paths, leading, folders):
    """Fills the tables of the leading machine, and the table of all machines."""
    for path in paths:
        lead(path, leading)
    for name in FRONT:
        leading.section(name, page_of(name, paths), front=True)
    machines.publish(folders, page_of(machines.NAME, paths), leading.kernel, leading.below)


def main():
    parser = Arguments(prog="pages.py", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="reports/results/NAME")
    parser.add_argument("--front", metavar="README.md", action="append",
                        help="also update the front page; repeat the option for its further pages")
    parser.add_argument("--leading", metavar="FOLDER", help="the machine whose tables it shows")
    parser.add_argument("--kernel", required=True, metavar="NAME", help="the kernel under study")
    parser.add_argument("--below", required=True, metavar="NAME", help="the kernel to compare it with")
    args = parser.parse_args()
    machine = lambda folder: Recorded(os.path.normpath(folder), args.kernel, args.below)
    recorded = [machine(f) for f in args.folders]
    for r in recorded:
        r.page()
    if args.front:
        front(args.front, machine(args.leading or args.folders[0]), [r.folder for r in recorded])


if __name__ == "__main__":
    try:
        main()
    except (ResultError, OSError) as e:
        sys.exit(f"pages.py: {e}")
