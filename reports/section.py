#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts generated text between the comments `<!-- table NAME -->` and `<!-- end NAME -->` of a page.

As a program, section.py FILE NAME reads the text from standard input.
"""
import sys

from results import ResultError, write_whole


def update(path, section, text):
    """Replaces the text between the section's comments; the file is rewritten in one step."""
    begin, end = f"<!-- table {section} -->", f"<!-- end {section} -->"
    try:
        with open(path, encoding="utf-8") as file:
            page = file.read()
    except OSError as e:
        raise ResultError(f"{path}: {e.strerror}") from None
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ResultError(f"{path}: needs one line '{begin}' and after it one '{end}'")
    head, tail = page[:page.index(begin) + len(begin)], page[page.index(end):]
    write_whole(path, f"{head}\n{text.strip()}\n{tail}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: section.py FILE NAME < TEXT")
    try:
        update(sys.argv[1], sys.argv[2], sys.stdin.read())
    except ResultError as e:
        sys.exit(f"section.py: {e}")
