#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bugs planted in the model of L2 and in its replay, one at a time: tests/cuda/test_counts_l2.c notices each of them, and in
tests/cuda/test_counts_warps.c those in the grouping into requests of warps."""
import os
import subprocess
import sys
import tempfile

import tap

FOLDER = "emulation/counts"
MODELS, WARPS = ("devices.c", "l2.c", "replay.c"), ("warps.cpp",)
BUGS = {
    "the newest line leaves": ("l2.c", "set[i].used < oldest->used", "set[i].used > oldest->used"),
    "a use does not make a line young": ("l2.c", "if (r->keep == KEEP_NORMAL) x->used", "if (is_new) x->used"),
    "evict-first is kept": ("l2.c", "if (r->keep == KEEP_NORMAL) x->used", "x->used"),
    "a store reads its sector": ("l2.c", "if (kind != REQUEST_STORE) {", "{"),
    "a line is filled whole": ("l2.c", "    x->have[s] = ALL_BYTES;\n", "    memset(x->have, 0xff, sizeof x->have);\n"),
    "written sectors are lost": ("l2.c", "        l2->n.written++;\n", ""),
    "gaps are not read": ("l2.c", "if (x->have[s] != ALL_BYTES) l2->n.read++;", ""),
    "late prefetches are timely": ("l2.c", "> l2->late)", "> 0)"),
    "a prefetch that left is forgotten": ("l2.c", "    l2->lost[sector] = 1;\n", ""),
    "blocks run one after another": ("replay.c", "i < resident;", "i < 1;"),
    "a barrier holds nobody": ("replay.c", "w->barriers <= w->block->barriers && ", ""),
    "a collective ends no turn": ("replay.c", "if (t->loads && !load)", "if (0)"),
    "a hit ends a turn": ("replay.c", "l2_counted(p->l2).misses > misses", "1"),
    "registers do not limit blocks": ("devices.c", "blocks = least(blocks, SM_REGISTERS", "(void)least(blocks, SM_REGISTERS"),
    "times are not counted": ("warps.cpp", "return x.second++;", "return 0;"),
    "collectives do not join lanes": ("warps.cpp", "lane.since_collective.of.clear();", ""),
    "sectors are lines": ("warps.cpp", "const uint32_t number = uint32_t(at / SECTOR);",
                          "const uint32_t number = uint32_t(at / LINE);"),
    "the same word conflicts": ("warps.cpp", "words.erase(", "if (false) words.erase("),
}


shared = tempfile.TemporaryDirectory()


def compiled(source, folder, text=None):
    """The object of a source, or of that text in its place."""
    made = os.path.join(folder, os.path.basename(source) + ".o")
    if not os.path.exists(made):
        compiler = ["g++", "-std=c++17", "-x", "c++"] if source.endswith(".cpp") else ["gcc", "-std=gnu11", "-x", "c"]
        subprocess.run([*compiler, "-O1", "-w", "-I", tap.ROOT, "-c", "-o", made, source if text is None else "-"],
                       input=text, text=True, check=True, cwd=tap.ROOT)
    return made


def status(folder, test, sources, bug=None):
    """The exit status of a test of these sources, one of them with a bug."""
    objects = [compiled(test, shared.name)]
    for name in sources:
        path, text = os.path.join(FOLDER, name), None
        if bug and bug[0] == name:
            with open(os.path.join(tap.ROOT, path), encoding="utf-8") as file:
                text = file.read()
            assert text.count(bug[1]) == 1, f"{name} has {text.count(bug[1])} times: {bug[1]}"
            text = text.replace(bug[1], bug[2])
        objects.append(compiled(path, folder if text else shared.name, text))
    program = os.path.join(folder, "test")
    subprocess.run(["g++", *objects, "-lcmocka", "-lm", "-o", program], check=True)
    return subprocess.run([program], capture_output=True, timeout=600, check=False).returncode


def build(folder, bug=None):
    if bug and bug[0] in WARPS:
        return status(folder, "tests/cuda/test_counts_warps.c", WARPS, bug)
    return status(folder, "tests/cuda/test_counts_l2.c", MODELS, bug)


def test_without_a_bug(folder):
    assert build(folder) == 0


def planted(bug):
    def test(folder):
        assert build(folder, bug) != 0, "no test noticed it"
    return test


for what, planted_bug in BUGS.items():
    globals()["test_" + what.replace(" ", "_")] = planted(planted_bug)

sys.exit(tap.run(dict(globals()), "counts_planted"))
