# SPDX-License-Identifier: MIT
"""The machine code of a kernel, from nvdisasm's text to the structs of machine.h.

What is not in RULES, or has a modifier or operand that its rule does not name, becomes UNKNOWN: executing it ends the
run with its text."""
import ctypes
import re
import struct

from instruction import operands_of

from operands import INVERTED, MINUS, NOT, PREDICATE, PT, RZ, URZ, VALUE, Operand, operand, predicate

GLOBAL, GENERIC, SHARED, LOCAL = range(4)
OF_WARP, OF_BLOCK = 16, 17

# Names; operation of machine.h; the most predicates that it writes; modifiers; those that change nothing here. A
# uniform instruction, U..., has the rule without its U.
HINTS = "E CONSTANT STRONG WEAK GPU SYS SM CTA EF EL LU NA PRIVATE LTC64B LTC128B LTC256B"
RULES = f"""
NOP YIELD NANOSLEEP CCTL CCTLL UBLKPF ENDCOLLECTIVE PREEXIT ACQBULK ; NOP ; 0 ; * ;
MEMBAR ERRBAR CGAERRBAR DEPBAR LDGDEPBAR FENCE ; NOP ; 0 ; * ;
MOV CS2R ; MOV ; 0 ; ; 32
S2R ; S2R ; 0 ; ;
LDC ; LOAD ; 0 ; U8 S8 U16 S16 64 ;
IMAD ; IMAD ; 1 ; U32 X HI WIDE ; IADD MOV SHL
IADD3 VIADD IADD ; IADD3 ; 2 ; X ;
IABS ; IABS ; 0 ; ;
VIMNMX IMNMX VIMNMX3 ; IMNMX ; 0 ; U32 ; S32
VIADDMNMX ; VIADDMNMX ; 0 ; U32 ; S32
FMNMX ; FMNMX ; 0 ; FTZ ;
LEA ; LEA ; 1 ; HI X SX32 ;
SHF ; SHF ; 0 ; L R W U32 S32 U64 S64 HI ;
LOP3 ; LOP3 ; 1 ; PAND ; LUT
PLOP3 ; PLOP3 ; 2 ; ; LUT
SEL FSEL ; SEL ; 0 ; ;
ISETP ; ISETP ; 2 ; U32 EX AND OR XOR ; S32
FSETP ; FSETP ; 2 ; FTZ AND OR XOR ;
PRMT ; PRMT ; 0 ; ;
BREV ; BREV ; 0 ; ;
POPC ; POPC ; 0 ; ;
FLO ; FLO ; 0 ; S32 SH ; U32
I2F I2FP ; I2F ; 0 ; U32 U64 S64 RP RM RZ ; S32 F32
F2I ; F2I ; 0 ; U32 U64 S64 TRUNC FLOOR CEIL FTZ ; NTZ S32
MUFU ; MUFU ; 0 ; RCP RSQ SQRT EX2 LG2 ;
FADD ; FADD ; 0 ; FTZ ;
FMUL ; FMUL ; 0 ; FTZ ;
FFMA ; FFMA ; 0 ; FTZ RP RM RZ ;
FCHK ; FCHK ; 1 ; ;
HADD2 ; HADD2 ; 0 ; ; F32
F2FP ; F2FP ; 0 ; BF16 F16 ; F32 PACK_AB
HFMA2 ; MOV ; 0 ; ; MMA
P2R ; P2R ; 0 ; ;
R2P ; R2P ; 0 ; ;
R2UR ; R2UR ; 1 ; OR ;
VOTE ; VOTE ; 1 ; ANY ALL EQ ;
MATCH ; MATCH ; 0 ; ANY ;
REDUX ; REDUX ; 0 ; SUM OR XOR MIN MAX S32 ; AND
SHFL ; SHFL ; 1 ; IDX UP DOWN BFLY ;
LDG LD LDS LDL ; LOAD ; 1 ; U8 S8 U16 S16 64 128 ; {HINTS}
STG ST STS STL ; STORE ; 0 ; U8 U16 64 128 ; {HINTS}
ATOMG ATOM RED REDG ATOMS ; ATOMIC ; 1 ; ADD MIN MAX AND OR XOR EXCH CAS INC S32 64 F32 ; {HINTS} RN FTZ POPC 32
BRA ; BRA ; 0 ; DIV U ANY ;
BSSY BSYNC BREAK ; ; 0 ; ; RECONVERGENT RELIABLE
WARPSYNC ; WARPSYNC ; 0 ; ; ALL COLLECTIVE
BAR ; BAR ; 0 ; ; SYNC DEFER_BLOCKING
CALL ; CALL ; 0 ; ; REL ABS NOINC
RET ; RET ; 0 ; ; REL ABS NODEC
EXIT ; EXIT ; 0 ; ;
"""
SPACES = {"": GLOBAL, "G": GLOBAL, "S": SHARED, "L": LOCAL}
COMPARE = {"F": 0, "LT": 1, "EQ": 2, "LE": 3, "GT": 4, "NE": 5, "GE": 6, "NUM": 7, "NAN": 8, "T": 15}
COMPARE.update({name + "U": code | 8 for name, code in COMPARE.items() if len(name) == 2})
FLOATS = {"FADD", "FMUL", "FFMA", "FSEL", "FSETP", "FMNMX", "MUFU", "FCHK", "HADD2", "F2FP", "F2I"}
# In the order of special_register() in lanes.cpp.
SPECIAL = ["", "SR_TID.X", "SR_CTAID.X", "SR_LANEID", "SR_SWINHI", "SR_EQMASK", "SR_LTMASK", "SR_LEMASK", "SR_GTMASK",
           "SR_GEMASK"]
ZEROS = {"SR_TID.Y", "SR_TID.Z", "SR_CTAID.Y", "SR_CTAID.Z", "SR_CgaCtaId", "SRZ"}
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^([.$\w][^\s:]*):\s*$")
LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')


class Unknown(Exception):
    pass


class Instruction(ctypes.Structure):
    _fields_ = [("op", ctypes.c_uint16), ("compare", ctypes.c_uint8), ("guard", ctypes.c_uint8),
                ("out", ctypes.c_uint8 * 2), ("into", ctypes.c_uint8 * 3), ("extra", ctypes.c_uint32),
                ("target", ctypes.c_int32), ("modifiers", ctypes.c_uint64), ("to", Operand),
                ("source", Operand * 4)]


def rules():
    """{name of an instruction: (operation, predicates written, modifiers, modifiers without effect)}"""
    result = {}
    for line in RULES.strip().splitlines():
        names, operation, outs, modifiers, ignored = (part.strip() for part in line.split(";"))
        for name in names.split():
            result[name] = operation or name, int(outs), set(modifiers.split()), set(ignored.split())
    return result


class Code:
    """The instructions of a function in nvdisasm's text. text, names, chains: by number; a chain is the (file, line) of
    an instruction and of the calls through which it was inlined."""

    def __init__(self, text, operations, modifiers):
        self.rules, self.operations, self.modifiers = rules(), operations, modifiers
        self.texts, self.names, self.chains, self.labels = [], [], [], {}
        self._read(text)
        self.decoded = (Instruction * len(self.texts))(*map(self._decode, self.texts))

    def _read(self, text):
        chain, fresh = (), True
        for row in text.splitlines():
            if found := LINE.match(row):
                chain = (() if fresh else chain) + ((found[1].split("/./")[-1], int(found[2])),)
                fresh = False
            elif found := LABEL.match(row):
                self.labels[found[1]] = len(self.texts)
            elif found := INSTRUCTION.match(row):
                if int(found[1], 16) != 16 * len(self.texts):
                    raise Unknown(f"instructions are missing before {row.strip()}")
                self.texts.append((found[2], found[3], found[4]))
                self.names.append(found[3])
                self.chains.append(chain)
                fresh = True

    def place(self, number):
        guard, name, operands = self.texts[number]
        text = f"{'@' + guard + ' ' if guard else ''}{name} {operands}"
        where = ", ".join("{}:{}".format(*line) for line in self.chains[number][:1])
        return f"{16 * number:#06x} {text}{' of ' + where if where else ''}"

    def _decode(self, row):
        i = Instruction(guard=PT, extra=0)
        for o in (i.to, *i.source):
            o.reg, o.second, o.scale = RZ, URZ, 1
        i.out[:], i.into[:] = (PT, PT), (PT | INVERTED,) * 3
        try:
            self._fill(i, *row)
        except (Unknown, KeyError, ValueError, IndexError, TypeError):
            i.op = self.operations["UNKNOWN"]
        return i

    def _fill(self, i, guard, name, text):
        base, *modifiers = name.split(".")
        if base not in self.rules and base.startswith("U") and base[1:] in self.rules:
            base = base[1:]
        base = {"S2UR": "S2R", "VOTEU": "VOTE"}.get(base, base)
        operation, outs, known, ignored = self.rules[base]
        i.op = self.operations[operation]
        if guard:
            i.guard = predicate(guard)
        if "*" in known:
            return
        if base in ("ISETP", "FSETP"):
            i.compare = COMPARE[modifiers.pop(0)]
        if not set(modifiers) <= known | ignored:
            raise Unknown
        i.modifiers = sum(1 << self.modifiers[m] for m in set(modifiers) & known)
        args = [a.replace(".reuse", "") for a in operands_of(text)]
        special = getattr(self, "_" + operation.lower(), None)
        if special:
            args = special(i, base, modifiers, args)
        self._operands(i, base, outs, args)

    def _operands(self, i, base, outs, args):
        """Predicates that it writes, its register, predicates that it writes, sources and predicates mixed."""
        written = 0
        while args and written < outs and PREDICATE.match(args[0]):
            i.out[written], written = predicate(args.pop(0)), written + 1
        if args and base not in ("ISETP", "FSETP", "FCHK", "PLOP3", "R2P", "RED", "REDG") and not (
                base.startswith("ST") or i.op >= self.operations["BRA"]) and VALUE.match(args[0]):
            i.to = operand(args.pop(0), False)
            while args and written < outs and PREDICATE.match(args[0]):
                i.out[written], written = predicate(args.pop(0)), written + 1
        sources = [a for a in args if not PREDICATE.match(a)]
        for k, a in enumerate(a for a in args if PREDICATE.match(a)):
            i.into[k] = predicate(a)
        for k, a in enumerate(sources):
            i.source[k] = operand(a, base in FLOATS)
            if base == "IADD3" and i.source[k].flags & MINUS:  # so that x - 0 carries
                i.source[k].flags ^= MINUS | NOT
                i.extra += 1

    # --- operations with operands of their own
    def _mov(self, i, base, modifiers, args):
        if base == "HFMA2":  # a move of two constants
            if args[1:3] != ["-RZ", "RZ"]:
                raise Unknown
            high, low = (struct.unpack("<H", struct.pack("<e", float(a)))[0] for a in args[3:])
            return [args[0], hex(high << 16 | low)]
        if base == "CS2R":
            if args[1] != "SRZ":
                raise Unknown
            i.op = self.operations["IMAD"]
            i.modifiers = 0 if "32" in modifiers else 1 << self.modifiers["WIDE"]
            return args[:1]
        return args

    def _s2r(self, i, base, modifiers, args):
        i.extra = 0 if args[1] in ZEROS else SPECIAL.index(args[1])
        return args[:1]

    def _load(self, i, base, modifiers, args):
        i.extra = GENERIC if base == "LD" else SPACES.get(base[2:], GLOBAL)
        return args

    def _store(self, i, base, modifiers, args):
        i.extra = GENERIC if base == "ST" else SPACES[base[2:]]
        return args

    def _atomic(self, i, base, modifiers, args):
        i.extra = GENERIC if base == "ATOM" else SHARED if base == "ATOMS" else GLOBAL
        return args

    def _lea(self, i, base, modifiers, args):
        shift = max(k for k, a in enumerate(args) if not PREDICATE.match(a))
        i.extra = int(args.pop(shift), 16)
        if "SX32" not in modifiers and "HI" in modifiers and len([a for a in args if not PREDICATE.match(a)]) != 4:
            raise Unknown
        return args

    def _lop3(self, i, base, modifiers, args):
        table = max(k for k, a in enumerate(args) if a.startswith("0x"))
        i.extra = int(args.pop(table), 16)
        return args

    def _plop3(self, i, base, modifiers, args):
        i.extra = int(args[5], 16) | int(args[6], 16) << 8
        return args[:5]

    def _p2r(self, i, base, modifiers, args):
        i.extra = int(args[3], 16)
        return [args[0], args[2]]

    def _r2p(self, i, base, modifiers, args):
        i.extra = int(args[2], 16)
        return [args[1]]

    def _bra(self, i, base, modifiers, args):
        i.target = self._label(args.pop())
        return args or ["PT"]

    def _call(self, i, base, modifiers, args):
        i.target = self._label(args.pop())
        return args or ["PT"]

    def _ret(self, i, base, modifiers, args):
        return [args[0].split()[0]]

    def _label(self, text):
        return self.labels[re.match(r"`\((.*)\)$", text)[1]]

    def _bssy(self, i, base, modifiers, args):
        found = [a for a in args if re.match(r"B\d+$", a)]
        i.extra = int(found[0][1:])
        if any(PREDICATE.match(a) for a in args):
            raise Unknown
        return []

    _bsync = _break = _bssy

    def _warpsync(self, i, base, modifiers, args):
        i.extra = OF_WARP
        return ["0xffffffff"] if "ALL" in modifiers else args[:1]

    def _bar(self, i, base, modifiers, args):
        if len(args) > 1 or "SYNC" not in modifiers:
            raise Unknown
        i.extra = OF_BLOCK
        return []
