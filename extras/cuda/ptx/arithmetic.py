# SPDX-License-Identifier: MIT
"""Arithmetic, logic, comparisons and conversions. Here is the gate on reproducible floats: whatever ptxas could
contract, or a GPU computes in another way than IEEE 754, is refused."""
from body import BITS, BYTES, STORED, signed, unsigned, vector
from problem import Refused

SIGN = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
INEXACT = {"approx", "ftz", "full", "sat", "satfinite", "rz", "rm", "rp", "relu", "xorsign"}
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
           "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


def only(mods, *known):
    """Refuses a modifier that the translation does not know."""
    unknown = [m for m in mods if m not in known]
    if unknown:
        raise Refused(f".{unknown[0]} is not known here")


def exact(mods):
    """The gate, for results that are floats."""
    for m in mods:
        if m in INEXACT:
            raise Refused(f".{m} is not reproducible arithmetic")
    if "rn" not in mods:
        raise Refused("ptxas may contract a float operation without .rn")


def binary(b, o, mods, args):
    t = mods[-1]
    if t == "pred":
        return b.set(args[0], t, f"{b.value(args[1], t)} {SIGN[o]} {b.value(args[2], t)}")
    if t[0] == "f":
        if o not in ("add", "sub", "mul"):
            raise Refused(f"{o} of floats")
        exact(mods[:-1])
        only(mods[:-1], "rn")
        return b.set(args[0], t, f"{b.value(args[1], t)} {SIGN[o]} {b.value(args[2], t)}")
    only(mods[:-1])
    u = unsigned(t)
    return b.set(args[0], u, f"{b.value(args[1], u)} {SIGN[o]} {b.value(args[2], u)}")


def product(b, o, mods, args):
    """mul and mad of integers."""
    t = mods[-1]
    if t[0] == "f":
        if o == "mad":
            raise Refused("mad of floats rounds once or twice")
        return binary(b, o, mods, args)
    kind, = mods[:-1]
    if kind == "wide":
        w = WIDER[t]
        text = f"({w}){b.value(args[1], t)} * ({w}){b.value(args[2], t)}"
        if o == "mad":
            text = f"(u{BITS[w]})({text}) + {b.value(args[3], unsigned(w))}"
        return b.set(args[0], unsigned(w), text)
    u = unsigned(t)
    if kind == "hi":
        text = f"({u})ptx::high<{t}>({b.value(args[1], t)}, {b.value(args[2], t)})"
    elif kind == "lo":
        text = f"({'u32' if BITS[t] == 16 else u}){b.value(args[1], u)} * {b.value(args[2], u)}"
    else:
        raise Refused(f".{kind} is not known here")
    return b.set(args[0], u, text + (f" + {b.value(args[3], u)}" if o == "mad" else ""))


def quotient(b, o, mods, args):
    t = mods[-1]
    if t[0] == "f":
        if o != "div":
            raise Refused(f"{o} of floats")
        exact(mods[:-1])
        only(mods[:-1], "rn")
        return b.set(args[0], t, f"{b.value(args[1], t)} / {b.value(args[2], t)}")
    only(mods[:-1])
    at = b.unit.instruction("other")
    return b.set(args[0], t, f"ptx::{o}<{t}>({b.value(args[1], t)}, {b.value(args[2], t)}, {at})")


def extreme(b, o, mods, args):
    t = mods[-1]
    only(mods[:-1])
    x, y = b.value(args[1], t), b.value(args[2], t)
    if t[0] == "f":
        return b.set(args[0], t, f"ptx::f{o}<{t}>({x}, {y})")
    return b.set(args[0], t, f"{x} {'<' if o == 'min' else '>'} {y} ? {x} : {y}")


def fused(b, o, mods, args):
    raise Refused("fma rounds once: rules have no contraction")


def root(b, o, mods, args):
    """sqrt and rcp."""
    t = mods[-1]
    if mods[:-1] != ["rn"]:
        raise Refused("only .rn is reproducible arithmetic")
    return b.set(args[0], t, f"{'std::sqrt' if o == 'sqrt' else '1 /'} ({b.value(args[1], t)})")


def approximate(b, o, mods, args):
    raise Refused(f"{o} is not reproducible arithmetic")


def unary(b, o, mods, args):
    t = mods[-1]
    only(mods[:-1])
    if t == "pred":
        return b.set(args[0], t, f"!{b.value(args[1], t)}")
    if t[0] == "f":
        return b.set(args[0], t, f"-{b.value(args[1], t)}" if o == "neg" else f"std::fabs({b.value(args[1], t)})")
    x = b.value(args[1], unsigned(t))
    if o == "abs":
        return b.set(args[0], unsigned(t), f"{b.value(args[1], signed(t))} < 0 ? 0u - {x} : {x}")
    return b.set(args[0], unsigned(t), f"~{x}" if o == "not" else f"0u - {x}")


def shift(b, o, mods, args):
    """A shift by the width or more gives 0, or copies of the sign."""
    t = mods[-1]
    only(mods[:-1])
    s = t if o == "shr" and t[0] == "s" else unsigned(t)
    x, n = b.value(args[1], s), b.value(args[2], "u32")
    if args[2].isdigit() and int(args[2]) < BITS[t]:
        return b.set(args[0], s, f"{x} {'<<' if o == 'shl' else '>>'} {args[2]}")
    return b.set(args[0], s, f"ptx::{o}<{s}>({x}, {n})")


def bits(b, o, mods, args):
    t = mods[-1]
    if o in ("clz", "popc"):
        only(mods[:-1])
        return b.set(args[0], "u32", f"ptx::{o}({b.value(args[1], unsigned(t))})")
    if o == "brev":
        only(mods[:-1])
        return b.set(args[0], t, f"ptx::brev({b.value(args[1], unsigned(t))})")
    if o == "bfind" and t == "u32":
        only(mods[:-1], "shiftamt")
        return b.set(args[0], t, f"ptx::bfind({b.value(args[1], t)}, {str('shiftamt' in mods).lower()})")
    if o == "bmsk" and mods == ["clamp", "b32"]:
        return b.set(args[0], t, f"ptx::bmsk({b.value(args[1], t)}, {b.value(args[2], t)})")
    if o == "bfe" and mods[0] in ("u32", "u64"):
        begin, length = (b.value(a, "u32") for a in args[2:])
        return b.set(args[0], t, f"ptx::bfe<{t}>({b.value(args[1], t)}, {begin}, {length})")
    if o == "bfi" and mods in (["b32"], ["b64"]):
        values = [*(b.value(a, unsigned(t)) for a in args[1:3]), *(b.value(a, "u32") for a in args[3:])]
        return b.set(args[0], t, f"ptx::bfi<{unsigned(t)}>({', '.join(values)})")
    if o == "prmt" and mods == ["b32"]:
        return b.set(args[0], t, f"ptx::prmt({', '.join(b.value(a, t) for a in args[1:])})")
    if o == "lop3" and mods == ["b32"]:
        return b.set(args[0], t, f"ptx::lop3({', '.join(b.value(a, t) for a in args[1:])})")
    if o == "shf" and len(mods) == 3 and t == "b32":
        left, wrap = str(mods[0] == "l").lower(), str(mods[1] == "wrap").lower()
        return b.set(args[0], t, f"ptx::shf({left}, {wrap}, {', '.join(b.value(a, t) for a in args[1:])})")
    raise Refused("unknown instruction")


def select(b, o, mods, args):
    t = mods[-1]
    only(mods[:-1])
    return b.set(args[0], t, f"{b.value(args[3], 'pred')} ? {b.value(args[1], t)} : {b.value(args[2], t)}")


def compare(b, o, mods, args):
    t, how = mods[-1], mods[0]
    only(mods[1:-1], "and", "or", "xor")
    x, y = b.value(args[1], t), b.value(args[2], t)
    nan = f"std::isunordered({x}, {y})"
    if how in COMPARE:
        text = f"{x} {COMPARE[how]} {y}"
        if how == "ne" and t[0] == "f":
            text = f"({text} && !{nan})"
    elif how[:-1] in COMPARE and how[-1] == "u" and t[0] == "f":
        text = f"({x} {COMPARE[how[:-1]]} {y} || {nan})"
    elif how in ("nan", "num") and t[0] == "f":
        text = nan if how == "nan" else f"!{nan}"
    else:
        raise Refused(f".{how} is not known here")
    targets = args[0].split("|")
    negated = f"!({text})"
    if len(mods) > 2:
        more = f" {SIGN[mods[1]]} {b.value(args[3], 'pred')}"
        text, negated = f"({text}){more}", f"{negated}{more}"
    if len(targets) == 1:
        return b.set(args[0], "pred", text)
    both = b.set(targets[0], "pred", "yes") + b.set(targets[1], "pred", "no")
    return f"const bool yes = {text}, no = {negated}; {both}"


ROUND = {"rni": "nearbyint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def convert(b, o, mods, args):
    if any(m in INEXACT for m in mods):
        raise Refused("a conversion that saturates or flushes")
    if mods == ["f32", "f16"]:  # the kernels convert no other 16-bit floats by an instruction
        return b.set(args[0], "f32", f"ptx::from_f16({b.value(args[1], 'u16')})")
    to, of = mods[-2:]
    x, how = b.value(args[1], of), mods[:-2]
    if to[0] == "f":
        if of[0] == "f" and BITS[to] > BITS[of]:
            only(how)
        elif to == of:
            only(how, *ROUND)
            return b.set(args[0], to, f"std::{ROUND[how[0]]}({x})")
        elif how != ["rn"]:
            raise Refused("a conversion that rounds, and not by .rn")
        return b.set(args[0], to, f"({to}){x}")
    if of[0] == "f":
        only(how, *ROUND)
        return b.set(args[0], to, f"ptx::to_integer<{to}>(std::{ROUND[how[0]]}({x}))")
    only(how)
    return b.set(args[0], to, f"({to}){x}")


def move(b, o, mods, args):
    t, = mods
    if args[0][0] != "{" and args[1][0] != "{":
        return b.set(args[0], t, b.value(args[1], t))
    wide = args[1] if args[0][0] == "{" else args[0]
    parts = vector(args[0] if args[0][0] == "{" else args[1])
    part = f"u{BITS[t] // len(parts)}"
    if part not in STORED or BYTES[part] * len(parts) != BYTES[t]:
        raise Refused("a vector of this type")
    if args[0][0] == "{":
        return f"const {STORED[t]} whole = {b.value(wide, t)}; " + " ".join(
            b.set(p, part, f"({part})(whole >> {BITS[part] * i})") for i, p in enumerate(parts))
    shifted = (f"({STORED[t]}){b.value(p, part)} << {BITS[part] * i}" for i, p in enumerate(parts))
    return b.set(wide, t, " | ".join(shifted))


HANDLERS = {**dict.fromkeys(("add", "sub", "and", "or", "xor"), binary), **dict.fromkeys(("mul", "mad"), product),
            **dict.fromkeys(("div", "rem"), quotient), **dict.fromkeys(("min", "max"), extreme), "fma": fused,
            **dict.fromkeys(("sqrt", "rcp"), root),
            **dict.fromkeys(("rsqrt", "sin", "cos", "ex2", "lg2", "tanh"), approximate),
            **dict.fromkeys(("neg", "abs", "not"), unary), **dict.fromkeys(("shl", "shr"), shift),
            **dict.fromkeys(("clz", "popc", "brev", "bfind", "bmsk", "bfe", "bfi", "prmt", "lop3", "shf"), bits),
            "selp": select, "setp": compare, "cvt": convert, "mov": move}
