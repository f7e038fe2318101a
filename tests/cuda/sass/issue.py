# SPDX-License-Identifier: MIT
"""What a warp issues for a request, and how many loads it can have in flight at most, in the machine code.

A warp that executes an instruction of a basic block executes all of the block. So a request stands for its share of the
instructions of the block in which it is: all of them, divided by the requests of the block. Where the code has the
requests of a line of the source several times, unrolled or copied, the least share holds. Blocks without a request
count for nothing. So a sum of shares is never more than what warps issue."""
import os
import re
import tempfile

from cubin import Cubin
from flight import apart
from flow import TARGET, blocks_of
from instruction import load_width, parse
from objects import FUNCTION, demangle, run

# The instructions of machine code that a request of a kind may have become, by the kinds of emulation/counts. Shared
# memory is not among them: ptxas joins its accesses.
KINDS = {
    "load": r"LDG?\.|LDGSTS|UBLKCP",
    "store": r"STG?\.",
    "atomic": r"ATOMG?\.|REDG?\.",
    "reduction": r"ATOMG?\.|REDG?\.",
    "prefetch": r"CCTL\.\S*PF|UBLKPF",
    "barriers": r"BAR\.",
    "syncs": r"WARPSYNC",
    "shuffles": r"SHFL",
    "votes": r"VOTE",
    "matches": r"MATCH",
    "reduces": r"REDUX|CREDUX",
    "fences": r"MEMBAR|FENCE",
}
PATTERNS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}
ASYNCHRONOUS = re.compile(r"LDGSTS|UBLKCP|UTMA")
LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)|^\s+/\*([0-9a-f]{4,})\*/', re.M)


def source_name(path):
    """As the PTX lane calls the files of nvcc: relative to the folder of the build."""
    return path.split("/./")[-1]


def sources(text):
    """{address: (file, line)} of the instructions, as nvdisasm -g tells them."""
    result, at = {}, None
    for file, line, address in LINE.findall(text):
        if address:
            result[int(address, 16)] = at
        else:
            at = source_name(file), int(line)
    return result


def called(items, blocks):
    """{address of a call: the number of the block that it calls}, for functions in the same code."""
    begins, labels = {block.instructions[0].address: block.number for block in blocks if block.instructions}, {}
    waiting, calls = [], []
    for item in items:
        if isinstance(item, str):
            waiting.append(item)
            continue
        labels.update(dict.fromkeys(waiting, item.address))
        waiting = []
        if item.name.startswith("CALL"):
            calls += [(item.address, target) for target in TARGET.findall(item.text)]
    return {at: begins[labels[target]] for at, target in calls if labels.get(target) in begins}


def reached(roots, following):
    found, work = set(roots), list(roots)
    while work:
        new = set(following[work.pop()]) - found
        found |= new
        work += new
    return found


def may_end(block):
    """Whether a warp may end or return there, and may also go on."""
    return block.instructions and block.last.name.startswith(("EXIT", "RET", "KILL"))


def chains(blocks, roots):
    """Lists of blocks, of which a warp executes all or none. A way on which lanes have parted goes through more
    instructions than the one beside it, so only the latter counts."""
    following = [[m for m in block.next if not apart(block, m)] for block in blocks]
    found = reached(roots, following)
    before = {n: [p for p in blocks[n].before if p in found and n in following[p]] for n in found}
    joined = {n: m for n in found for m in following[n]
              if len(following[n]) == 1 and len(before[m]) == 1 and m not in roots and not may_end(blocks[n])}
    for first in sorted(found - set(joined.values())):
        chain = [first]
        while chain[-1] in joined:
            chain.append(joined[chain[-1]])
        yield [blocks[n] for n in chain]


def kinds_of(instruction):
    return [kind for kind, pattern in PATTERNS.items() if pattern.match(instruction.name)]


def least_shares(blocks, roots, where):
    """{(file, line, kind): the least instructions for a request of that kind there}"""
    result = {}
    for chain in chains(blocks, roots):
        code = [i for block in chain for i in block.instructions if i.name != "NOP"]
        requests = [i for i in code if kinds_of(i)]
        for i in requests:
            for kind in kinds_of(i):
                key = *(where.get(i.address) or ("", 0)), kind
                share = len(code) / len(requests)
                result[key] = min(result.get(key, share), share)
    return result


def pass_by(instruction, loads):
    """The loads that may be in flight after it: {address: (registers, barrier)}."""
    barrier, waits = instruction.control or (None, 0)
    touched = instruction.writes | instruction.reads
    left = {at: (registers, of) for at, (registers, of) in loads.items()
            if not (of is not None and waits >> of & 1) and touched.isdisjoint(registers)}
    if load_width(instruction.name):
        left[instruction.address] = frozenset(instruction.writes), barrier
    return left


def states(blocks, calls):
    """What may be in flight at the begin of each block, and where a call returns."""
    into, returned, work = [{} for _ in blocks], {}, list(range(len(blocks)))
    while work:
        n = work.pop()
        loads = into[n]
        for i in blocks[n].instructions:
            loads = pass_by(i, loads)
            if i.address in calls:
                work += joined(into[calls[i.address]], loads, [calls[i.address]])
                loads = {**loads, **returned}
            if i.name.startswith("RET"):
                callers = [b.number for b in blocks if any(c.address in calls for c in b.instructions)]
                work += joined(returned, loads, callers)
        for m in blocks[n].next:
            work += joined(into[m], loads, [m])
    return into, returned


def joined(state, loads, then):
    """Adds loads to a state; returns `then` if that changes it."""
    if loads.keys() <= state.keys():
        return []
    state.update(loads)
    return then


def in_flight(blocks, calls):
    """{address of a load of global memory: no more loads are in flight while it is, on any way through the code}; None:
    asynchronous copies, whose number the code does not tell."""
    if any(ASYNCHRONOUS.match(i.name) for block in blocks for i in block.instructions):
        return None
    into, returned = states(blocks, calls)
    most = {}
    for block in blocks:
        loads = into[block.number]
        for i in block.instructions:
            loads = pass_by(i, loads)
            if i.address in calls:
                loads = {**loads, **returned}
            for at in loads:
                most[at] = max(most.get(at, 0), len(loads))
    return most


def read(text, controls):
    """Of a function's machine code. shares: {(file, line, kind): the least instructions for a request of that kind
    there}; flights: {(file, line): the most loads in flight while one of that line is}, or None."""
    items = list(parse(text, controls))
    blocks = blocks_of(items)
    calls, where = called(items, blocks), sources(text)
    most = in_flight(blocks, calls)
    flights = most and {}
    for at, count in (most or {}).items():
        flights[where.get(at)] = max(flights.get(where.get(at), 0), count)
    return {"shares": least_shares(blocks, {0, *calls.values()}, where), "flights": flights}


def merged(a, b):
    """Of two functions of one name: what is certain of both."""
    shares, flights = (a["shares"], b["shares"]), (a["flights"], b["flights"])
    return {"shares": {key: min(x.get(key, 0) for x in shares) for key in set().union(*shares)},
            "flights": None if None in flights else
            {key: max(x.get(key, 0) for x in flights) for key in set().union(*flights)}}


def functions_of_cubin(path, tool, wanted):
    cubin, result = Cubin(path), {}
    names = {m: n for m, n in demangle(cubin.functions()).items() if n in wanted}
    if not names:
        return result
    numbers = ",".join(str(k) for k, symbol in enumerate(cubin.symbols()) if symbol in names)
    parts = FUNCTION.split(run([tool["nvdisasm"], "-c", "-g", "-fun", numbers, path]))
    for mangled, text in zip(parts[1::2], parts[2::2]):
        if mangled in names:
            found, name = read(text, cubin.controls(mangled)), names[mangled]
            result[name] = merged(result[name], found) if name in result else found
    return result


def functions_of_object(path, tool, arch, wanted):
    """{name: what read() says} of those functions of an object of nvcc, for one architecture."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        run([tool["cuobjdump"], "-arch", f"sm_{arch}", "-xelf", "all", os.path.abspath(path)], cwd=folder)
        for name in sorted(os.listdir(folder)):
            result.update(functions_of_cubin(os.path.join(folder, name), tool, wanted))
    return result
