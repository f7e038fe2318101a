# SPDX-License-Identifier: MIT
"""The machine code of counted functions (tests/cuda/sass/issue.py), and what follows from it and the counts by lines: the
least instructions that warps issue, and the least time that their loads take, in latencies of memory."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "cuda", "sass"))
from issue import PATTERNS, functions_of_object, merged, source_name  # noqa: E402
from objects import tools  # noqa: E402

ARCH = 90  # of H100 and H200


def objects_in(build):
    """What nvcc made for this build: the objects beside which it says what ptxas used."""
    return sorted(os.path.join(folder, name[:-len(".ptxas")] + ".o") for folder, _, names in os.walk(build)
                  for name in names if name.endswith(".ptxas"))


def functions_in(build, wanted):
    """{name: machine code} of these functions; raises OSError with what is missing."""
    tool, result = tools(os.path.join(ROOT, "build", "sass", "venv")), {}
    if not tool:
        raise OSError("no cuobjdump and nvdisasm; make sass-tools installs them")
    for path in objects_in(build):
        for name, found in functions_of_object(path, tool, ARCH, wanted).items():
            result[name] = merged(result[name], found) if name in result else found
    return result


def number(requests):
    return requests["requests"] if isinstance(requests, dict) else requests


def instructions(record, code):
    """Instructions of warps: each counted request stands for its share of the machine code around it. A kind of request
    that a line of the machine code does not have was removed, or became part of another one: it counts as none."""
    return sum(number(line[kind]) * code["shares"].get((source_name(line["source"]), line["line"], kind), 0)
               for line in record["lines"] for kind in PATTERNS)


def waits(record, misses, code):
    """Loads of the `misses` sectors, each over the most loads that its warp has in flight beside it, with itself. A warp
    in which k are in flight counts 1/k or less for each of them, so the sum is no more than 1 at any time. Which loads
    missed is not known: those that take the least for a sector, where the requests of a line are alike. 0:
    asynchronous copies, of which the code does not tell how many are in flight."""
    if code["flights"] is None:
        return 0
    loads = []  # (of a sector, sectors)
    for line in record["lines"]:
        load, flight = line["load"], code["flights"].get((source_name(line["source"]), line["line"]), 1)
        if load["sectors"]:
            loads.append((load["requests"] / load["sectors"] / flight, load["sectors"]))
    total = 0
    for each, sectors in sorted(loads):
        total += each * min(misses, sectors)
        misses -= min(misses, sectors)
    return total
