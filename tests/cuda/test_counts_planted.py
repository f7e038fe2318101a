#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bugs planted in the model of L2 and in its replay, one at a time: tests/cuda/test_counts_l2.c notices each of them, and in
tests/cuda/test_counts_warps.c those in the grouping into requests of warps."""
import os
import subprocess
import sys

import tap

FOLDER = "emulation/counts"
SOURCES = {"counts_l2": ("devices.c", "l2.c", "replay.c"), "counts_warps": ("warps.cpp",)}
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


COMPILERS = {".cpp": ["g++", "-std=c++17", "-x", "c++"], ".c": ["gcc", "-std=gnu11", "-x", "c"]}


def compiled(source, made, text=None):
    """The object of a source, or of that text in its place."""
    subprocess.run([*COMPILERS[os.path.splitext(source)[1]], "-O1", "-w", "-I", tap.ROOT, "-c", "-o", made,
                    source if text is None else "-"], input=text, text=True, check=True, cwd=tap.ROOT)
    return made


def status(folder, good, test, bug=None):
    """The exit status of a test of the models, or of the warps; with a bug in one of them."""
    objects = [good[name] for name in (test, "main_" + test, *SOURCES[test])]
    if bug:
        with open(os.path.join(tap.ROOT, FOLDER, bug[0]), encoding="utf-8") as file:
            text = file.read()
        assert text.count(bug[1]) == 1, f"{bug[0]} has {text.count(bug[1])} times: {bug[1]}"
        objects.remove(good[bug[0]])
        objects.append(compiled(bug[0], os.path.join(folder, "bug.o"), text.replace(bug[1], bug[2])))
    program = os.path.join(folder, "test")
    subprocess.run(["g++", *objects, "-lcmocka", "-o", program], check=True)
    return subprocess.run([program], capture_output=True, timeout=600, check=False).returncode


def test_every_bug_is_noticed(folder):
    good = {}
    for test, sources in SOURCES.items():
        good[test] = compiled(f"tests/cuda/test_{test}.c", os.path.join(folder, test + ".o"))
        good["main_" + test] = compiled("main.c", os.path.join(folder, test + "_main.o"),
                                        f"int tests_of_{test}(void); int main(void) {{ return tests_of_{test}(); }}")
        good |= {name: compiled(f"{FOLDER}/{name}", os.path.join(folder, name + ".o")) for name in sources}
        assert status(folder, good, test) == 0, f"{test} without a bug"
    missed = [what for what, bug in BUGS.items()
              if status(folder, good, next(t for t, names in SOURCES.items() if bug[0] in names), bug) == 0]
    assert not missed, f"no test noticed: {', '.join(missed)}"


sys.exit(tap.run(dict(globals()), "counts_planted"))
