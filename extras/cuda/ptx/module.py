# SPDX-License-Identifier: MIT
"""Reads the PTX that nvcc writes: variables and functions, with statements that know their lines."""
import re
from dataclasses import dataclass, field

from problem import Refused

# Bits by type; in a name only the letter tells how they are read.
BITS = {"pred": 8, **{f"{k}{n}": n for k in "bus" for n in (8, 16, 32, 64)}, "f32": 32, "f64": 64}
BYTES = {name: bits // 8 for name, bits in BITS.items()}


@dataclass
class Variable:
    """A parameter, or an array in shared or local memory; size None: the launch says it."""
    name: str
    size: int
    align: int
    offset: int = 0


@dataclass(slots=True)
class Statement:
    line: int
    source: tuple  # (number of the file, line) of .loc
    guard: str     # "%p1", "!%p1" or ""
    op: str        # "ld.global.f32"; "label": then args has its name
    args: list


@dataclass
class Function:
    symbol: str
    line: int
    is_entry: bool
    parameters: list
    results: list
    statements: list = field(default_factory=list)
    registers: dict = field(default_factory=dict)  # name: type
    families: dict = field(default_factory=dict)   # "%r" of .reg .b32 %r<9>: type
    buffers: dict = field(default_factory=dict)    # .param variables of calls: size
    local: list = field(default_factory=list)      # arrays in local memory
    targets: dict = field(default_factory=dict)    # lists of labels for brx.idx


@dataclass
class Module:
    functions: list = field(default_factory=list)
    shared: dict = field(default_factory=dict)
    data: set = field(default_factory=set)  # variables in global and constant memory
    files: dict = field(default_factory=dict)
    arch: int = 0


VARIABLE = re.compile(r"(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.(?:global|shared|const|local)\s+)?"
                      r"(?:\.align\s+\d+\s+)?)?([\w$%]+)\s*(?:\[(\d*)\])?")
HEAD = re.compile(r"(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\b\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*"
                  r"(?:\((.*)\))?\s*(.*)", re.S)
# Directives between the parameters of an entry and its body do not change results.
DIRECTIVES = re.compile(r"\.(maxntid|minnctapersm|maxnreg|noreturn|reqntid|blocksareclusters)\b[\s\d,]*")
ARGUMENT = re.compile(r",(?![^{\[(]*[}\])])")
LABEL = re.compile(r"([\w$]+):(?!:)")


def variable(text):
    found = VARIABLE.match(text.strip())
    if not found or found[2] not in BYTES:
        raise Refused(f"unknown variable {text.strip()}")
    size = BYTES[found[2]]
    align = int(found[1] or size)
    return Variable(found[3], None if found[4] == "" else size * int(found[4] or 1), align)


def laid_out(text):
    """The variables of a parameter list, with offsets as on the device."""
    result, at = [], 0
    for part in filter(str.strip, (text or "").split(",")):
        part = part.strip()
        if not part.startswith(".param"):
            raise Refused(f"parameter {part}")
        v = variable(part[len(".param"):])
        v.offset = at = (at + v.align - 1) // v.align * v.align
        at += v.size
        result.append(v)
    return result


def pieces(lines):
    """(line, text) of each statement, label, brace and directive. .loc, .file and .pragma end with their line."""
    text, start, skipping = "", 0, False
    for number, line in enumerate(lines, 1):
        line = line.split("//", 1)[0].strip()
        if skipping:  # a section of debug information
            skipping = line != "}"
            continue
        if not line:
            continue
        if not text:
            start = number
            if line[0] == "." and line.startswith((".loc", ".file", ".version", ".target", ".address_size")):
                yield number, line
                continue
            if line.startswith(".section"):
                skipping = True
                continue
        text = f"{text} {line}" if text else line
        while text:
            if text[0] in "{}":
                yield start, text[0]
                text = text[1:].lstrip()
                continue
            label = LABEL.match(text)
            if label:
                yield start, label[0]
                text = text[label.end():].lstrip()
                continue
            head = text.startswith((".visible", ".weak", ".extern .func", ".entry", ".func"))
            cut = body_of(text) if head else text.find(";")
            if cut < 0:
                break
            yield start, text[:cut].strip()
            text = text[cut + (text[cut] == ";"):].lstrip()


def body_of(text):
    """The index at which the head of a function ends: its body, or the semicolon of a declaration; -1: neither."""
    found = re.search(r"[{;]", text)
    return found.start() if found else -1


class Reader:
    def __init__(self):
        self.module, self.function, self.source, self.line = Module(), None, (0, 0), 0
        self.scopes, self.scoped, self.label = [], 0, None

    def read(self, text):
        for self.line, piece in pieces(text.split("\n")):
            self.take(piece)
        if self.scopes:
            raise Refused("the last function has no end")

    def take(self, piece):
        if piece[0] == ".":
            self.directive(piece)
        elif piece == "{":
            if not self.scopes:
                self.module.functions.append(self.function)
            self.scopes.append({})
        elif piece == "}":
            self.scopes.pop()
        elif piece[-1] == ":":
            self.label = piece[:-1]
            self.function.statements.append(Statement(self.line, self.source, "", "label", [piece[:-1]]))
        else:
            self.instruction(piece)

    def directive(self, piece):
        word = re.match(r"\.\w+", piece)[0]
        if word == ".loc":
            _, file, line = piece.split(None, 3)[:3]
            if line != "0":
                self.source = int(file), int(line)
        elif word == ".file":
            _, number, name = piece.split(None, 2)
            self.module.files[int(number)] = name.strip('"').split("/./")[-1]
        elif word == ".target":
            self.module.arch = int(re.search(r"sm_(\d+)", piece)[1])
        elif word in (".version", ".address_size", ".pragma"):
            pass
        elif word == ".reg":
            self.registers(piece)
        elif word == ".branchtargets":
            names = piece.split(None, 1)[1].split(",")
            self.function.targets[self.label] = [t.strip() for t in names]
        elif self.scopes:
            self.local_variable(word, piece)
        else:
            self.global_variable(piece)

    def global_variable(self, piece):
        head = HEAD.match(piece)
        if head:
            self.head(*head.groups())
            return
        found = re.match(r"(?:\.(?:visible|weak|extern|common)\s+)*\.(shared|global|const)\s+(.*)", piece, re.S)
        if not found:
            raise Refused(f"directive {piece.split()[0]}")
        if found[1] == "shared":
            v = variable(found[2])
            self.module.shared[v.name] = v
        else:
            self.module.data.add(VARIABLE.match(found[2])[3])

    def head(self, kind, results, symbol, parameters, rest):
        rest = DIRECTIVES.sub("", rest).strip()
        if rest:
            raise Refused(f"{symbol}: {rest}")
        self.function = Function(symbol, self.line, kind == "entry", laid_out(parameters), laid_out(results))
        self.source = 0, 0

    def local_variable(self, word, piece):
        v = variable(piece[len(word):])
        if word == ".shared":
            self.module.shared[v.name] = v
        elif word == ".local":
            self.function.local.append(v)
        elif word == ".param":
            self.function.buffers[v.name] = max(v.size, self.function.buffers.get(v.name, 0))
        else:
            raise Refused(f"directive {word}")

    def registers(self, piece):
        kind, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)", piece, re.S).groups()
        if kind not in BITS:
            raise Refused(f"registers of type .{kind}")
        for name in names.split(","):
            name = name.strip()
            if name.endswith(">"):
                self.function.families[name.split("<")[0]] = kind
                continue
            if len(self.scopes) > 1:  # a block has registers of its own
                self.scoped += 1
                self.scopes[-1][name] = name = f"{name}.{self.scoped}"
            self.function.registers[name] = kind

    def instruction(self, piece):
        guard = ""
        if piece[0] == "@":
            guard, piece = piece[1:].split(None, 1)
        op, *rest = piece.split(None, 1)
        args = [a.strip() for a in ARGUMENT.split(rest[0])] if rest else []
        if len(self.scopes) > 1:
            guard, args = self.rename(guard), [self.rename(a) for a in args]
        self.function.statements.append(Statement(self.line, self.source, guard, op, args))

    def rename(self, text):
        for scope in reversed(self.scopes):
            for name in scope:
                text = re.sub(rf"(?<![\w$%.]){re.escape(name)}(?![\w$.])", scope[name], text)
        return text


def read(text):
    """The module, or Refused with the line."""
    reader = Reader()
    try:
        reader.read(text)
    except Refused as why:
        raise Refused(f"{reader.line}: {why}") from None
    return reader.module
