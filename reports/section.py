#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts generated text between the comments `<!-- table NAME -->` and `<!-- end NAME -->` of a page.

As a program, section.py FILE NAME reads the text from standard input.
"""
import sys
from pathlib import Path

import program
from program import ResultError, write_whole


def update(path, section, text):
    """Replaces the text between the section's comments; the file is rewritten in one step."""
    begin, end = f"<!-- table {section} -->", f"<!-- end {section} -->"
    try:
        page = Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise ResultError(f"{path}: {e.strerror}") from None
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ResultError(f"{path}: needs one line '{begin}' and after it one '{end}'")
    head, tail = page[:page.index(begin) + len(begin)], page[page.index(end):]
    write_whole(path, f"{head}\n{text.strip()}\n{tail}")


def add_arguments(parser, section):
    """The arguments of a report that can put its text into a page."""
    parser.add_argument("--update", metavar="FILE", help="write Markdown into a section of this file")
    parser.add_argument("--section", metavar="NAME", default=section)


def print_or_update(args, text):
    if args.update:
        update(args.update, args.section, text)
        print(f"{args.update}: section {args.section} from {args.result}")
    else:
        print(text)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: section.py FILE NAME < TEXT")
    update(sys.argv[1], sys.argv[2], sys.stdin.read())


if __name__ == "__main__":
    program.run(main)
