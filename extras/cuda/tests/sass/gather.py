# SPDX-License-Identifier: MIT
"""The loops of a kernel that gather rows, and what they keep in flight."""
from flight import Way, loads_in_flight
from flow import nested

WIDTHS = 16, 8, 4, 2
# A row takes at least this many loads of another width for each of its 16-byte loads.
TIMES = {8: 1, 4: 4, 2: 4}


def has(blocks, loop, width):
    return any(blocks[n].loads(width) for n in loop.own())


def gather_loops(blocks, loops):
    """Loops with loads of 16 bytes outside their inner loops, in the order of the code. A loop that also stores is one
    that updates rows: it counts only in a kernel where all of them do."""
    wide = [loop for loop in nested(loops) if has(blocks, loop, 16)]
    pure = [loop for loop in wide if not any(blocks[n].stores for n in loop.own())]
    return sorted(pure or wide, key=lambda loop: min(loop.entries))


def narrow(blocks, loops, gathers, width):
    """The most loads of `width` bytes that a loop has in flight. A gather loop counts if it has enough of them beside
    its 16-byte loads: as many loads of 8 bytes (narrower types), or four times as many of 4 or 2 bytes (single
    elements). Other loops count if they store nothing and the width is 8, or the kernel has no gather loop."""
    ways = [loop for loop in gathers
            if Way(blocks, loop, width).turn[1] >= TIMES[width] * Way(blocks, loop, 16).turn[1]]
    pure = [loop for loop in nested(loops) if width == 8 or not gathers
            if has(blocks, loop, width) and not any(blocks[n].stores for n in loop.own())]
    return max((loads_in_flight(blocks, loop, width) for loop in ways + pure), default=0)


def measure_gathers(blocks, loops):
    """gathers: the number of gather loops. flight16: the 16-byte loads that are in flight in the loop with the fewest.
    slots: instructions per 16-byte load, in the loop that needs the fewest. flight8, flight4, flight2: see narrow()."""
    gathers = gather_loops(blocks, loops)
    result = {"gathers": len(gathers)}
    turns = [Way(blocks, loop, 16).turn for loop in gathers]
    result["slots"] = min((round(instructions / loads, 1) for instructions, loads in turns), default=0)
    result["flight16"] = min((loads_in_flight(blocks, loop, 16) for loop in gathers), default=0)
    for width in WIDTHS[1:]:
        result[f"flight{width}"] = narrow(blocks, loops, gathers, width)
    return result
