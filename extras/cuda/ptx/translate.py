#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Translates the PTX that nvcc wrote into C++ that runs on the emulation of CUDA: see extras/cuda/README.md.

    translate.py NAME SAID FILE.ptx OUT    writes OUT.0.cpp, OUT.1.cpp ... and removes other OUT.*.cpp

NAME: of the module, for C++; SAID: how reports call the file. Status 1 and one line: PTX that it does not take."""
import glob
import os
import sys

import module
import write
from problem import Refused

STATEMENTS = 12000  # of a part


def renew(path, text):
    """A file that would not change keeps its time."""
    if os.path.exists(path) and open(path).read() == text:
        return
    with open(path + ".new", "w") as f:
        f.write(text)
    os.replace(path + ".new", path)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__.split("\n\n")[1].strip())
    name, said, path, out = sys.argv[1:]
    try:
        texts = write.parts(module.read(open(path).read()), name, said, STATEMENTS)
    except Refused as why:
        sys.exit(f"{said}:{why}")
    made = [f"{out}.{i}.cpp" for i in range(len(texts))]
    for file, text in zip(made, texts):
        renew(file, text)
    for old in set(glob.glob(glob.escape(out) + ".*.cpp")) - set(made):
        os.remove(old)


main()
