# SPDX-License-Identifier: MIT
"""Writes the C++ of a module in parts of about equal size, which compile side by side."""
import re

import arithmetic
import memory
import threads
from body import Body, STORED, quoted
from problem import Refused

HANDLERS = {**arithmetic.HANDLERS, **memory.HANDLERS, **threads.HANDLERS}
SLOT_BITS = 20  # each array in shared memory has this many addresses of its own: extras/cuda/ptx/memory.cpp


def identifier(symbol):
    return re.sub(r"\W", lambda m: f"_{ord(m[0]):x}_", symbol)


class Unit:
    """One C++ file."""

    def __init__(self, module, ptx):
        self.module, self.ptx = module, ptx
        self.slots = {name: i for i, name in enumerate(module.shared)}
        self.table, self.statement, self.kernel = [], None, None
        self.declared, self.code = set(), []

    def shared_address(self, name):
        return (self.slots[name] + 1) << SLOT_BITS

    def function_name(self, function):
        if function.is_entry:
            return "k_" + identifier(function.symbol)
        self.declared.add(function.symbol)
        return "f_" + identifier(function.symbol)

    def instruction(self, kind, space="generic"):
        """Describes the running instruction for reports and the observer; returns its C++ name."""
        s = self.statement
        file, line = self.module.files.get(s.source[0]), s.source[1]
        source = f"{quoted(file)}, {line}" if file else "nullptr, 0"
        site = "nullptr"
        if kind in ("barrier", "collective"):
            site = quoted(f"{file}:{line}, {self.ptx}" if file else self.ptx)
        self.table.append(f"{{kernel_{self.kernel}, {quoted(s.op)}, PTX, {s.line}, {source}, {site}, "
                          f"ptx::Kind::{kind}, ptx::Space::{space}}}")
        return f"I[{len(self.table) - 1}]"

    def translate(self, number, function):
        """Appends the function's C++; returns its Body."""
        self.kernel = number
        body, lines = Body(function, self.module, self), []
        for s in function.statements:
            lines.append(self.one(body, s))
        self.code.append(f"{head_of(self, function)} {{\n{opening(body)}" + "\n".join(lines) + "\n}\n")
        return body

    def one(self, body, s):
        if s.op == "label":
            return threads.label(s.args[0]) + ":;"
        self.statement = s
        name, *mods = s.op.split(".")
        try:
            handler = HANDLERS.get(name)
            if not handler:
                raise Refused("unknown instruction")
            text = handler(body, name, mods, list(s.args))
        except Refused as why:
            raise Refused(f"{s.line}: {why}: {said(s)}") from None
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            raise Refused(f"{s.line}: unknown form: {said(s)}") from None
        guard = f"if ({body.value(s.guard, 'pred')}) " if s.guard else ""
        return f"{guard}{{ {text} }}"

    def text(self, kernels):
        """kernels: {number: symbol} of the functions in it."""
        names = "".join(f"static const char kernel_{n}[] = {quoted(s)};\n" for n, s in kernels.items())
        heads = "".join(f"{head_of(self, f)};\n" for f in self.module.functions if f.symbol in self.declared)
        table = ",\n".join(self.table) or "{}"
        return (f"static const char PTX[] = {quoted(self.ptx)};\n{names}"
                f"static const ptx::Instruction I[] = {{\n{table}}};\n{heads}" + "\n".join(self.code))


def said(s):
    guard = f"@{s.guard} " if s.guard else ""
    return f"{guard}{s.op} {', '.join(s.args)}".strip()


def head_of(unit, function):
    if function.is_entry:
        return f"void {unit.function_name(function)}(char *param)"
    names = [f"result_{i}" for i in range(len(function.results))] + \
            [f"p_{i}" for i in range(len(function.parameters))]
    return f"void f_{identifier(function.symbol)}({', '.join(['ptx::Frame *frame'] + [f'char *{n}' for n in names])})"


def opening(body):
    """Declarations: registers, variables of calls, arrays in local memory."""
    f, text = body.function, "    char *p; (void)p;\n"
    for kind in sorted(set(body.declared.values())):
        names = [n for n, k in body.declared.items() if k == kind]
        text += f"    {kind} {', '.join(names)};\n"
    for name, size in f.buffers.items():
        text += f"    alignas(16) char {body.variable(name)}[{size}];\n"
    if f.is_entry:
        text += (f"    ptx::Frame parameters = {{param, {bytes_of(f.parameters)}, true, nullptr}}, "
                 "*frame = &parameters;\n    (void)frame;\n")
    for i, v in enumerate(f.local):
        name = body.variable(v.name)
        text += (f"    alignas(16) char {name}[{v.size}];\n"
                 f"    ptx::Frame local_{i} = {{ptx::poisoned({name}, {v.size}), {v.size}, false, frame}};\n"
                 f"    frame = &local_{i};\n")
    return text


def bytes_of(parameters):
    return max((p.offset + p.size for p in parameters), default=0)


def weight(function):
    return len(function.statements) + 1


def dealt(functions, parts):
    """The numbers of the functions in each part: the largest first, always to the lightest part."""
    result, weights = [[] for _ in range(parts)], [0] * parts
    for number in sorted(range(len(functions)), key=lambda n: -weight(functions[n])):
        lightest = weights.index(min(weights))
        result[lightest].append(number)
        weights[lightest] += weight(functions[number])
    return [sorted(r) for r in result if r]


def reached(symbol, bodies, seen):
    """The functions that a kernel calls, with itself."""
    if symbol not in seen:
        seen.add(symbol)
        for called in bodies[symbol].calls:
            reached(called, bodies, seen)
    return seen


def kernel_row(module, bodies, unit, n, f):
    """(declarations, row of the table) of a kernel."""
    used = set().union(*(bodies[s].shared for s in reached(f.symbol, bodies, set())))
    arrays = [module.shared[name] for name in module.shared if name in used]
    shared = ", ".join(f"{{{unit.slots[a.name] + 1}, {a.size or 0}, {a.align}, {str(a.size is None).lower()}}}"
                       for a in arrays)
    parameters = ", ".join(f"{{{p.offset}, {p.size}}}" for p in f.parameters)
    name = "k_" + identifier(f.symbol)
    return (f"void {name}(char *);\nstatic const ptx::Parameter p_{n}[] = {{{parameters or '{}'}}};\n"
            f"static const ptx::Array a_{n}[] = {{{shared or '{}'}}};\n",
            f"    {{{quoted(f.symbol)}, {name}, p_{n}, {len(f.parameters)}, {bytes_of(f.parameters)}, a_{n}, "
            f"{len(arrays)}, {module.arch}}}")


def kernel_table(module, bodies, name, unit):
    entries = [f for f in module.functions if f.is_entry]
    made = [kernel_row(module, bodies, unit, n, f) for n, f in enumerate(entries)]
    rows = ",\n".join(row for _, row in made)
    return ("".join(text for text, _ in made) + f"static const ptx::Translated all[] = {{\n{rows or '{}'}}};\n}}\n"
            f"/* __cudaRegisterFunction of the object with the host's half. */\nextern \"C\" void ptx_register_{name}"
            f"(void **, const void *stub, char *, const char *symbol) {{\n"
            f"    ptx::add(stub, symbol, module_{name}::all, {len(entries)});\n}}\n")


def parts(module, name, ptx, size):
    """The texts of the C++ files."""
    count = max(1, -(-sum(map(weight, module.functions)) // size))
    bodies, texts = {}, []
    for numbers in dealt(module.functions, count) or [[]]:
        unit = Unit(module, ptx)
        for n in numbers:
            function = module.functions[n]
            bodies[function.symbol] = unit.translate(n, function)
        texts.append(unit.text({n: module.functions[n].symbol for n in numbers}) + "}\n")
    head = f"/* Made of {ptx} */\n#include \"extras/cuda/ptx/instructions.h\"\nnamespace module_{name} {{\n"
    texts.append(kernel_table(module, bodies, name, Unit(module, ptx)))
    return [head + t for t in texts]
