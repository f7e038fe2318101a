#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turns a file of ids that people have on disk into a trace that bench measures: PREFIX.ids.npy, PREFIX.offsets.npy and
PREFIX.json, which says where the ids come from. Each of several columns gets three files: PREFIX.COLUMN.ids.npy, ...

pandas reads CSV and TSV in pieces, Arrow reads lines of JSON, Parquet and Feather, scikit-learn LibSVM, NumPy .npy and
.npz, and PyTorch, if it is there, .pt.
"""
import hashlib
import io
import json
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from program import Arguments, ResultError, say
from readers import PIECE, READERS, chosen

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

ID_LIMIT = 1 << 48  # as in harness/workload/trace.h
CRITEO = range(14, 40)  # the categorical columns: a label and 13 counts stand before them
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet",
           ".feather": "feather", ".arrow": "feather", ".npz": "npz", ".npy": "npy", ".pt": "pt", ".pth": "pt",
           ".svm": "libsvm", ".libsvm": "libsvm"}


def format_of(path):
    """By the name: its suffix, before one of compression."""
    parts = [s.lower() for s in Path(path).suffixes]
    if parts and parts[-1] in COMPRESSED:
        parts.pop()
    return FORMATS.get(parts[-1]) if parts else None


class Ids:
    """How the values of one column become row numbers: keep, modulo:N, hash:N or first-seen."""

    def __init__(self, how, hexadecimal=False):
        self.kind, _, count = how.partition(":")
        self.rows = int(count) if count.isdigit() else 0
        self.seen, self.hexadecimal = {}, hexadecimal
        counted = self.kind in ("modulo", "hash")
        if not counted and self.kind not in ("keep", "first-seen") or counted != (self.rows > 0):
            raise ResultError(f"IDS={how}: take keep, modulo:N, hash:N or first-seen")

    def numbers(self, values, where):
        """Integers of an Arrow array, as int64, or uint64 where they need it."""
        if pa.types.is_integer(values.type):
            wide = pa.uint64() if values.type == pa.uint64() else pa.int64()
            return values.cast(wide).to_numpy(zero_copy_only=False)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            for wide in (pa.int64(), pa.uint64()):
                try:
                    return values.cast(wide).to_numpy(zero_copy_only=False)
                except pa.ArrowInvalid:
                    pass
            wrong = pc.index(pc.match_substring_regex(values, r"^[+-]?[0-9]{1,20}$"), False).as_py()
            raise ResultError(
                f"{where(max(wrong, 0))}: {values[max(wrong, 0)].as_py()!r} is no integer id of 64 bits; IDS=hash:N "
                "or IDS=first-seen takes any text")
        raise ResultError(f"{where(0)}: {values.type} holds no ids; choose other COLUMNS")

    def texts(self, values):
        """(the distinct values as texts, for each value which of these it is)"""
        encoded = values.dictionary_encode()
        return encoded.dictionary.cast(pa.string()).to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)

    def rows_of(self, values, where):
        """The row numbers, int64. where(i) names the place of value i in the file."""
        if not len(values):
            return np.empty(0, np.int64)
        if self.hexadecimal:
            texts, which = self.texts(values)
            try:
                values = pa.array([int(t, 16) for t in texts], pa.int64()).take(pa.array(which))
            except ValueError:
                bad = next(i for i, t in enumerate(values.to_pylist()) if not re.fullmatch("[0-9a-fA-F]+", t))
                raise ResultError(f"{where(bad)}: {values[bad].as_py()!r} is no hexadecimal id") from None
        if self.kind == "modulo":
            return (self.numbers(values, where).astype(np.uint64) % np.uint64(self.rows)).astype(np.int64)
        if self.kind == "keep":
            ids = self.numbers(values, where)
            wrong = (ids < 0) | (ids >= ID_LIMIT)
            if wrong.any():
                first = int(wrong.argmax())
                raise ResultError(
                    f"{where(first)}: id {ids[first]} is outside of 0 to 2^48 - 1; IDS=modulo:N, hash:N or first-seen "
                    "makes row numbers of it")
            return ids.astype(np.int64)
        texts, which = self.texts(values)
        if self.kind == "hash":
            rows = pd.util.hash_array(np.array(texts, dtype=object), categorize=False) % np.uint64(self.rows)
        else:
            rows = [self.seen.setdefault(t, len(self.seen)) for t in texts]
        return np.asarray(rows, dtype=np.int64)[which]


class Npy:
    """A one-dimensional .npy of int64 that is written in pieces. It gets its name when it is whole."""

    def __init__(self, path):
        self.path, self.count = path, 0
        self.file = open(path + ".part", "w+b")
        self.begin = self.header()

    def header(self):
        text = io.BytesIO()  # NumPy leaves room in it for any length
        np.lib.format.write_array_header_1_0(text, {"descr": "<i8", "fortran_order": False, "shape": (self.count,)})
        self.file.write(text.getvalue())
        return len(text.getvalue())

    def write(self, values):
        self.file.write(np.ascontiguousarray(values, "<i8").data)
        self.count += len(values)

    def values(self):
        """What was written, mapped."""
        self.file.flush()
        return np.memmap(self.file, "<i8", "r", self.begin, (self.count,)) if self.count else np.empty(0, np.int64)

    def close(self):
        self.file.seek(0)
        if self.header() != self.begin:
            raise ResultError(f"{self.path}: this NumPy leaves no room for the length in a header")
        self.file.close()

    def drop(self):
        self.file.close()
        Path(self.path + ".part").unlink(missing_ok=True)


class Feature:
    """One column on its way into a trace."""

    def __init__(self, name, prefix, args, source):
        self.name, self.prefix, self.missing, self.split, self.source = name, prefix, args.missing, args.split, source
        self.map = Ids(args.ids, args.format == "criteo")
        self.ids, self.offsets = Npy(prefix + ".ids.npy"), Npy(prefix + ".offsets.npy")
        self.offsets.write([0])

    def add(self, column, first_row):
        """A piece of the column: a value per bag, or a list per bag."""
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        place = lambda row: f"{self.source}: row {first_row + row + 1}, column {self.name}"
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self.split and pa.types.is_string(column.type) or pa.types.is_large_string(column.type) and self.split:
            column = pc.split_pattern(column, self.split)
        values, parents = column, np.arange(len(column))
        lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        if any(is_list(column.type) for is_list in lists):
            values, parents = column.flatten(), pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        lacks = values.null_count or column.null_count
        if lacks and self.missing != "empty":
            first = lambda missing: pc.index(missing, True).as_py()
            row = first(column.is_null()) if column.null_count else int(parents[first(values.is_null())])
            raise ResultError(f"{place(row)}: no value; MISSING=empty makes an empty bag of it")
        if lacks:
            there = values.is_valid().to_numpy(zero_copy_only=False)
            values, parents = values.drop_null(), parents[there]
        self.ids.write(self.map.rows_of(values, lambda i: place(int(parents[i]))))
        lengths = np.bincount(parents, minlength=len(column))
        self.offsets.write(self.ids.count - len(values) + np.cumsum(lengths))

    def regroup(self, keys):
        """Bags of the ids with one key, in the order of the first of each key; keys are 0, 1, ... of every bag."""
        if self.ids.count != len(keys):
            raise ResultError(
                f"{self.source}: column {self.name} has not one id in each row, so BY cannot group its rows")
        order, lengths, old = np.argsort(keys, kind="stable"), np.bincount(keys), self.ids
        self.ids = Npy(old.path + ".grouped")
        values = old.values()
        for begin in range(0, len(order), PIECE):
            self.ids.write(values[order[begin:begin + PIECE]])
        old.drop()
        os.rename(self.ids.path + ".part", old.path + ".part")
        self.ids.path = old.path
        self.offsets.drop()
        self.offsets = Npy(self.prefix + ".offsets.npy")
        self.offsets.write(np.concatenate([[0], np.cumsum(lengths)]))

    def facts(self):
        """Counts for the sidecar, and rows: the size that a table needs."""
        ids = self.ids.values()
        pieces = [ids[b:b + PIECE] for b in range(0, len(ids), PIECE)]
        rows = max(self.map.rows, max((int(p.max()) + 1 for p in pieces), default=0))
        out = {"column": self.name, "bags": self.offsets.count - 1, "lookups": self.ids.count, "table": rows}
        if rows <= 1 << 26:  # a count of 8 bytes for each row
            count = np.zeros(rows, np.int64)
            for p in pieces:
                np.add.at(count, p, 1)
            out |= {
                "distinct": int(np.count_nonzero(count)),
                "hottest_share": round(float(count.max() / max(len(ids), 1)), 6)
            }
        return out

    def close(self):
        self.ids.close()
        self.offsets.close()

    def drop(self):
        self.ids.drop()
        self.offsets.drop()


def cut(tables, skip, most):
    """(number of the first row, table), without the first `skip` rows and with at most `most`."""
    at = 0
    for table in tables:
        begin, end = max(skip - at, 0), min(len(table), skip + most - at if most else len(table))
        if begin < end:
            yield at + begin, table.slice(begin, end - begin)
        at += len(table)
        if most and at >= skip + most:
            return


def wanted(path, names, args):
    """(columns that are ids, columns that group)"""
    columns = args.columns
    if not columns and args.format == "criteo":
        columns = [str(c) for c in CRITEO]
    every = args.format in ("npz", "npy", "pt", "libsvm") and not columns
    return names if every else chosen(path, names, columns), chosen(path, names, args.by) if args.by else []


def import_file(path, args, prefix):
    """Writes a trace for each column; returns the names of their ids, and what their sidecars say."""
    features, keys, by, rows, told = [], Ids("first-seen"), [], 0, 0
    try:
        with READERS[args.format](path, args) as (every, tables):
            names, groups = wanted(path, every, args)
            for name in names:
                clean = re.sub(r"[^\w.-]", "_", name)
                features.append(Feature(name, prefix if len(names) == 1 else f"{prefix}.{clean}", args, path))
            for first, table in cut(tables([*dict.fromkeys([*names, *groups])]), args.skip, args.rows):
                for f in features:
                    f.add(table[f.name], first)
                by += [keys.rows_of(table[g].combine_chunks().cast(pa.string()).fill_null(""), None) for g in groups]
                rows += len(table)
                if rows - told >= 4 * PIECE:
                    say(f"{rows} rows")
                    told = rows
        if not any(f.ids.count for f in features):
            raise ResultError(f"{path}: no ids in {rows} rows" + " after SKIP" * bool(args.skip))
        source = {
            "source": os.path.basename(path),
            "sha256": args.digest,
            "bytes": os.path.getsize(path),
            "format": args.format,
            "ids": args.ids,
            "rows": rows,
            "skipped": args.skip,
            "by": " ".join(groups)
        }
        sidecars = []
        for f in features:
            if by:
                f.regroup(np.concatenate(by))
            sidecars.append(source | f.facts())
            f.close()
        for f, sidecar in zip(features, sidecars):
            for part in (f.ids, f.offsets):
                os.rename(part.path + ".part", part.path)
            program.write_whole(f.prefix + ".json", json.dumps(sidecar) + "\n")
        return [f.ids.path for f in features], sidecars
    finally:
        for f in features:
            f.drop()


def main():
    parser = Arguments(__doc__)
    parser.add_argument("source", metavar="FROM", help="a file, compressed (.gz .bz2 .xz .zst) or not")
    parser.add_argument("--to", metavar="PREFIX", help="of the files to write; build/import/NAME")
    parser.add_argument("--format", choices=sorted({*FORMATS.values(), "criteo"}), help="by the suffix, if not given")
    parser.add_argument("--columns",
                        default="",
                        help="names, or numbers from 0, separated by blanks; each is a feature")
    parser.add_argument("--by", default="", help="a column: rows with the same value are one bag")
    parser.add_argument("--ids", default="keep", help="keep (the default), modulo:N, hash:N or first-seen")
    parser.add_argument("--missing",
                        choices=("refuse", "empty"),
                        help="what a missing value is: an error, or an empty bag")
    parser.add_argument("--separator", help="of columns; \\t is a tab")
    parser.add_argument("--split", help="of the ids in one cell of text, which are a bag")
    parser.add_argument("--header",
                        choices=("auto", "yes", "no"),
                        default="auto",
                        help="whether the first line has names")
    parser.add_argument("--offsets", help="the array of offsets beside ids, in .npz and .pt")
    parser.add_argument("--lengths", help="the array of lengths beside ids, [bags] or [features, bags]")
    parser.add_argument("--once",
                        action="store_true",
                        help="name the trace by what the file holds, import it if it is not there, "
                        "and print the names of the ids, joined by commas")
    parser.add_argument("--rows", type=int, default=0, help="most rows to read; all")
    parser.add_argument("--skip", type=int, default=0, help="rows to leave out first")
    args = parser.parse_args()
    args.format = args.format or format_of(args.source)
    if not args.format:
        known = " ".join(sorted({*FORMATS.values(), "criteo"}))
        raise ResultError(f"{args.source}: its name says no format; FORMAT= takes one of {known}")
    args.columns, args.by = args.columns.split(), args.by.split()
    if len(args.by) > 1:
        raise ResultError("BY takes one column")
    args.missing = args.missing or ("empty" if args.format == "criteo" else "refuse")
    args.separator = args.separator and args.separator.replace("\\t", "\t")
    prefix = args.to or os.path.join("build", "import", os.path.basename(args.source).split(".")[0])
    with open(args.source, "rb") as file:
        args.digest = hashlib.file_digest(file, "sha256").hexdigest()
    if args.once:
        prefix += "-" + hashlib.sha256(repr(sorted(vars(args).items())).encode()).hexdigest()[:12]
    if args.once and os.path.exists(prefix + ".list"):
        print(Path(prefix + ".list").read_text())
        return
    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    try:
        files, sidecars = import_file(args.source, args, prefix)
    except (pa.ArrowException, ValueError, KeyError, EOFError) as e:
        raise ResultError(f"{args.source}: {' '.join(str(e).split())}") from None
    if args.once:
        program.write_whole(prefix + ".list", ",".join(files))
        sys.stdout, told = sys.stderr, sys.stdout
        print(",".join(files), file=told)
    for s in sidecars:
        print(f"{s['column']}: {s['bags']} bags, {s['lookups']} lookups, table of {s['table']} rows" +
              (f", {s['distinct']} of them looked up" if "distinct" in s else ""))
    s = sidecars[0]
    print(f"{s['rows']} rows of {s['source']} as {s['format']}, ids by {s['ids']}. Measure them:\n"
          f"    make bench TRACE={','.join(files)}")


if __name__ == "__main__":
    program.run(main, "interrupted, nothing was written")
