# SPDX-License-Identifier: MIT
"""Readers of files of ids. Each is a context manager that yields the names of all columns, and a function from wanted
columns to an iterator of Arrow tables. None holds a whole file in memory."""
import contextlib
import functools
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa

from program import ResultError

PIECE = 250_000   # rows, or ids of lists, that are in memory at once
BLOCK = 16 << 20  # bytes of cells or ids that are in memory at once; of lines a quarter
SEPARATORS = {"csv": ",", "tsv": "\t", "criteo": "\t"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def opened(path):
    """The bytes of a file, decompressed as its name says. Arrow finds out if .gz, .bz2 or .zst is cut short; the module
    zstandard does not."""
    return lzma.open(path) if path.endswith(".xz") else pa.input_stream(path, compression="detect")


def chosen(path, names, wanted):
    """The names of columns that the user wants: names, or numbers from 0."""
    if not wanted:
        if len(names) == 1:
            return list(names)
        raise ResultError(
            f"{path}: which columns are ids? COLUMNS=\"...\" chooses some of: {' '.join(map(str, names))}")
    out = []
    for w in wanted:
        if w in names:
            out.append(w)
        elif w.isdigit() and int(w) < len(names):
            out.append(names[int(w)])
        else:
            raise ResultError(f"{path}: has no column {w}; its columns: {' '.join(map(str, names))}")
    return out


@contextlib.contextmanager
def separated(path, args):
    """CSV and its like; every column is text. The first line is a header if it has no ids where ids are integers."""
    separator = args.separator or SEPARATORS[args.format]
    how = {"sep": separator, "dtype": str, "na_values": [""], "keep_default_na": False, "header": None,
           "engine": "c" if len(separator) == 1 else "python"}
    with opened(path) as file:
        cells = ["" if pd.isna(x) else x for x in pd.read_csv(file, nrows=1, **how).iloc[0]]
    named = [w for w in [*args.columns, *args.by] if not w.isdigit()]
    at = [int(w) for w in args.columns if w.isdigit() and int(w) < len(cells)] or range(len(cells))
    ids = [i for c in at for i in (cells[c].split(args.split) if args.split else [cells[c]])]
    integers = args.ids.startswith(("keep", "modulo")) and args.format != "criteo"
    if args.header == "auto":
        args.header = "yes" if named or integers and not all(re.fullmatch(r"[+-]?\d*", i) for i in ids) else "no"
    header = args.header == "yes"
    names = cells if header else [str(i) for i in range(len(cells))]

    def tables(used):
        rows = 1000
        with contextlib.suppress(StopIteration):  # which is how a reader of pandas ends
            while True:
                frame = reader.get_chunk(rows)
                size = int(frame.memory_usage(index=False, deep=True).sum())
                rows = min(PIECE, max(1, BLOCK * len(frame) // max(size, 1)))
                yield pa.Table.from_pandas(frame.set_axis(names, axis=1)[used], preserve_index=False)

    with opened(path) as file:
        try:
            reader = pd.read_csv(file, skiprows=int(header), iterator=True, **how)
        except pd.errors.EmptyDataError:
            raise ResultError(f"{path}: no ids in 0 rows; there are only names") from None
        with reader:
            yield names, tables


@contextlib.contextmanager
def json_lines(path, _):
    """The first lines say which columns there are, and of which types. Arrow's own reader of pieces keeps them all."""
    import pyarrow.json

    def parsed(lines, **how):
        return pyarrow.json.read_json(pa.BufferReader(b"".join(lines)),
                                      pyarrow.json.ReadOptions(block_size=sum(map(len, lines)) + 1, use_threads=False),
                                      pyarrow.json.ParseOptions(**how))

    def tables(used):
        schema = pa.schema([first.schema.field(name) for name in used])
        yield first.select(used)
        while lines := file.readlines(BLOCK // 4):
            yield parsed(lines, explicit_schema=schema, unexpected_field_behavior="ignore").select(used)

    with opened(path) as stream, io.BufferedReader(stream) as file:
        first = parsed(file.readlines(BLOCK // 4))
        yield first.schema.names, tables


@contextlib.contextmanager
def parquet(path, _):
    import pyarrow.parquet
    with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20) as file:
        groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
        values = sum(max(g.column(c).num_values for c in range(g.num_columns)) for g in groups)
        rows = max(1, PIECE * file.metadata.num_rows // max(values, 1))  # lists have more values than rows
        # A reader of several row groups keeps what it has read of each.
        yield file.schema_arrow.names, lambda used: (pa.Table.from_batches([b]) for g in range(len(groups))
                                                     for b in file.iter_batches(rows, row_groups=[g], columns=used))


@contextlib.contextmanager
def feather(path, _):
    with pa.OSFile(path) as file, pa.ipc.open_file(file) as stream:
        yield stream.schema.names, lambda used: (pa.Table.from_batches([stream.get_batch(i)]).select(used)
                                                 for i in range(stream.num_record_batches))


@contextlib.contextmanager
def libsvm(path, _):
    from sklearn.datasets import load_svmlight_file

    def parsed(lines):
        matrix = load_svmlight_file(io.BytesIO(b"".join(lines)), zero_based=True)[0]
        bags = pa.LargeListArray.from_arrays(pa.array(matrix.indptr, pa.int64()), pa.array(matrix.indices, pa.int64()))
        return pa.table({"features": bags})

    def first_bad(lines):
        """(the number of the first line that cannot be parsed, why), by halving."""
        good, bad, why = 0, len(lines), ""
        while good < bad:
            middle = (good + bad) // 2
            try:
                parsed(lines[good:middle + 1])
                good = middle + 1
            except (ValueError, OverflowError) as e:
                bad, why = middle, e
        return good, why

    def tables(_):
        at = 0
        while lines := file.readlines(BLOCK // 4):
            try:
                yield parsed(lines)
            except (ValueError, OverflowError):
                line, why = first_bad(lines)
                raise ResultError(f"{path}: line {at + line + 1}: {why}") from None
            at += len(lines)

    with opened(path) as stream, io.BufferedReader(stream) as file:
        yield ["features"], tables


@contextlib.contextmanager
def arrays(path, args):
    """Arrays of NumPy or PyTorch: columns of a matrix, or flat ids with OFFSETS or LENGTHS."""
    with contextlib.ExitStack() as stack:
        found = {n: a for n, a in load_arrays(path, args, stack).items() if a.ndim in (1, 2)}
        bounds = args.offsets or args.lengths
        if bounds:
            names = [n for n in found if n not in (args.offsets, args.lengths)]
            names = chosen(path, names, [c for c in args.columns if c in names])
            if bounds not in found or len(names) != 1:
                raise ResultError(
                    f"{path}: OFFSETS or LENGTHS names an array beside one array of ids; arrays: {' '.join(found)}")
            args.columns = [c for c in args.columns if c not in found]  # which of the features
            yield split_bags(path, found[names[0]], found[bounds], bool(args.lengths))
            return
        matrices, flat = {n for n, a in found.items() if a.ndim == 2}, {}
        for name, array in found.items():  # a column of a matrix is a feature
            flat |= {f"{name}.{i}": array[:, i] for i in range(array.shape[1])} if name in matrices else {name: array}
        args.columns = [
            c for w in args.columns for c in (flat if w in matrices else [w]) if c == w or c.startswith(w + ".")
        ]
        lengths = {n: len(flat[n]) for n in args.columns or flat if n in flat}
        if not flat or len(set(lengths.values())) > 1:
            raise ResultError(f"{path}: columns are arrays of one length and of one or two dimensions; these are "
                              f"{', '.join(f'{n} {k}' for n, k in lengths.items()) or 'none'}")
        yield list(flat), lambda used: (pa.table({n: np.ascontiguousarray(flat[n][b:b + PIECE]) for n in used})
                                        for b in range(0, len(flat[used[0]]), PIECE))


READERS = {"jsonl": json_lines, "parquet": parquet, "feather": feather, "libsvm": libsvm}
READERS |= dict.fromkeys(SEPARATORS, separated) | dict.fromkeys(("npz", "npy", "pt"), arrays)


def load_arrays(path, args, stack):
    """Arrays by their names, mapped. What is compressed or in an archive is unpacked first, beside the trace."""
    mapped = functools.partial(np.load, mmap_mode="r", allow_pickle=False)
    if args.format == "npy" and not path.endswith(COMPRESSED):
        return {"ids": mapped(path)}
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".import.", dir=args.folder))
    if path.endswith(COMPRESSED):
        with opened(path) as packed, open(os.path.join(folder, "plain"), "wb") as plain:
            shutil.copyfileobj(packed, plain, BLOCK)
        path = plain.name
    if args.format == "npy":
        return {"ids": mapped(path)}
    if args.format == "npz":
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): mapped(archive.extract(name, folder)) for name in archive.namelist()}
    return unpack_torch(path, args, folder, mapped)


def unpack_torch(path, args, folder, mapped):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "unpack_torch.py")
    done = subprocess.run([os.environ.get("TORCH_PYTHON", sys.executable), script, path, folder], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise ResultError(f"{args.source}: {done.stderr.strip().rpartition(chr(10))[2] or 'PyTorch crashed'}")
    names = json.loads(done.stdout)
    found = {name: mapped(os.path.join(folder, f"{i}.npy")) for i, name in enumerate(names)}
    if names == ["indices", "offsets", "lengths"] and not (args.offsets or args.lengths):
        args.lengths = "lengths"
        del found["offsets"]
    return found


def split_bags(path, ids, bounds, lengths):
    """(names, tables) of columns of lists: by lengths [bags] or [features, bags] of flat ids, or offsets [bags] or
    [bags + 1] as an EmbeddingBag takes them."""
    shape = bounds.shape
    if lengths:
        offsets = np.zeros(bounds.size + 1, np.int64)
        np.cumsum(bounds.reshape(-1), out=offsets[1:])
    else:
        offsets = bounds.astype(np.int64).reshape(-1)
        if len(offsets) and offsets[-1] != len(ids) or not len(offsets):
            offsets = np.append(offsets, len(ids))
        shape = (1, len(offsets) - 1)
    if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any() or offsets[-1] != len(ids) or ids.ndim != 1:
        raise ResultError(
            f"{path}: {'lengths' if lengths else 'offsets'} do not cut {ids.size} ids into bags: they begin at "
            f"{offsets[0]} and end at {offsets[-1]}, and must not fall")
    features, bags = shape if len(shape) == 2 else (1, shape[0])
    names = [f"feature{f}" for f in range(features)] if features > 1 else ["ids"]

    def tables(used):
        """Each holds bags that have about BLOCK bytes of ids in all features together, and at least one bag."""
        before, bag = np.zeros(bags, np.int64), 0
        for f in range(features):
            before += offsets[f * bags:(f + 1) * bags] - offsets[f * bags]
        while bag < bags:
            end = max(bag + 1, min(bag + PIECE, int(np.searchsorted(before, before[bag] + BLOCK // 8))))
            columns = {}
            for name in used:
                at = offsets[names.index(name) * bags:][bag:end + 1]
                columns[name] = pa.LargeListArray.from_arrays(pa.array(at - at[0]), pa.array(ids[at[0]:at[-1]]))
            yield pa.table(columns)
            bag = end

    return names, tables
