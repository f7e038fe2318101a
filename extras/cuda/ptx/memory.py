# SPDX-License-Identifier: MIT
"""Loads, stores, atomics, prefetches and asynchronous copies. Each finds its memory through ptx::global(), shared(),
local() or generic(), which judge the address and tell the observer."""
from body import BYTES, STORED, vector
from problem import Refused

SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "shared",
          "local": "local", "param": "param", "param::entry": "param", "param::func": "param", "const": "const"}
# Orders and scopes change nothing: threads run one at a time, in an order that every thread sees.
ORDERED = {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys", "cluster", "mmio"}
ATOMS = {"add", "min", "max", "and", "or", "exch", "cas"}
# Hints for caches, which change no value. .L2::cache_hint has an operand more.
HINTS = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B",
         *(f"{level}::{what}" for level in ("L1", "L2")
           for what in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate"))}


class Modifiers:
    """The modifiers between the name of an instruction and its operands."""

    def __init__(self, mods):
        self.space, self.width, self.type, self.atom = "generic", 1, None, None
        for m in mods:
            self.take(m)

    def take(self, m):
        if m in SPACES:
            self.space = SPACES[m]
        elif m in BYTES:
            self.type = m
        elif m in ("v2", "v4", "v8"):
            self.width = int(m[1])
        elif m in ATOMS and not self.atom:
            self.atom = m
        elif m not in HINTS and m not in ORDERED:
            raise Refused(f".{m} is not known here")


def find(b, m, kind, where, size):
    """p: the memory of the access."""
    base, offset = b.address(where)
    at = b.unit.instruction(kind, m.space)
    if m.space == "shared":
        return f"p = ptx::shared({b.value(base, 'u32')} + {offset & 0xffffffff}u, {size}, {at}); "
    frame = "frame, " if m.space in ("local", "generic") else ""
    return f"p = ptx::{m.space}({frame}{b.value(base, 'u64')} + {offset & (1 << 64) - 1}ull, {size}, {at}); "


def parameter(b, where):
    """p: a parameter, or a variable of a call: in bounds for sure, unless the address is in a register."""
    base, offset = b.address(where)
    if not b.is_register(base):
        return f"p = {b.variable(base)} + {offset}; "
    if not b.function.is_entry:
        raise Refused("a parameter by its address in a function")
    at = b.unit.instruction("other")
    return f"p = (char *){b.value(base, 'u64')} + {offset}; ptx::in_parameters(frame, p, {at}); "


def load(b, o, mods, args):
    m = Modifiers(mods)
    size, names, c = BYTES[m.type] * m.width, vector(args[0]), m.type if m.type[0] != "b" else STORED[m.type]
    if m.space == "const" or m.atom:
        raise Refused("constant memory")
    text = parameter(b, args[1]) if m.space == "param" else find(b, m, "load", args[1], size)
    if len(names) != m.width:
        raise Refused("a vector of another length")
    return text + " ".join(b.set(n, m.type, f"ptx::get<{c}>(p + {i * BYTES[c]})")
                           for i, n in enumerate(names) if n != "_")


def store(b, o, mods, args):
    m = Modifiers(mods)
    size, names = BYTES[m.type] * m.width, vector(args[1])
    if m.space == "const" or m.atom or len(names) != m.width:
        raise Refused("unknown instruction")
    text = parameter(b, args[0]) if m.space == "param" else find(b, m, "store", args[0], size)
    c = STORED[m.type]
    return text + " ".join(f"ptx::put<{c}>(p + {i * BYTES[c]}, {b.value(n, unsigned_or_float(m.type))});"
                           for i, n in enumerate(names))


def unsigned_or_float(t):
    return t if t[0] == "f" else "u" + t[1:]


def atomic(b, o, mods, args):
    m = Modifiers(mods)
    if not m.atom or not m.type or m.type[0] == "f" and m.atom not in ("add", "exch"):
        raise Refused("unknown instruction")
    if "L2::cache_hint" in mods:
        args.pop()
    targets = vector(args.pop(0)) if o == "atom" else []
    c = m.type if m.type[0] != "b" else STORED[m.type]
    text = find(b, m, "atomic" if targets else "reduction", args[0], BYTES[m.type] * m.width)
    values = [vector(a) for a in args[1:]]
    for i in range(m.width):
        operands = ", ".join(b.value(v[i], m.type) for v in values)
        call = f"ptx::atom_{m.atom}<{c}>(p + {i * BYTES[c]}, {operands})"
        text += b.set(targets[i], m.type, call) if targets else f"{call};"
    return text


def prefetch(b, o, mods, args):
    """Changes no value, and may have any address."""
    m = Modifiers(x for x in mods if x not in ("L1", "L2"))
    base, offset = b.address(args[0])
    at = b.unit.instruction("prefetch", m.space)
    return f"ptx::prefetch({b.value(base, 'u64')} + {offset & (1 << 64) - 1}ull, 0, {at});"


def create_policy(b, o, mods, args):
    """A policy is the operand of a .L2::cache_hint, so any number will do."""
    return b.set(args[0], "u64", "0ull")


def copy(b, o, mods, args):
    """Asynchronous copies end at once, so a missing wait is not found."""
    if mods[1] == "bulk":
        return bulk_prefetch(b, mods[2:], args)
    if mods[1] in ("commit_group", "wait_group", "wait_all"):
        return ";"
    if "L2::cache_hint" in mods:
        args.pop()
    if mods[1] not in ("ca", "cg") or len(args) not in (3, 4):
        raise Refused("unknown instruction")
    m = Modifiers(x for x in mods[1:] if x not in ("shared", "shared::cta", "global"))
    size = int(args[2])
    present = b.value(args[3], "u32") if len(args) > 3 else f"{size}u"
    m.space = "global"
    text = "char *from; " + find(b, m, "load", args[1], size) + "from = p; "
    m.space = "shared"
    return text + find(b, m, "store", args[0], size) + f"ptx::copy(p, from, {size}, {present}); "


def bulk_prefetch(b, mods, args):
    if mods != ["prefetch", "L2", "global"]:
        raise Refused("a bulk copy")
    base, offset = b.address(args[0])
    at = b.unit.instruction("prefetch", "global")
    return f"ptx::prefetch({b.value(base, 'u64')} + {offset}ull, {b.value(args[1], 'u32')}, {at});"


def to_space(b, o, mods, args):
    """cvta: shared and local memory have marks in generic addresses."""
    space = SPACES.get(next((m for m in mods if m in SPACES), None))
    t = mods[-1]
    x = b.value(args[1], t)
    if t != "u64" or space not in ("global", "shared", "local", "param"):
        raise Refused("unknown instruction")
    if space == "global":
        return b.set(args[0], t, x)
    what = f"ptx::{'from' if 'to' in mods else 'to'}_generic_{'local' if space == 'param' else space}"
    return b.set(args[0], t, f"{what}({x})")


HANDLERS = {"ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic, "prefetch": prefetch,
            "prefetchu": prefetch, "createpolicy": create_policy, "cp": copy, "cvta": to_space}
