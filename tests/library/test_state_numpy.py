#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A saved state read with NumPy alone, as lib/README.md describes the format: names, types, shapes and checksums of all
arrays; and the program embfuse with its files."""
import ctypes
import os
import sys

import numpy as np

import tap

import embfuse

TYPES = [np.float32, np.uint16, np.float16, np.uint8]  # of elements, by embfuse_type
TABLES = [dict(rows=40, dim=6, rule="adam_row_bias", weight_type=1, rounding=1), dict(rows=7, dim=3, rule="sgd"),
          dict(rows=9, dim=4, rule="adam", weight_type=3, momentum_type=1)]


def xxh3(data):
    """XXH3-64, from the library that embfuse is linked with; python3-xxhash has it as xxhash.xxh3_64_intdigest."""
    function = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64
    return function(data, len(data))


def model(tables):
    """A model and its arrays, [table][array], of random bytes."""
    random = np.random.default_rng(1)
    m = embfuse.Model(tables, [{"table": t, "padding_id": -1} for t in range(len(tables))], rounding_seed=1000)
    arrays = []
    for t, table in enumerate(tables):
        arrays.append([])
        for i, info in enumerate(m.arrays(t)):
            data = random.integers(0, 256, table["rows"] * info.row_bytes, np.uint8).view(TYPES[info.type])
            arrays[t].append(data.reshape(table["rows"], info.width))
            m.bind(t, i, arrays[t][i])
        m.set("lr", 0.1 * (t + 1), t)
        m.set_steps(100 + t, t)
    return m, arrays


def save(m, folder):
    m.call("save", folder.encode())


def lines(folder):
    """The manifest: [first word, {key: value}] of each line."""
    with open(os.path.join(folder, "manifest"), encoding="ascii") as file:
        for line in file:
            words = line.split()
            pairs = words if words[0] == "file" else words[1:]
            yield words[0], words[1:] if len(pairs) % 2 else dict(zip(pairs[::2], pairs[1::2]))


def test_every_array_and_setting(folder):
    m, arrays = model(TABLES)
    save(m, folder)
    state = os.path.join(folder, "state-00000001")
    found = list(lines(state))
    assert [w for w, _ in found[:3]] == ["embfuse", "library", "rounding_seed"], found[:3]
    assert found[0][1] == {"state": "1"} and found[2][1] == ["1000"]
    assert [p["steps"] for w, p in found if w == "table"] == ["100", "101", "102"]
    for t, hyper in enumerate(p for w, p in found if w == "hyper"):
        assert all(np.float32(text) == np.float32(m.get(name, t)) for name, text in hyper.items()), hyper
        assert hyper["lr"] == ("0.1", "0.2", "0.3")[t], hyper
    files = [pairs for word, pairs in found if word == "file"]
    assert [f["file"] for f in files] == ["weight.0.npy", "row_state.0.npy", "state.0.0.npy", "state.0.1.npy",
                                          "weight.1.npy", "weight.2.npy", "state.2.0.npy", "state.2.1.npy"]
    assert {"manifest", *(f["file"] for f in files)} == set(os.listdir(state))
    for pairs, array in zip(files, [a for table in arrays for a in table]):
        path = os.path.join(state, pairs["file"])
        is_ = np.load(path)
        assert (str(is_.dtype), ",".join(map(str, is_.shape))) == (pairs["type"], pairs["shape"]), pairs
        assert is_.tobytes() == array.tobytes(), pairs
        with open(path, "rb") as file:
            data = file.read()
        assert len(data) == int(pairs["bytes"]) and f"{xxh3(data):016x}" == pairs["xxh3"]


def test_the_program_reads_the_arrays(folder):
    """The names are those of embfuse export and lookup: a saved table is exported, row by row the same."""
    m, arrays = model([dict(rows=50, dim=8, rule="rowwise_adagrad")])
    arrays[0][0][:] = np.random.default_rng(1).normal(size=(50, 8))
    save(m, folder)
    weight, out = os.path.join(folder, "state-00000001", "weight.npy"), os.path.join(folder, "out")
    tap.good({}, "embfuse", "export", "--weight", weight, "--out", out, "--type", "fp32")
    assert np.fromfile(out + ".rows", np.float32).tobytes() == arrays[0][0].tobytes()


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "state"))
