# SPDX-License-Identifier: MIT
"""Counts in the SASS of one kernel."""
import re

from flow import blocks_of, loops_of, reachable
from gather import measure_gathers
from instruction import parse

COUNTS = {
    "match": r"MATCH\.ANY",
    "membar": r"MEMBAR",
    "membar_sc": r"MEMBAR\.SC",                  # the strongest kind
    "ivall": r"CCTL\.IVALL",                     # drops L1
    "atom": r"ATOMG?\.(?!\S*CAS)",               # an atomic that returns the old value
    "cas": r"ATOM[GS]?\.\S*CAS",                 # a compare-and-swap, mostly in a loop
    "red": r"RED[G.]",                           # an atomic that returns nothing
    "bar": r"BAR\.",
    "shfl": r"SHFL",
    "vote": r"VOTEU?\b|REDUX",
    "local": r"LDL|STL",
    "global": r"(LD|ST)G\.",
    "generic": r"(LD|ST)\.E",                    # may be of shared or local memory, too
    "prefetch": r"CCTL\.\S*PF|UBLKPF",
    "async": r"LDGSTS",
    "double": r"D(ADD|MUL|FMA|SETP|MNMX)\b|F2F\.\S*F64|[IF]2[IF]\.\S*F64",
    "mufu": r"MUFU",
    "division": r"I2F(\.U32)?\.RP|CALL\S* .*__cuda_\w*(div|rem)_[su]\d",  # of integers
}
PATTERNS = {name: re.compile(pattern) for name, pattern in COUNTS.items()}


def kinds_of(instructions):
    """{name of an instruction: how many}; of a call with what it calls."""
    kinds = {}
    for i in instructions:
        key = f"{i.name} {i.text}" if i.name.startswith("CALL") else i.name
        kinds[key] = kinds.get(key, 0) + 1
    return kinds


def count(kinds, pattern):
    return sum(n for key, n in kinds.items() if re.match(pattern, key))


def measure(text, controls=None):
    """{metric: number} of a function's SASS; "kinds" are all its instructions by name."""
    blocks = blocks_of(parse(text, controls))
    loops = loops_of(blocks)
    body = reachable(blocks)
    code = [i for block in blocks for i in block.instructions if i.name != "NOP"]
    kinds = kinds_of(code)
    result = {name: count(kinds, pattern) for name, pattern in PATTERNS.items()}
    result["match_in_loops"] = count(kinds_of(i for loop in loops for n in loop.blocks for i in blocks[n].instructions),
                                     PATTERNS["match"])
    result["code"] = 16 * len(code)
    result.update(measure_gathers(blocks, [loop for loop in loops if loop.blocks <= body]))
    result["kinds"] = kinds
    return result
