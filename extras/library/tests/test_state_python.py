#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A saved state read by a few lines of NumPy, as extras/library/README.md describes the format, and by the package
safetensors, which also writes one. Without the package these tests are skipped."""
import json
import os
import sys

import numpy as np

import tap

import libembfuse as embfuse

try:
    import safetensors
    from safetensors.numpy import save_file
except ImportError:
    safetensors = None

TYPES = [np.float32, np.uint16, np.float16, np.uint8]  # of elements, by embfuse_type
TYPE_OF = {"F32": np.float32, "BF16": np.uint16, "F16": np.float16, "F8_E4M3": np.uint8}
TABLES = [dict(rows=40, dim=6, rule="adam_row_bias", weight_type=1, rounding=1), dict(rows=7, dim=3, rule="sgd"),
          dict(rows=9, dim=5, rule="adam", weight_type=3, momentum_type=1),
          dict(rows=2, dim=1, rule="sgd", weight_type=2)]


def model_of(tables, seed):
    """(model, {name: array}), with arrays of any bits."""
    random = np.random.default_rng(seed)
    m, arrays = embfuse.Model(tables, [{"table": t} for t in range(len(tables))], rounding_seed=2**64 - seed), {}
    for t, table in enumerate(tables):
        m.set("lr", 0.1 * seed, t)
        m.set_steps(2**60 + seed, t)
        for i, info in enumerate(m.arrays(t)):
            data = random.integers(0, 256, table["rows"] * info.row_bytes, np.uint8).view(TYPES[info.type])
            arrays[f"table.{t}.{info.name.decode()}"] = data.reshape(table["rows"], info.width)
            m.bind(t, i, arrays[f"table.{t}.{info.name.decode()}"])
    return m, arrays


def saved(folder, tables=None):
    path = os.path.join(folder, "model.safetensors")
    m, arrays = model_of(tables or TABLES, 1)
    m.call("save", os.fsencode(path))
    return path, arrays


def read(path):
    """({name: array}, metadata), by NumPy alone."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata, arrays = header.pop("__metadata__"), {}
    for name, x in header.items():
        begin, end = x["data_offsets"]
        arrays[name] = np.frombuffer(data[begin:end], TYPE_OF[x["dtype"]]).reshape(x["shape"])
        assert begin % arrays[name].itemsize == 0, (name, begin)
    return arrays, metadata


def same(found, arrays):
    assert set(found) == set(arrays), set(found) ^ set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].size == array.size, name
        assert found[name].tobytes() == array.tobytes(), name


def need():
    if not safetensors:
        raise tap.Skip("no package safetensors: pip install --target DIR safetensors, and set PYTHONPATH=DIR")


def test_numpy_reads_it(folder):
    path, arrays = saved(folder)
    found, metadata = read(path)
    same(found, arrays)
    state = json.loads(metadata["embfuse"])
    assert state["version"] == 2 and state["rounding_seed"] == str(2**64 - 1), state
    assert [x["rule"] for x in state["tables"]] == [x["rule"] for x in TABLES]
    assert [x["rounding"] for x in state["tables"]] == ["stochastic", "nearest", "nearest", "nearest"]
    for x in state["tables"]:
        assert x["steps"] == 2**60 + 1 and np.float32(x["hyper"]["lr"]) == np.float32(0.1), x


def test_the_package_reads_it(folder):
    need()
    path, arrays = saved(folder)
    with open(path, "rb") as file:
        found = {name: np.frombuffer(x["data"], TYPE_OF[x["dtype"]]).reshape(x["shape"])
                 for name, x in safetensors.deserialize(file.read())}
    same(found, arrays)
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == read(path)[1]


def test_the_library_loads_what_the_package_writes(folder):
    """With arrays in another order and more metadata, but not without metadata."""
    need()
    tables = [dict(rows=3, dim=5, rule="sgd", weight_type=2), dict(rows=6, dim=3, rule="adam_row_bias")]
    path, arrays = saved(folder, tables)
    tensors, metadata = read(path)
    model, own = model_of(tables, 2)
    before = {name: array.copy() for name, array in own.items()}
    written = os.path.join(folder, "written")
    save_file(tensors, written)
    try:
        model.call("load", os.fsencode(written))
    except embfuse.Error as e:
        assert "__metadata__" in str(e), e
    else:
        raise AssertionError("loaded without metadata")
    same(own, before)
    save_file(tensors, written, {**metadata, "format": "np"})
    assert list(read(written)[0]) != list(tensors)
    model.call("load", os.fsencode(written))
    same(own, arrays)
    assert model.get_steps(1) == 2**60 + 1


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "state in Python"))
