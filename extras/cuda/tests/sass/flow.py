# SPDX-License-Identifier: MIT
"""The control flow of one function of SASS: basic blocks, their successors, and nested loops."""
import re

from instruction import load_width

TARGET = re.compile(r"\(([.$][^()\s]*)\)")
STORE = re.compile(r"ST(G|\.)|RED[G.]|ATOMG?\.")


class Block:
    __slots__ = "number", "instructions", "next", "before", "_loads", "_stores"

    def __init__(self, number):
        self.number, self.instructions, self.next, self.before = number, [], [], []
        self._loads = self._stores = None

    @property
    def last(self):
        return self.instructions[-1]

    def loads(self, width):
        """Its loads of that many bytes."""
        if self._loads is None:
            self._loads = {}
            for i in self.instructions:
                self._loads[load_width(i.name)] = self._loads.get(load_width(i.name), 0) + 1
        return self._loads.get(width, 0)

    @property
    def stores(self):
        """True if it writes global memory."""
        if self._stores is None:
            self._stores = any(STORE.match(i.name) for i in self.instructions)
        return self._stores


class Loop:
    """blocks: numbers of all its blocks, inner loops included. entries: the blocks through which it is entered."""

    def __init__(self, blocks, entries, depth):
        self.blocks, self.entries, self.depth, self.inner, self._own = blocks, entries, depth, [], None

    def own(self):
        """Its blocks outside of inner loops."""
        if self._own is None:
            self._own = self.blocks.difference(*(loop.blocks for loop in self.inner))
        return self._own


def ends_block(name):
    return name.startswith(("BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "KILL", "BSYNC", "WARPSYNC.COLLECTIVE", "BREAK"))


def never_goes_on(instruction):
    """True if the next instruction in memory is no successor."""
    name = instruction.name
    if instruction.guard or name.startswith(("BRA.DIV", "BRA.CONV")):
        return False
    if name.startswith("BRA") and re.match(r"!?U?P\d", instruction.text):
        return False  # a branch on a uniform predicate has it as an operand
    return name.startswith(("BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "KILL"))


def targets_of(instruction):
    """Labels that it may jump to. A call comes back, and is no jump."""
    name, text = instruction.name, instruction.text
    if name.startswith(("BRX", "JMX")):
        found = re.search(r'BRANCH_TARGETS ([^"]*)"', text)
        return found[1].split(",") if found else []
    return TARGET.findall(text) if name.startswith(("BRA", "JMP", "WARPSYNC")) else []


def blocks_of(items):
    """Basic blocks of instructions and labels as parse() yields them."""
    blocks, labels, open_block = [], {}, None
    for item in items:
        if isinstance(item, str):
            open_block = None if open_block is None or open_block.instructions else open_block
            if open_block is None:
                open_block = Block(len(blocks))
                blocks.append(open_block)
            labels[item] = open_block.number
            continue
        if open_block is None:
            open_block = Block(len(blocks))
            blocks.append(open_block)
        open_block.instructions.append(item)
        if ends_block(item.name):
            open_block = None
    for block in blocks:
        after = [] if block.number + 1 == len(blocks) else [block.number + 1]
        if block.instructions:
            jumps = [labels[t.strip()] for t in targets_of(block.last) if t.strip() in labels]
            after = jumps + ([] if never_goes_on(block.last) else after)
        block.next = list(dict.fromkeys(after))
    for block in blocks:
        for n in block.next:
            blocks[n].before.append(block.number)
    return blocks


def postorder(roots, next_of):
    """All nodes that the roots reach, each after the nodes that follow it."""
    done, order = set(), []
    for root in roots:
        work = [] if root in done else [(root, iter(next_of(root)))]
        done.add(root)
        while work:
            node, following = work[-1]
            n = next((n for n in following if n not in done), None)
            if n is None:
                order.append(node)
                work.pop()
            else:
                done.add(n)
                work.append((n, iter(next_of(n))))
    return order


def reachable(blocks):
    """The numbers of the kernel's own blocks: not of functions that it calls."""
    return set(postorder([0], lambda n: blocks[n].next))


def components(nodes, next_of):
    """Strongly connected components (Kosaraju and Sharir)."""
    inside = {n: [m for m in next_of(n) if m in nodes] for n in nodes}
    before = {n: [] for n in nodes}
    for n in nodes:
        for m in inside[n]:
            before[m].append(n)
    found, done = [], set()
    for root in reversed(postorder(sorted(nodes), inside.__getitem__)):
        if root not in done:
            found.append(set(postorder([root], lambda n: [m for m in before[n] if m not in done])))
            done |= found[-1]
    return found


def loops_of(blocks, nodes=None, depth=1, barred=frozenset()):
    """Loops, outermost first. An inner loop is what still goes round without the way back to the entries of the outer
    one (Steensgaard's definition; it needs no single entry)."""
    nodes = set(range(len(blocks))) if nodes is None else nodes
    found = []
    for component in components(nodes, lambda n: [m for m in blocks[n].next if m not in barred]):
        if len(component) == 1:
            (only,) = component
            if only not in blocks[only].next or only in barred:
                continue
        entries = {n for n in component if any(b not in component for b in blocks[n].before)} or {min(component)}
        loop = Loop(component, entries, depth)
        loop.inner = loops_of(blocks, component, depth + 1, barred | entries)
        found.append(loop)
    return found


def nested(loops):
    """All loops, with inner ones."""
    for loop in loops:
        yield loop
        yield from nested(loop.inner)
