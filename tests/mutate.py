#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mutants of C and CUDA code, one changed line each.

Operators rely on the blanks that clang-format leaves around a binary operator, and nowhere else.
"""
import collections
import re

BETWEEN = " ==> "  # the line before and after

# Every operator is a pattern and its replacements.
OTHERS = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
          "==": "!=", "!=": "==", "&&": "||", "||": "&&", "&": "|", "|": "&", "^": "|", "<<": ">>",
          ">>": "<<",
          "+=": ("-=", "="), "-=": ("+=", "="), "*=": ("/=", "="), "/=": ("*=", "="), "|=": ("&=", "="),
          "&=": ("|=", "=")}
BINARY = "|".join(sorted(map(re.escape, OTHERS), key=len, reverse=True))
PLACE = r"(?:[\w>.*()&-]|\[[^\]]*\])+"  # what can be assigned to
OPERATORS = [
    (rf"(?<=\s)({BINARY})(?=\s|$)", lambda m: OTHERS[m[1]]),
    (r"(?<![\w.])(?<!p-)(\d+)(?![\w.])",
     lambda m: [str(int(m[1]) + k) for k in (1, -1) if int(m[1]) + k >= 0]),
    (r"(?<![\w.])(\d+\.\d+f?)(?![\w.])", lambda m: f"({m[1]} + {m[1]} + 1)"),
    (r"\+\+|--(?=\W)", lambda m: {"++": "--", "--": "++"}[m[0]]),
    (r"\b(?:fabs|sqrt)f?\(", lambda m: "("),
    (r"\bmin(64)?(?=\()|\bmax(64)?(?=\()", lambda m: m[0].translate(str.maketrans("inax", "axin"))),
    (r"\btrue\b|\bfalse\b", lambda m: {"true": "false", "false": "true"}[m[0]]),
    (r"(?<=[\s(&|])!(?=[\w(])", lambda m: ""),
    (r"\[\w*[a-z]\w*\]", lambda m: "[0]"),
    (r"\((\w+), (\w+)\)", lambda m: f"({m[2]}, {m[1]})"),
    (r"\? ([^?:]+) : ([^?:;,]+)(?=[;,)])", lambda m: f"? {m[2]} : {m[1]}"),
    (r"< ([\w>.-]+);", lambda m: f"< {m[1]} - 1;"),
    (r"\b(if|while) (\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))",
     lambda m: [f"{m[1]} ({k})" for k in ((0, 1) if m[1] == "if" else (0,))]),
    (rf"^\s+(?:{PLACE} (?:[-+*/|&^]|<<|>>)?= [^;]*|(?!return|sizeof){PLACE}\(.*\)|\S*(?:\+\+|--)|"
     r"break|continue);(?=$| \\)", lambda m: ";"),
]
MASKED = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\])'|^[ \t]*#[^\n]*", re.S | re.M)

Mutant = collections.namedtuple("Mutant", "path number before after")


def mutants_of(path, text):
    """Every mutant of a file, once. Comments, strings and preprocessor lines are left alone."""
    masked = MASKED.sub(lambda m: re.sub(r"[^\n]", "\0", m[0]), text)
    for number, (line, code) in enumerate(zip(text.split("\n"), masked.split("\n")), 1):
        seen = {line}
        for pattern, replacements in OPERATORS:
            for m in re.finditer(pattern, code):
                found = replacements(m)
                for new in (found,) if isinstance(found, str) else found:
                    after = line[:m.start()] + new + line[m.end():]
                    if "\0" not in new and after not in seen:
                        seen.add(after)
                        yield Mutant(path, number, line, after)
