# SPDX-License-Identifier: MIT
"""Loads in flight: how many loads of a loop are issued before the first instruction that needs one of them.

A warp issues in order. It stops at an instruction that reads or overwrites a register that a load has yet to fill, or
that waits for the barrier of the load (Cubin.controls). A barrier may also belong to others: a warp that needs the
result of a shuffle then waits for the load too.

Followed is the way through the loop with the most loads of the asked width: full rows, aligned. Where ways remain
open, only loads count that are in flight on all of them.
"""
from flow import postorder
from instruction import load_width


class NoWait(Exception):
    """Control bits contradict registers: this architecture has them elsewhere, or the disassembler is misread."""


class InFlight:
    """The state at a point: loads in flight, the oldest first, as (registers, barrier), and predicates that are
    known."""
    __slots__ = "loads", "known"

    def __init__(self, loads=(), known=()):
        self.loads, self.known = tuple(loads), dict(known)

    def __eq__(self, other):
        return other is not None and self.loads == other.loads and self.known == other.known

    def copy(self):
        return InFlight(self.loads, self.known)

    def meet(self, other):
        return InFlight([load for load in self.loads if load in other.loads],
                        {p: v for p, v in self.known.items() if other.known.get(p) == v})

    def finish(self, done):
        """A warp that has waited for a load has waited for older ones."""
        last = max((k for k, load in enumerate(self.loads) if done(*load)), default=-1)
        self.loads = self.loads[last + 1:]

    def step(self, instruction, width):
        """Executes an instruction. Returns the loads in flight if it is a load of that width, otherwise 0."""
        barrier, waits = instruction.control or (None, 0)
        if waits:  # also without effect otherwise, for its guard is false
            self.finish(lambda registers, of: of is not None and waits >> of & 1)
        guard, wanted = instruction.guard, load_width(instruction.name) == width
        if guard:
            value = self.known.get(guard[0])
            if value is None and wanted:  # the way that loads
                self.known[guard[0]] = value = guard[1]
            if value is not None and value != guard[1]:
                return 0
        touched = instruction.writes | instruction.reads
        if any(of is not None and not touched.isdisjoint(registers) for registers, of in self.loads):
            raise NoWait(f"{instruction.address:#x} needs a load without waiting for its barrier")
        self.finish(lambda registers, of: not touched.isdisjoint(registers))
        for register in instruction.writes:
            self.known.pop(register, None)
        if not wanted:
            return 0
        self.loads += (frozenset(instruction.writes), barrier),
        return len(self.loads)


def order_within(blocks, loop):
    """Blocks of the loop, each after those that follow it in the same turn, and the edges that begin another turn."""
    next_of = lambda n: [m for m in blocks[n].next if m in loop.blocks]
    order = postorder(sorted(loop.entries), lambda n: [m for m in next_of(n) if m not in loop.entries])
    place = {n: k for k, n in enumerate(order)}
    return order, {(n, m) for n in order for m in next_of(n) if m in loop.entries or place[m] >= place[n]}


def apart(block, successor):
    """True if a warp goes this way only after its lanes have parted."""
    name = block.last.name if block.instructions else ""
    goes_on = successor == block.number + 1
    return len(block.next) > 1 and (name.startswith("BRA.DIV") and not goes_on or
                                    name.startswith("BRA.CONV") and goes_on)


class Way:
    """The way through a loop with the most loads of that width. next: {block: successors on it}; back: edges that
    begin another turn; turn: (instructions, loads) of the shortest such turn."""

    def __init__(self, blocks, loop, width):
        self.order, self.back = order_within(blocks, loop)
        self.next, most, shortest = {}, {}, {}
        for n in self.order:
            loads = {m: 0 if (n, m) in self.back else most[m]
                     for m in blocks[n].next if m in loop.blocks and not apart(blocks[n], m)}
            best = max(loads.values(), default=0)
            self.next[n] = [m for m in loads if loads[m] == best]
            most[n] = best + (blocks[n].loads(width) if n in loop.own() else 0)
            shortest[n] = len(blocks[n].instructions) + min(
                (0 if (n, m) in self.back else shortest[m] for m in self.next[n]), default=0)
        entry = max(loop.entries, key=lambda n: most[n])
        self.turn = shortest[entry], most[entry]


def edge(block, successor, state):
    """The state on the way from a block to that successor; None if its predicate forbids this way."""
    last = block.last if block.instructions else None
    if last is None or not last.guard or last.name != "BRA" or len(block.next) < 2 or last.text.startswith(("P", "!P")):
        return state
    predicate, value = last.guard
    value = value if successor != block.number + 1 else not value
    if state.known.get(predicate, value) != value:
        return None
    state = state.copy()
    state.known[predicate] = value
    return state


def enter(blocks, n, way, after):
    """The state at the begin of a block, or None if no way has led there yet."""
    into = [edge(blocks[p], n, after[p]) for p in blocks[n].before if p in after and n in way.next[p]]
    into = [state for state in into if state]
    if not into:
        return None
    here = into[0].copy()
    for other in into[1:]:
        here = here.meet(other)
    return here


def loads_in_flight(blocks, loop, width):
    """The most loads of that width in flight at once in the loop, outside its inner loops."""
    way, after, best, changed = Way(blocks, loop, width), {}, {}, True
    while changed:
        changed = False
        for n in reversed(way.order):
            # A turn begins with what the turn before left in flight; before the first turn that is nothing.
            here = enter(blocks, n, way, after) or (InFlight() if n in loop.entries else None)
            if here is None:
                continue
            if not here.loads and not blocks[n].loads(width):
                here = InFlight()
            else:
                for i in blocks[n].instructions:
                    count = here.step(i, width)
                    if count and n in loop.own():
                        best[i.address] = count
            changed |= after.get(n) != here
            after[n] = here
    return max(best.values(), default=0)
