# SPDX-License-Identifier: MIT
"""Barriers, collectives, fences, branches and calls."""
import re

from arithmetic import only
from body import unsigned, vector
from problem import Refused


def collective(b, op, mask, value="0"):
    """The C++ expression that runs a collective of the lanes in a mask. Its value is a u64."""
    return f"ptx::warp(emulation::WarpOp::{op}, {b.value(mask, 'u32')}, {value}, {b.unit.instruction('collective')})"


def block_barrier(b, op, value="false"):
    return f"ptx::block_barrier(emulation::BarrierOp::{op}, {value}, {b.unit.instruction('barrier')})"


def barrier(b, o, mods, args):
    mods = [m for m in mods if m not in ("cta", "aligned")]
    if mods[:2] == ["warp", "sync"]:
        return f"{collective(b, 'sync', args[0])};"
    if mods == ["sync"] and args == ["0"]:
        return f"{block_barrier(b, 'none')};"
    if mods[0] == "red" and args[1] == "0" and len(args) == 3:
        op, t = {"and": ("all", "pred"), "or": ("any", "pred"), "popc": ("count", "u32")}[mods[1]]
        if mods[2] == t:
            return b.set(args[0], t, f"({t}){block_barrier(b, op, b.value(args[2], 'pred'))}")
    raise Refused("only barrier 0, with all threads of the block, is supported")


def shuffle(b, o, mods, args):
    if len(mods) != 3 or mods[0] != "sync" or mods[1] not in ("idx", "up", "down", "bfly") or mods[2] != "b32":
        raise Refused("unknown instruction")
    targets = args[0].split("|")
    at = b.unit.instruction("collective")
    values = ", ".join(b.value(a, "u32") for a in args[1:])
    text = f"bool in; const u32 x = ptx::shfl_{mods[1]}({values}, {at}, in); "
    text += b.set(targets[0], "u32", "x")
    return text + (b.set(targets[1], "pred", "in") if len(targets) > 1 else "")


def vote(b, o, mods, args):
    how, _ = [m for m in mods if m != "sync"]
    if how not in ("ballot", "any", "all"):
        raise Refused("unknown instruction")
    t = "u32" if how == "ballot" else "pred"
    return b.set(args[0], t, f"({t}){collective(b, how, args[2], b.value(args[1], 'pred'))}")


def match(b, o, mods, args):
    if mods[0] != "any" or mods[1] != "sync":
        raise Refused("unknown instruction")
    return b.set(args[0], "u32", f"(u32){collective(b, 'match_any', args[2], b.value(args[1], unsigned(mods[2])))}")


def reduce(b, o, mods, args):
    _, how, t = mods
    if how not in ("add", "min", "max") or t not in ("u32", "s32"):
        raise Refused("unknown instruction")
    name = how if how == "add" else f"{how}_{'signed' if t == 's32' else 'unsigned'}"
    return b.set(args[0], "u32", f"(u32){collective(b, name, args[2], b.value(args[1], 'u32'))}")


def elect(b, o, mods, args):
    only(mods, "sync")
    lane, chosen = args[0].split("|")
    return f"{collective(b, 'sync', args[1])}; const u32 first = (u32)__builtin_ctz({b.value(args[1], 'u32')}); " + \
        b.set(lane, "u32", "first") + b.set(chosen, "pred", "ptx::lane() == first")


def active(b, o, mods, args):
    raise Refused("activemask depends on how lanes happen to run together")


def fence(b, o, mods, args):
    only(mods, "cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release")
    return f"ptx::fence({b.unit.instruction('fence')});"


def nothing(b, o, mods, args):
    return ";"


def back(b, o, mods, args):
    only(mods, "uni")
    if o == "exit" and not b.function.is_entry:
        raise Refused("exit is supported in a kernel, not in a device function")
    return "return;"


def trap(b, o, mods, args):
    return f"ptx::trap({b.unit.instruction('other')});"


def label(name):
    return "L_" + re.sub(r"\W", "_", name)


def branch(b, o, mods, args):
    only(mods, "uni")
    return f"goto {label(args[0])};"


def indexed_branch(b, o, mods, args):
    targets = b.function.targets[args[1]]
    cases = " ".join(f"case {i}: goto {label(t)};" for i, t in enumerate(targets))
    return f"switch ({b.value(args[0], 'u32')}) {{ {cases} default: ptx::trap({b.unit.instruction('other')}); }}"


def call(b, o, mods, args):
    only(mods, "uni")
    results = vector(args.pop(0).strip("()")) if args[0][0] == "(" else []
    called = next((f for f in b.module.functions if f.symbol == args[0]), None)
    if not called or called.is_entry or args[2:]:
        raise Refused(f"a call of {args[0]}, which is not in this file")
    given = [x.strip() for x in args[1].strip("() ").split(",") if x.strip()] if len(args) > 1 else []
    if len(given) != len(called.parameters) or len(results) != len(called.results):
        raise Refused(f"a call of {args[0]} with {len(given)} arguments and {len(results)} results: it has {len(called.parameters)} and "
                      f"{len(called.results)}")
    b.calls.add(called.symbol)
    return f"{b.unit.function_name(called)}({', '.join(['frame'] + [b.variable(v) for v in results + given])});"


HANDLERS = {**dict.fromkeys(("bar", "barrier"), barrier), "shfl": shuffle, "vote": vote, "match": match,
            "redux": reduce, "elect": elect, "activemask": active, **dict.fromkeys(("membar", "fence"), fence),
            **dict.fromkeys(("nanosleep", "griddepcontrol"), nothing), **dict.fromkeys(("ret", "exit"), back),
            "trap": trap, "bra": branch, "brx": indexed_branch, "call": call}
