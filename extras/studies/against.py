#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures this checkout and another revision of it in turns, sample by sample: OUT/bench-old.json and
OUT/bench-new.json, for compare.py. That is the one comparison which a noisy machine allows.

Exit status: 0 fine, 1 usage or environment (the revision is unknown or does not build), 2 a wrong result.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
import revisions
import turns
from parts import write
from program import Arguments, say
from results import load

NAMES = ("old", "new")


def main():
    parser = Arguments(__doc__, allow_abbrev=False)
    parser.add_argument("revision", help="such as HEAD~1, main or a hash")
    parser.add_argument("--bench", required=True, metavar="PROGRAM", help="bench of this checkout")
    parser.add_argument("--embfuse", required=True, metavar="PROGRAM", help="embfuse of this checkout")
    parser.add_argument("--builds", default="build/against", help="folder for the other revision")
    turns.add_arguments(parser, "against")
    args = parser.parse_args()
    count, new = turns.count_of(args, 9), turns.Build("new", args.bench, args.embfuse)
    options = turns.options_of(args, new)  # a wrong option fails before the work
    old = turns.Build("old", revisions.build(args.revision, args.builds, args.make).bench)
    path = lambda name: os.path.join(args.out, f"bench-{name}.json")
    os.makedirs(args.out, exist_ok=True)
    turns.measure([old, new], count, options, lambda parts: [write(path(n), parts[n]) for n in NAMES])
    say("wrote " + " and ".join(map(path, NAMES)))
    return 2 if any(load(path(n)).failures() for n in NAMES) else 0


if __name__ == "__main__":
    program.run(main, "interrupted; bench-old.json and bench-new.json have the finished rounds, if any")
