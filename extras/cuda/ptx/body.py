# SPDX-License-Identifier: MIT
"""Operands of one function's instructions as C++ expressions, and what the function's code needs besides."""
import re

from module import BITS, BYTES
from problem import Refused

# The C++ types of registers: integers have no sign.
STORED = {**{t: f"u{BITS[t]}" for t in BITS}, "pred": "pred", "f32": "f32", "f64": "f64"}
SPECIAL = {f"%{n}.{a}": f"::{c}.{a}" for n, c in
           (("tid", "threadIdx"), ("ctaid", "blockIdx"), ("ntid", "blockDim"), ("nctaid", "gridDim")) for a in "xyz"}
SPECIAL.update({"%laneid": "ptx::lane()", "%lanemask_eq": "(1u << ptx::lane())",
                "%lanemask_lt": "((1u << ptx::lane()) - 1u)", "%lanemask_le": "((2u << ptx::lane()) - 1u)",
                "%lanemask_ge": "(~0u << ptx::lane())", "%lanemask_gt": "(~1u << ptx::lane())"})
INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?")
FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")
ADDRESS = re.compile(r"\[\s*([\w$%.]+)\s*(?:\+\s*(-?\d+))?\s*\]")


def unsigned(t):
    return t if t[0] == "f" else "u" + t[1:]


def signed(t):
    return "s" + t[1:]


def vector(text):
    """The operands of "{%r1, %r2}", or the one operand."""
    return [x.strip() for x in text.strip("{} ").split(",")]


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Body:
    def __init__(self, function, module, unit):
        self.function, self.module, self.unit = function, module, unit
        self.names, self.declared = {}, {}  # operand: C++ name; C++ name: type
        self.shared = set()                 # arrays that it names
        self.calls = set()
        self.parameters = {p.name: p for p in function.parameters + function.results}

    # --- registers

    def type_of(self, register):
        f = self.function
        t = f.registers.get(register) or f.families.get(register.rstrip("0123456789"))
        if not t:
            raise Refused(f"unknown register {register}")
        return t

    def register(self, text):
        name = self.names.get(text)
        if name is None:
            kind = self.type_of(text)
            name = self.names[text] = "r_" + re.sub(r"\W", "_", text.lstrip("%"))
            self.declared[name] = STORED[kind]
        return name

    def is_register(self, text):
        f = self.function
        return text in self.names or text in f.registers or (
            text[0] == "%" and text.rstrip("0123456789") in f.families)

    # --- values

    def value(self, text, t):
        """The operand, read as type t."""
        if text[0] == "!":
            return "!" + self.value(text[1:], t)
        if self.is_register(text):
            return self.read(text, t)
        if text in SPECIAL:
            return f"(({STORED[t]}){SPECIAL[text]})"
        if INTEGER.fullmatch(text):
            return self.integer(int(text.rstrip("U"), 0), t)
        literal = FLOAT.fullmatch(text)
        if literal:
            return self.float(literal, t)
        return self.address_of(text, t)

    def read(self, text, t):
        have, want = STORED[self.type_of(text)], t if t[0] != "b" else "u" + t[1:]
        name = self.register(text)
        if have == want:
            return name
        if (have == "pred") != (want == "pred"):
            raise Refused(f"{text} as .{t}")
        if BYTES[have] < BYTES[want]:
            raise Refused(f"{text} is narrower than .{t}")
        if have[0] == "f" or want[0] == "f":
            if BYTES[have] != BYTES[want]:
                raise Refused(f"{text} as .{t}")
            name = f"ptx::bits<{want if want[0] == 'f' else unsigned(want)}>({name})"
            return name if want[0] != "s" else f"(({want}){name})"
        return f"(({want}){name})"

    @staticmethod
    def integer(number, t):
        if t == "pred":
            return "true" if number else "false"
        if t[0] == "f":
            raise Refused("an integer for a float")
        number &= (1 << BITS[t]) - 1
        if t[0] == "s" and number >> (BITS[t] - 1):
            number -= 1 << BITS[t]
            return f"({t})({number + 1}ll - 1)"
        return f"({t if t[0] == 's' else STORED[t]}){number}" + ("ull" if BITS[t] == 64 else "u")

    @staticmethod
    def float(literal, t):
        bits, wide = literal[1], literal[2]
        if BITS[t] != (32 if bits else 64):
            raise Refused(f"{literal[0]} for .{t}")
        number = f"0x{bits}u" if bits else f"0x{wide}ull"
        return f"ptx::bits<{t}>(({'u32' if bits else 'u64'}){number})" if t[0] == "f" else number

    def address_of(self, text, t):
        """The address of a variable, as mov and cvta take it."""
        found = re.fullmatch(r"([A-Za-z_$][\w$]*)(?:\+(\d+))?", text)
        if not found:
            raise Refused(f"operand {text}")
        name, offset = found[1], int(found[2] or 0)
        if name in self.module.shared:
            self.shared.add(name)
            return f"({STORED[t]}){self.unit.shared_address(name) + offset}u"
        if BITS[t] == 64:
            if name in self.parameters or any(v.name == name for v in self.function.local):
                return f"(u64)(uintptr_t)({self.variable(name)} + {offset})"
        raise Refused(f"the address of {name}" if name in self.module.data else f"operand {text}")

    def variable(self, name):
        """The C++ name of a parameter, an array in local memory or a buffer of a call."""
        f = self.function
        if name in self.parameters:
            p = self.parameters[name]
            if f.is_entry:
                return f"(param + {p.offset})"
            return f"p_{f.parameters.index(p)}" if p in f.parameters else f"result_{f.results.index(p)}"
        return "v_" + re.sub(r"\W", "_", name)

    # --- results

    def set(self, target, t, expression):
        """The expression, of type t, into a register, which may be wider: then a signed t extends its sign."""
        if target == "_":
            return f"(void)({expression});"
        have = STORED[self.type_of(target)]
        name = self.register(target)
        t = "u" + t[1:] if t[0] == "b" else t
        if (have == "pred") != (t == "pred") or BYTES[have] < BYTES[t]:
            raise Refused(f".{t} into {target}")
        if have == t or have == "pred":
            return f"{name} = {expression};"
        if have[0] == "f" or t[0] == "f":
            if BYTES[have] != BYTES[t]:
                raise Refused(f".{t} into {target}")
            return f"{name} = ptx::bits<{have}>(({t})({expression}));"
        return f"{name} = ({have})({t})({expression});"

    def address(self, text):
        """(operand, offset) of "[%rd1+8]"."""
        found = ADDRESS.fullmatch(text)
        if not found:
            raise Refused(f"address {text}")
        return found[1], int(found[2] or 0)
