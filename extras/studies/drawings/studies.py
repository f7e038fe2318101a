# SPDX-License-Identifier: MIT
"""The figures of studies, each drawn from the result of its study alone."""
import re

import crossover
import ladder
import sweep
from results import LADDER

KERNEL, BELOW = "cpu_fused", "cpu_sort"  # the kernel under study, and a kernel without its techniques


def study_of(result):
    """The name of the study that measured a result; '' if none did."""
    if any(k.family == LADDER for k in result.kernels.values()):
        return "ladder"
    found = re.match(r"of (\w+)\.py", str(result.context.get("emb_var_SPEC")))
    return found[1] if found else ""


def functions(study):
    """(pick, draw) of the module of a study."""
    name = study.__name__
    return (lambda result, mode: {"": study.read(result, KERNEL, BELOW)} if (study_of(result), mode) == (name, "cold") else {},
            lambda width, result, found: study.drawn(width, result, found, KERNEL))


OF_LADDER, OF_SWEEP, OF_CROSSOVER = map(functions, (ladder, sweep, crossover))
