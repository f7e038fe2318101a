# SPDX-License-Identifier: MIT
"""The result files of a page, by machine: single files, or all of a recorded machine."""
import os
from collections import namedtuple
from dataclasses import dataclass, field

import pages
from drawings.studies import study_of
from identity import of_gpu, other_machine, same_machine
from points import STUDIES
from program import ResultError
from recorded import RESULTS, in_folder, make_command
from results import Result, load, same_looks

VARIABLES = ("SPEC", "TRACE", "ALPHA", "DIMS", "ROWS", "BATCH", "POOLING", "RULE", "FILTER", "MODES", "PLACE",
             "SEED", "THREADS", "REPS", "RING")  # of make bench

Target = namedtuple("Target", "target")  # of make, where no step of a record is known


@dataclass
class Source:
    """A result file."""
    result: Result
    name: str  # short, and unique in its machine
    machine: str = ""
    mode: str = "cold"  # of its figures
    recorded: bool = False  # as a step of `make record`, which its name is
    id: str = ""

    @property
    def path(self):
        return os.path.relpath(self.result.path)

    @property
    def title(self):
        return pages.TITLES.get(self.name, self.name) if self.recorded else self.name

    @property
    def what(self):
        return RESULTS[self.name].what if self.recorded else self.result.machine()

    @property
    def study(self):
        """The name of the study that measured it, if it has figures of its own; otherwise ''."""
        name = study_of(self.result)
        return name if name in STUDIES else ""

    @property
    def modes(self):
        """The modes of its rows, in their order."""
        return list(dict.fromkeys(s.mode for s in self.result.series))

    def measured_by(self):
        """The command that made the file, as far as it is known."""
        context = self.result.context
        if self.recorded:
            return pages.command(self.result, RESULTS[self.name])
        given = {k: str(v) for k in VARIABLES if (v := context.get(f"emb_var_{k}"))}
        return str(context.get("emb_record_command") or make_command(Target(self.study or "bench"), given))


@dataclass
class Machine:
    name: str
    sources: list = field(default_factory=list)

    def unrecorded(self):
        """The steps of `make record` that a recorded machine lacks."""
        names = [s.name for s in self.sources if s.recorded]
        return [name for name in RESULTS if name not in names] if names else []

    def facts(self):
        """{title: fact} of machine and build."""
        try:
            return pages.facts({s.name: s.result for s in self.sources})
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
            paths = ", ".join(s.path for s in self.sources)
            raise ResultError(f"{paths}: the context is not as bench writes it ({type(e).__name__}: {e}); "
                              "was it edited?") from None


def short_names(paths):
    """The paths below the folder that all of them share: 'bench', or 'old/bench'."""
    whole = list(map(os.path.abspath, paths))
    twice = next((p for p in paths if whole.count(os.path.abspath(p)) > 1), None)
    if twice:
        raise ResultError(f"{twice}: is given twice")
    folder = os.path.commonpath(map(os.path.dirname, whole)) if whole else ""
    return [os.path.relpath(p, folder).removesuffix(".gz").removesuffix(".json") for p in whole]


def shown_mode(result, mode):
    """The wanted mode, or the first one of a file that lacks it."""
    modes = list(dict.fromkeys(s.mode for s in result.series))
    if not modes:
        raise ResultError(f"{result.path}: no rows; 'make bench' writes them")
    return mode if mode in modes else modes[0]


def one_machine(context, other):
    """Whether two results are of one machine. A result of a GPU alone shares no fact with one of a CPU."""
    return not other_machine(context, other) and (of_gpu(context) == of_gpu(other) or
                                                  context.get("emb_gpu") == other.get("emb_gpu"))


def of_files(paths, mode):
    """The machines of single files. Those with one name get the name of a file, too."""
    machines = []
    for path, name in zip(paths, short_names(paths)):
        result = load(path)
        own = [m for m in machines if all(one_machine(s.result.context, result.context) for s in m.sources)]
        if len(own) != 1:  # one that could be of several is of none of them
            own = [Machine(str(result.context.get("emb_gpu") or result.context.get("emb_cpu") or "unknown machine"))]
            machines += own
        own[0].sources.append(Source(result, name, mode=shown_mode(result, mode)))
    names = [m.name for m in machines]
    for machine in machines:
        if names.count(machine.name) > 1:
            machine.name += f", {machine.sources[0].name}"
    return machines


def of_record(folder, mode):
    """The machine of a folder that `make record` wrote."""
    name = os.path.basename(os.path.normpath(folder))
    if not os.path.isdir(folder):
        raise ResultError(f"{folder}: no such folder; RECORD names folders of reports/results")
    results = in_folder(folder)
    if not results:
        raise ResultError(f"{folder}: holds no result; make record NAME={name} measures them")
    first = next(iter(results.values()))
    for other in results.values():
        same_machine(first, other)
    return Machine(name, [Source(r, n, mode=shown_mode(r, pages.MODES.get(n, mode)), recorded=True)
                          for n, r in results.items()])


def read(paths, folders, mode):
    """All machines of a page."""
    machines = [*(of_record(f, mode) for f in folders), *of_files(paths, mode)]
    names = [m.name for m in machines]
    for machine in machines:
        if names.count(machine.name) > 1:
            raise ResultError(f"{machine.name}: is given twice")
        for source in machine.sources:
            source.machine = machine.name
    every = [s for m in machines for s in m.sources]
    same_looks([s.result for s in every])
    for i, source in enumerate(every, 1):
        source.id = f"file-{i}"
    return machines
