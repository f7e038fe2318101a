# SPDX-License-Identifier: MIT
"""Every figure and table of the pages, as items: what it is, where it shows, the command of a new run, and what that
run costs as far as records say. A step of `make record` is an item, and so is a study with a page of its own."""
import fnmatch
import glob
import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from recorded import ROOT, STEPS, STORED, in_folder
from results import leading_number
from style import number

STUDY = "extras/studies/study"
RECORD = "make record NAME={name} STEPS="
PAGES = ("README.md", "ARTIFACT.md", "docs/*.md", "extras/*/study/*.md", "reports/results/*/README.md",
         "reports/results/history/*.md")
FIGURES = re.compile(r"(?m)^\|.*\| *\*{0,2}-?\d+\.\d")  # a line of a table with a figure, not in its first cell
# A measured figure in a sentence, which a generated section must have instead.
TYPED = re.compile(r"\d[\d.]* (?:ns|us|ms|[MGT]B/s)\b|\d\.\d+ (?:to \d[\d.]* )?(?:times as|of (?:fp32|the time))|"
                   r"\d+ % of (?:the (?:time|step|roof)|DRAM)")
PROSE = ("README.md", "ARTIFACT.md", "docs/*.md", "extras/*/study/gpu.md")  # pages without one
PICTURE = re.compile(r'!\[[^]]*\]\(([^)\s]+)\)|<img\s[^>]*?src="([^"]+)"')


@dataclass(frozen=True)
class Item:
    name: str
    what: str
    run: str              # the command of a new run; {name}: of the machine
    files: tuple          # patterns of its pages, pictures and their data
    sections: tuple = ()  # patterns of its sections of other pages
    records: tuple = ()   # results of machines that it is made of; none: its page is a copy of one run
    remade: bool = True   # whether `make reproduce` makes it again without a run
    typed: tuple = ()     # pages with a table of figures that an author copied from a run of this

    def fills(self, section):
        return any(fnmatch.fnmatch(section, pattern) for pattern in self.sections)

    def owns(self, file):
        return any(fnmatch.fnmatch(file, pattern) for pattern in self.files)


def drawn(name):
    """Patterns of the pictures of a result, with their data."""
    kinds = {"standard": ("*-rowwise_adagrad-cold*",), "forward": ("*-forward-cold*",), "roof": ("paper-rules-*",),
             "winners": ("paper-winners-*",), "types": ("paper-types*",)}
    own = kinds.get(name, (f"{name}.*", f"{name}-lines.tsv"))
    return tuple(f"reports/results/*/{pattern}" for pattern in (*own, name + STORED))


def of_step(step):
    return Item(step.name, step.what, RECORD + step.name, sum(map(drawn, step.results), ()), tuple(step.results),
                tuple(step.results))


def of_extras():
    """The studies of extras: each lists its own, with the files beside the list. A page is a copy of one run."""
    for path in sorted(glob.glob(os.path.join(ROOT, "extras/*/study/items.json"))):
        folder = os.path.relpath(os.path.dirname(path), ROOT)
        for x in json.loads(Path(path).read_text(encoding="utf-8")):
            yield Item(x["target"], x["what"], f"make {x['target']}", tuple(f"{folder}/{f}" for f in x["files"]),
                       remade=False, typed=tuple(x.get("typed", ())))


ITEMS = (
    *map(of_step, STEPS),
    Item("pages", "machines, builds, files, and how far figures can be off", "make readme",
         ("reports/results/*/README.md",), ("says*",), ("standard",)),
    Item("gpus", "what a GPU has run, and published times", "make gpu-record", (), ("ran", "published")),
    Item("machines", "every recorded machine side by side", RECORD + "standard",
         ("reports/results/machines*",), ("machines",), ("standard",)),
    Item("claims", "folk claims, with verdicts from the records", "make claims",
         (f"{STUDY}/claims.md", f"{STUDY}/claims/*.png"), (), tuple(n for s in STEPS for n in s.results)),
    Item("gallery", "every kind of figure for a paper", "make gallery",
         (f"{STUDY}/figures.md", f"{STUDY}/figures/*.png"), (), tuple(n for s in STEPS for n in s.results)),
    Item("artifact", "commands and costs of items", "make readme", (), ("items",)),
    Item("kernels", "the list of kernels, printed by the program", "make readme", (), ("kernels",), remade=False),
    Item("history", "speed over revisions of this project", "make history REVS='HEAD~20 HEAD~10 HEAD'",
         ("reports/results/history/*",)),
    *of_extras())
BY_NAME = {item.name: item for item in ITEMS}


# --- where items show
def pages(root):
    """The pages, relative to the root."""
    found = (glob.glob(os.path.join(root, pattern)) for pattern in PAGES)
    return [os.path.relpath(p, root) for paths in found for p in sorted(paths)]


def sections(text):
    """{name: text} of the generated sections of a page."""
    return dict(re.findall(r"(?s)<!-- table (\S+) -->\n(.*?)<!-- end \1 -->", text))


def without_sections(text):
    return re.sub(r"(?s)<!-- table (\S+) -->\n.*?<!-- end \1 -->", "", text)


def pictures(page, text):
    """The pictures of a page, relative to the root, without pictures of other sites."""
    found = (a or b for a, b in PICTURE.findall(text))
    return [os.path.normpath(os.path.join(os.path.dirname(page), p)) for p in found if "://" not in p]


def shown(root):
    """({item: pages that show it}, lines about what belongs to no item)"""
    where, orphans = {item.name: [] for item in ITEMS}, []
    for page in pages(root):
        text = Path(root, page).read_text(encoding="utf-8", errors="surrogateescape")
        things = {f"section {n}": [i.name for i in ITEMS if i.fills(n)] for n in sections(text)}
        things |= {p: [i.name for i in ITEMS if i.owns(p)] for p in pictures(page, text)}
        own = [i.name for i in ITEMS if i.owns(page) or page in i.typed]
        if own or FIGURES.search(without_sections(text)):
            things["a table with figures"] = own
        if any(fnmatch.fnmatch(page, pattern) for pattern in PROSE):
            prose = re.sub(r"(?m)^(?: {4}|\|).*$", "", without_sections(text))
            orphans += [f"{page}: '{found}' is typed; a generated section must have it"
                        for found in TYPED.findall(" ".join(prose.split()))]
        orphans += [f"{page}: {thing} belongs to no item of extras/studies/items.py" for thing, owners in things.items()
                    if not owners]
        for name in dict.fromkeys(itertools.chain(*things.values())):
            where[name].append(page)
    return where, orphans


# --- what a new run costs
def size(mib):
    return "-" if not mib else f"{number(mib / 1024, 2)} GiB" if mib >= 1024 else f"{number(mib, 2)} MiB"


def cost(step, machines):
    """(time, memory, disk) of a step: the most of all machines. Without a recorded time it is the step's estimate."""
    own = [[records[n] for n in step.results if n in records] for records in machines]
    results = [r for of in own for r in of]
    seconds = max((t for r in results if (t := leading_number(r.context.get("emb_record_seconds")))), default=0)
    time = seconds or 60 * step.minutes
    needs = [x.get("peak_mib") or ((x.get("persistent_mib") or 0) + (x.get("scratch_mib") or 0))
             for r in results for s in r.series for x in s.samples]
    disk = max((sum(os.path.getsize(r.path) for r in of) for of in own), default=0)
    return ((f"{number(time, 2)} s" if time < 60 else f"{time / 60:.0f} min") + " (estimate)" * (not seconds),
            size(max(needs, default=0)), size(disk / 2**20))


def costs(root):
    """{item: its costs as texts} as far as records say."""
    folders = sorted(map(os.path.dirname, glob.glob(os.path.join(root, "reports/results/*/standard" + STORED))))
    machines = [in_folder(folder) for folder in folders]
    found = {step.name: cost(step, machines) for step in STEPS}
    return {item.name: found.get(item.name, ("-",) * 3) for item in ITEMS}
