#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turns a file of ids that people have on disk into a trace that bench measures: PREFIX.ids.npy, PREFIX.offsets.npy and
PREFIX.json, which says where the ids come from. Each of several columns gets three files: PREFIX.COLUMN.ids.npy, ...

pandas reads CSV and TSV, Arrow lines of JSON, Parquet and Feather, scikit-learn LibSVM, NumPy .npy and .npz, and
PyTorch .pt; all in pieces.
"""
import contextlib
import hashlib
import io
import json
import lzma
import os
import re
import resource
import shlex
import sys
import zipfile
import zlib
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
from program import Arguments, ResultError, say
from readers import COMPRESSED, PIECE, READERS, chosen

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

ID_LIMIT = 1 << 48  # as in harness/workload/trace.h
COUNTED = 1 << 26   # rows: statistics count lookups of each row of a table that is not larger
CRITEO = range(14, 40)  # the categorical columns: a label and 13 counts stand before them
FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet",
           ".feather": "feather", ".arrow": "feather", ".npz": "npz", ".npy": "npy", ".pt": "pt", ".pth": "pt",
           ".svm": "libsvm", ".libsvm": "libsvm"}


@contextlib.contextmanager
def one_line(what):
    """An error of a library or of the system takes one line, which begins with what()."""
    try:
        yield
    except OSError as e:
        raise ResultError(str(e) if e.filename else f"{what()}: {e.strerror or e}") from None
    except (pa.ArrowException, ValueError, KeyError, EOFError, OverflowError, MemoryError, lzma.LZMAError,
            zipfile.BadZipFile, zlib.error) as e:
        raise ResultError(f"{what()}: {' '.join(str(e).split()) or type(e).__name__}") from None


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
            fits = lambda t: re.fullmatch("-?[0-9]+", t) and -2**63 <= int(t) < 2**64
            texts = values.to_pylist()
            wrong = next((i for i, t in enumerate(texts) if not fits(t)), None)
            if wrong is None:  # each fits, but not all together
                wrong = next(i for i, t in enumerate(texts) if t.startswith("-"))
            raise ResultError(f"{where(wrong)}: {texts[wrong]!r} is no integer id of 64 bits; IDS=hash:N or "
                              "IDS=first-seen takes any text")
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
            wrong = pc.index(pc.match_substring_regex(values, "^[0-9a-fA-F]{1,15}$"), False).as_py()
            if wrong >= 0:
                raise ResultError(f"{where(wrong)}: {values[wrong].as_py()!r} is no hexadecimal id")
            texts, which = self.texts(values)
            values = pa.array([int(t, 16) for t in texts], pa.int64()).take(pa.array(which))
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
        with one_line(lambda: self.path):
            self.file.write(np.ascontiguousarray(values, "<i8").data)
        self.count += len(values)

    def pieces(self):
        """What was written."""
        self.file.seek(self.begin)
        while data := self.file.read(8 * PIECE):
            yield np.frombuffer(data, "<i8")

    def mapped(self):
        self.file.flush()
        return np.memmap(self.file, "<i8", "r", self.begin, (self.count,)) if self.count else np.empty(0, np.int64)

    def close(self):
        self.file.seek(0)
        if self.header() != self.begin:
            raise ResultError(f"{self.path}: this NumPy leaves no room for the length in a header")
        self.file.close()

    def drop(self):
        with contextlib.suppress(OSError):  # of a full disk
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
        values = old.mapped()
        for begin in range(0, len(order), PIECE):
            self.ids.write(values[order[begin:begin + PIECE]])
        old.drop()
        os.rename(self.ids.path + ".part", old.path + ".part")
        self.ids.path = old.path
        self.offsets.drop()
        self.offsets = Npy(self.prefix + ".offsets.npy")
        self.offsets.write(np.concatenate([[0], np.cumsum(lengths)]))

    def facts(self):
        """Counts for the sidecar, named as embfuse stats names them; table: the rows that a table needs."""
        lookups, bags = self.ids.count, self.offsets.count - 1
        rows = max(self.map.rows, max((int(p.max()) + 1 for p in self.ids.pieces()), default=0))
        out = {"column": self.name, "bags": bags, "lookups": lookups, "table": rows}
        empty = longest = end = 0
        for p in self.offsets.pieces():
            lengths = np.diff(p, prepend=end)
            empty, longest, end = empty + int(np.count_nonzero(lengths == 0)), max(longest, int(lengths.max())), p[-1]
        out |= {"mean_bag": lookups / bags, "longest_bag": longest, "empty_bags": empty - 1}  # offset 0 is no bag
        if rows > COUNTED or not lookups:
            return out
        count = np.zeros(rows, np.uint32 if lookups < 1 << 32 else np.int64)
        for p in self.ids.pieces():
            np.add.at(count, p, 1)
        count.sort()
        distinct = rows - int(np.searchsorted(count, 1))
        share = lambda most: round(int(count[-most:].sum(dtype=np.int64)) / lookups, 6)
        return out | {"distinct": distinct, "distinct_share": round(distinct / lookups, 6), "hottest_share": share(1),
                      "top_10_share": share(10), "top_1_percent_share": share((distinct + 99) // 100)}

    def parts(self):
        """The files that get their names when all are whole."""
        return self.ids.path, self.offsets.path, self.prefix + ".json"

    def close(self, sidecar):
        self.ids.close()
        self.offsets.close()
        program.write_whole(self.prefix + ".json.part", json.dumps(sidecar) + "\n")

    def drop(self):
        self.ids.drop()
        self.offsets.drop()
        Path(self.prefix + ".json.part").unlink(missing_ok=True)


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


def understood(args, rows, names, ignored):
    """What was made of the file, in one line."""
    kind, _, count = args.ids.partition(":")
    header = {"yes": ", names in line 1", "no": ", no line of names"}.get(args.header, "")
    return (f"{rows:,} rows of {os.path.basename(args.source)} as {args.format}{header}: {len(names)} "
            f"feature{'s' * (len(names) != 1)}, {ignored} column{'s' * (ignored != 1)} ignored, "
            f"bags by {args.by[0] if args.by else 'row'}, ids by {kind}{f' {int(count):,}' if count else ''}")


def import_file(path, args, prefix):
    """Writes a trace for each column; returns the names of their ids, their sidecars, and what was understood."""
    features, keys, by, rows, told = [], Ids("first-seen"), [], 0, 0
    place = lambda: f"{path}: after row {args.skip + rows}" if rows else path
    try:
        with one_line(place), READERS[args.format](path, args) as (every, tables):
            names, groups = wanted(path, every, args)
            clean = [re.sub(r"[^\w.-]", "_", name) for name in names]
            if len(set(clean)) < len(clean):
                clean = [f"{i}.{name}" for i, name in enumerate(clean)]
            for name, short in zip(names, clean):
                features.append(Feature(name, prefix if len(names) == 1 else f"{prefix}.{short}", args, path))
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
        with one_line(lambda: prefix):
            by = np.concatenate(by) if by else None
            for f in features:
                if by is not None:
                    f.regroup(by)
                sidecars.append(source | f.facts())
                f.close(sidecars[-1])
            for f in features:
                for part in f.parts():
                    os.rename(part + ".part", part)
        ignored = len({*every} - {*names, *groups})
        return [f.ids.path for f in features], sidecars, understood(args, rows, names, ignored)
    finally:
        for f in features:
            f.drop()


def unescaped(text):
    """With \\t as a tab, and \\x01 as that character."""
    return text and re.sub(r"\\t|\\x[0-9a-fA-F]{2}", lambda m: m[0].encode().decode("unicode_escape"), text)


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
    parser.add_argument("--separator", help="of columns; \\t is a tab, \\x01 that character")
    parser.add_argument("--split", help="of the ids in one cell of text, which are a bag; \\t and \\x20, too")
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
    args.separator, args.split = unescaped(args.separator), unescaped(args.split)
    name = re.sub(r"[^\w-]", "_", os.path.basename(args.source).split(".")[0])  # a comma would end it in TRACE
    prefix = args.to or os.path.join("build", "import", name)
    if "," in prefix:
        raise ResultError(f"TO={prefix}: a comma separates traces; choose a name without")
    args.folder = os.path.dirname(prefix) or "."
    with open(args.source, "rb") as file:
        args.digest = hashlib.file_digest(file, "sha256").hexdigest()
    if args.once:
        prefix += "-" + hashlib.sha256(repr(sorted(vars(args).items())).encode()).hexdigest()[:12]
    if args.once and os.path.exists(prefix + ".list"):
        print(Path(prefix + ".list").read_text())
        return
    os.makedirs(args.folder, exist_ok=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a feature has two open files
    files, sidecars, line = import_file(args.source, args, prefix)
    if args.once:
        program.write_whole(prefix + ".list", ",".join(files))
        sys.stdout, told = sys.stderr, sys.stdout
        print(",".join(files), file=told)
    for s in sidecars:
        print(f"{s['column']}: {s['bags']} bags, {s['lookups']} lookups, table of {s['table']} rows" +
              (f", {s['distinct']} of them looked up" if "distinct" in s else ""))
    print(f"{line}. Measure them:\n    make bench TRACE={shlex.quote(','.join(files))}")


if __name__ == "__main__":
    program.run(main, "interrupted, nothing was written")
