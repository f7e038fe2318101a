# SPDX-License-Identifier: MIT
"""Operands of machine code: translates nvdisasm's text to the struct of machine.h. Text that it does not know raises
KeyError or ValueError."""
import ctypes
import re
import struct

RZ, URZ, PT, INVERTED, PAIR = 255, 256 + 63, 7, 16, 64
MINUS, NOT, MAGNITUDE, SIGN, LOW_HALF, HIGH_HALF, UNSIGNED = 1, 2, 4, 8, 16, 32, 128
NONE, REGISTER, IMMEDIATE, CONSTANT, ADDRESS = range(5)
PREDICATE = re.compile(r"(!?)(U?)P(T|\d)$")
VALUE = re.compile(r"([-~]?)(\|?)(U?)R(Z|\d+)((?:\.\w+)*)\|?((?:\.\w+)*)$")
BANK = re.compile(r"([-~]?)(\|?)c\[0x0\]\[(.*)\]\|?$")


class Operand(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint8), ("flags", ctypes.c_uint8), ("reg", ctypes.c_uint16),
                ("second", ctypes.c_uint16), ("scale", ctypes.c_uint16), ("value", ctypes.c_int64)]


def predicate(text):
    invert, uniform, number = PREDICATE.match(text).groups()
    return (PT if number == "T" else int(number)) + (8 if uniform else 0) + (INVERTED if invert else 0)


def register(uniform, number):
    return (URZ if uniform else RZ) if number == "Z" else int(number) + (256 if uniform else 0)


def number(text, floating):
    """The bits of an immediate."""
    if re.match(r"-?0x[0-9a-f]+$", text):
        return int(text, 16) & 0xffffffff
    if not floating:
        return int(text) & 0xffffffff
    text = text.strip().replace("QNAN", "nan").replace("SNAN", "nan")
    return struct.unpack("<I", struct.pack("<f", float(text)))[0]


def flags_of(sign, magnitude, floating):
    return ((0, SIGN if floating else MINUS)[sign == "-"] | (NOT if sign == "~" else 0) |
            (MAGNITUDE if magnitude else 0))


def operand(text, floating):
    o = Operand(reg=RZ, second=URZ, scale=1)
    if found := VALUE.match(text):
        suffixes = (found[5] + found[6]).split(".")[1:]
        o.kind, o.reg = REGISTER, register(found[3], found[4])
        o.flags = flags_of(found[1], found[2], floating)
        for s in suffixes:
            o.flags |= {"64": PAIR, "H0_H0": LOW_HALF, "H1_H1": HIGH_HALF}[s]
    elif found := BANK.match(text):
        o.kind, o.flags = CONSTANT, flags_of(found[1], found[2], floating)
        address_parts(o, found[3])
    elif text.endswith("]") and not text.startswith("c"):
        o.kind = ADDRESS
        address_parts(o, re.search(r"\[([^\[\]]*)\]$", text)[1])
    else:
        o.kind, o.value = IMMEDIATE, number(text, floating)
    return o


def address_parts(o, text):
    for part in text.replace("+-", "+!").split("+"):
        found = re.match(r"(U?)R(Z|\d+)((?:\.\w+)*)$", part)
        if not found:
            o.value += -int(part[1:], 16) if part.startswith("!") else int(part, 16)
            continue
        which = register(found[1], found[2])
        if which >= 256 and (o.reg != RZ or o.kind == ADDRESS and not found[3]):
            o.second = which
            continue
        o.reg = which
        for s in found[3].split(".")[1:]:
            if s[0] == "X":
                o.scale = int(s[1:])
            else:
                o.flags |= {"64": PAIR, "U32": UNSIGNED}[s]
