# SPDX-License-Identifier: MIT
"""Readers of files of ids. Each is a context manager that yields the names of all columns, and a function from wanted
columns to an iterator of Arrow tables."""
import contextlib
import lzma
import re

import numpy as np
import pandas as pd
import pyarrow as pa

from program import ResultError

PIECE = 250_000   # rows that are in memory at once
BLOCK = 16 << 20  # bytes of JSON that are parsed at once; a line is shorter
SEPARATORS = {"csv": ",", "tsv": "\t", "criteo": "\t"}


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
    cells = ["" if pd.isna(x) else x for x in pd.read_csv(path, nrows=1, **how).iloc[0]]
    named = [w for w in [*args.columns, *args.by] if not w.isdigit()]
    at = [int(w) for w in args.columns if w.isdigit() and int(w) < len(cells)] or range(len(cells))
    integers = args.ids.startswith(("keep", "modulo")) and args.format != "criteo"
    header = args.header == "yes" or args.header == "auto" and bool(
        named or integers and not all(re.fullmatch(r"[+-]?\d*", cells[i]) for i in at))
    names = cells if header else [str(i) for i in range(len(cells))]
    with pd.read_csv(path, skiprows=int(header), chunksize=PIECE, **how) as reader:
        yield names, lambda used: (pa.Table.from_pandas(f.set_axis(names, axis=1)[used], preserve_index=False)
                                   for f in reader)


@contextlib.contextmanager
def json_lines(path, _):
    import pyarrow.json
    opened = lzma.open(path) if path.endswith(".xz") else pa.input_stream(path, compression="detect")
    with opened, pyarrow.json.open_json(opened, pyarrow.json.ReadOptions(block_size=BLOCK)) as stream:
        yield stream.schema.names, lambda used: (pa.Table.from_batches([b]).select(used) for b in stream)


@contextlib.contextmanager
def parquet(path, _):
    import pyarrow.parquet
    with pyarrow.parquet.ParquetFile(path) as file:
        yield file.schema_arrow.names, lambda used: (pa.Table.from_batches([b])
                                                     for b in file.iter_batches(PIECE, columns=used))


@contextlib.contextmanager
def feather(path, _):
    with pa.memory_map(path) as file, pa.ipc.open_file(file) as stream:
        yield stream.schema.names, lambda used: (pa.Table.from_batches([stream.get_batch(i)]).select(used)
                                                 for i in range(stream.num_record_batches))


@contextlib.contextmanager
def libsvm(path, _):
    from sklearn.datasets import load_svmlight_file
    matrix = load_svmlight_file(path, zero_based=True)[0]
    bags = pa.LargeListArray.from_arrays(pa.array(matrix.indptr.astype(np.int64)),
                                         pa.array(matrix.indices.astype(np.int64)))
    yield ["features"], lambda used: iter([pa.table({"features": bags})])


@contextlib.contextmanager
def arrays(path, args):
    """Arrays of NumPy or PyTorch: columns of a matrix, or flat ids with OFFSETS or LENGTHS."""
    found, bounds = load_arrays(path, args), args.offsets or args.lengths
    if bounds:
        names = chosen(path, [n for n in found if n not in (args.offsets, args.lengths)], args.columns)
        if bounds not in found or len(names) != 1:
            raise ResultError(
                f"{path}: OFFSETS or LENGTHS names an array beside one array of ids; arrays: {' '.join(found)}")
        args.columns = []
        found = split_bags(path, found[names[0]], found[bounds], bool(args.lengths))
        yield list(found), lambda used: iter([pa.table(found)])
        return
    matrices, flat = {n for n, a in found.items() if a.ndim == 2}, {}
    for name, array in found.items():  # a column of a matrix is a feature
        flat |= {f"{name}.{i}": array[:, i] for i in range(array.shape[1])} if name in matrices else {name: array}
    args.columns = [
        c for w in args.columns for c in (flat if w in matrices else [w]) if c == w or c.startswith(w + ".")
    ]
    found = flat
    lengths = {n: len(found[n]) for n in args.columns or found if n in found}
    if len(set(lengths.values())) > 1:
        raise ResultError(
            f"{path}: arrays of different lengths are no columns: {', '.join(f'{n} {k}' for n, k in lengths.items())}")
    yield list(found), lambda used: (pa.table({n: pa.array(np.ascontiguousarray(found[n][b:b + PIECE])) for n in used})
                                     for b in range(0, max(lengths.values()), PIECE))


READERS = {"jsonl": json_lines, "parquet": parquet, "feather": feather, "libsvm": libsvm}
READERS |= dict.fromkeys(SEPARATORS, separated) | dict.fromkeys(("npz", "npy", "pt"), arrays)


def load_arrays(path, args):
    """Arrays by their names."""
    if args.format != "pt":
        data = np.load(path, mmap_mode="r" if args.format == "npy" else None, allow_pickle=False)
        return {"ids": data} if args.format == "npy" else dict(data)
    try:
        import torch
    except ImportError:
        raise ResultError(
            f"{path}: PyTorch reads .pt; install it beside pandas (pip install torch), or save the tensors by "
            "numpy.savez and import the .npz") from None
    data = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(data, (tuple, list)):  # the files of dlrm_datasets
        data = dict(zip(("indices", "offsets", "lengths"), data))
        args.columns, args.lengths = args.columns or ["indices"], args.lengths or "lengths"
    return {k: v.numpy() for k, v in data.items()} if isinstance(data, dict) else {"ids": data.numpy()}


def split_bags(path, ids, bounds, lengths):
    """Columns of lists: by lengths [bags] or [features, bags] of flat ids, or offsets [bags] or [bags + 1] as an
    EmbeddingBag takes them."""
    if lengths:
        shape = bounds.shape
        offsets = np.concatenate([[0], np.cumsum(bounds.reshape(-1), dtype=np.int64)])
    else:
        offsets = bounds.astype(np.int64)
        if len(offsets) and offsets[-1] != len(ids) or not len(offsets):
            offsets = np.append(offsets, len(ids))
        shape = (1, len(offsets) - 1)
    if offsets[0] != 0 or (np.diff(offsets) < 0).any() or offsets[-1] != len(ids):
        raise ResultError(
            f"{path}: {'lengths' if lengths else 'offsets'} do not cut {len(ids)} ids into bags: they begin at "
            f"{offsets[0]} and end at {offsets[-1]}, and must not fall")
    features, bags = shape if len(shape) == 2 else (1, shape[0])
    cut_at = lambda f: offsets[f * bags:(f + 1) * bags + 1]
    column = lambda at: pa.LargeListArray.from_arrays(pa.array(at - at[0]), pa.array(ids[at[0]:at[-1]]))
    return {f"feature{f}" if features > 1 else "ids": column(cut_at(f)) for f in range(features)}
