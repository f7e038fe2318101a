# SPDX-License-Identifier: MIT
"""SASS, the machine code of NVIDIA's GPUs, as nvdisasm prints it: instructions with the registers that they write and
read.

A register is a number: R0 is 0, UR0 is UNIFORM, P0 is PREDICATE, UP0 is UNIFORM_PREDICATE. RZ, URZ, PT and UPT hold
constants and are left out.
"""
import re

UNIFORM, PREDICATE, UNIFORM_PREDICATE = 256, 512, 528
LINE = re.compile(r"^(?:\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;"
                  r"|(?:\s*)([.$\w][^\s:]*):\s*$)", re.M)
REGISTER = re.compile(r"(?<![\w.])(U?[RP])(\d+)(\.64)?\b")
FIRST = {"R": 0, "UR": UNIFORM, "P": PREDICATE, "UP": UNIFORM_PREDICATE}
NO_RESULT = re.compile(r"ST[GSL]?\b|RED\b|REDG|BRA|BRX|JMP|JMX|BSSY|BSYNC|BREAK|EXIT|CALL|RET|MEMBAR|CCTL|BAR|NOP|"
                       r"ERRBAR|CGAERRBAR|WARPSYNC|ENDCOLLECTIVE|YIELD|DEPBAR|LDGDEPBAR|LDGSTS|UBLKCP|UBLKPF|SYNCS|"
                       r"KILL|BPT|NANOSLEEP|FENCE|ACQBULK|PREEXIT|UTMA")
PAIR_RESULT = re.compile(r"D(ADD|MUL|FMA|SETP|MNMX)|IMAD\.WIDE|CS2R(?!\.32)|\w+\.64\b|F2F\.F64\.|I2F\.F64")
SETS_PREDICATES = "ISETP", "FSETP", "DSETP", "UISETP", "FCHK"


class Instruction:
    """guard: (predicate, True or False) or None. control: (barrier that its result sets, barriers that it waits for as
    a bit mask) or None."""
    __slots__ = "address", "guard", "name", "text", "control", "_registers"

    def __init__(self, address, guard, name, text, control=None):
        self.address, self.name, self.text, self.control = address, name, text, control
        self.guard = predicate_of(guard) if guard else None
        self._registers = None

    @property
    def writes(self):
        return self._parsed()[0]

    @property
    def reads(self):
        return self._parsed()[1]

    def _parsed(self):
        if self._registers is None:
            self._registers = registers_of(self.name, self.text)
        return self._registers


def predicate_of(text):
    found = re.match(r"(!?)(U?P)(\d+)$", text)
    return (FIRST[found[2]] + int(found[3]), not found[1]) if found else None


def operands_of(text):
    """Splits at commas outside brackets and parentheses."""
    result, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            result.append(text[start:i].strip())
            start = i + 1
    return result + [text[start:].strip()] if text else []


def load_width(name):
    """Bytes that a load from global (or generic) memory brings into registers; 0 for other instructions."""
    if not re.match(r"LDG?\.", name):
        return 0
    for suffix, width in ((".256", 32), (".128", 16), (".64", 8), (".U8", 1), (".S8", 1), (".U16", 2), (".S16", 2)):
        if suffix in name:
            return width
    return 4


def width_of(name):
    """Registers of the data of a load or store."""
    return 8 if ".256" in name else 4 if ".128" in name else 2 if ".64" in name else 1


def registers_in(operand, width=1):
    """Registers of an operand whose register has `width` parts of 32 bits."""
    result = set()
    for kind, number, pair in REGISTER.findall(operand):
        first = FIRST[kind] + int(number)
        parts = 1 if "P" in kind else max(width, 2 if pair else 1)
        result.update(range(first, first + parts))
    return result


def is_predicate(operand):
    return re.match(r"U?P(T|\d+)$", operand) is not None


def is_register(operand):
    return re.match(r"U?R(Z|\d+)", operand) is not None


def registers_of(name, text):
    """(written, read) by an instruction, without its guard."""
    operands = operands_of(text)
    memory = re.match(r"(LD|ST|RED|ATOM)(?!GSTS|GDEPBAR)", name)
    if NO_RESULT.match(name):
        data = width_of(name) if memory else 1
        return set(), set().union(*(registers_in(o, 1 if "[" in o else data) for o in operands), set())
    results, k = [], 0
    while k < len(operands) and is_predicate(operands[k]) and k < 2:
        results.append(operands[k])
        k += 1
    wide = width_of(name) if memory else 2 if PAIR_RESULT.match(name) else 1
    written = set()
    if k < len(operands) and is_register(operands[k]) and not name.startswith(SETS_PREDICATES):
        written |= registers_in(operands[k], wide)
        k += 1
        most = k + (1 if name.startswith("VOTE") else 2)
        while k < min(most, len(operands)) and is_predicate(operands[k]):
            results.append(operands[k])
            k += 1
    for operand in results:
        written |= registers_in(operand)
    if name.startswith("R2P"):
        written |= set(range(PREDICATE, PREDICATE + 7))
    double = name.startswith("D") or ".64" in name and not memory
    read = set()
    for n, operand in enumerate(operands[k:]):
        third = name.startswith("IMAD.WIDE") and n == 2
        data = width_of(name) if name.startswith("ATOM") and "[" not in operand else 1
        read |= registers_in(operand, 2 if double or third else data)
    return written, read


def parse(text, controls=None):
    """Yields instructions, and labels as strings, in the order of the text. controls: {address: control}."""
    for address, guard, name, operands, label in LINE.findall(text):
        if label:
            yield label
        else:
            at = int(address, 16)
            yield Instruction(at, guard, name, operands, controls.get(at) if controls else None)
