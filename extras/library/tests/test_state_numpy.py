#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A saved state read with NumPy alone, as extras/library/README.md describes the format: names, types, shapes and bytes of all
arrays."""
import os
import sys

import numpy as np

import tap

import embfuse

TYPES = [np.float32, np.uint16, np.float16, np.uint8]  # of elements, by embfuse_type
TABLES = [dict(rows=40, dim=6, rule="adam_row_bias", weight_type=1, rounding=1), dict(rows=7, dim=3, rule="sgd"),
          dict(rows=9, dim=4, rule="adam", weight_type=3, momentum_type=1)]
FILES = ["weight.0.npy", "row_state.0.npy", "state.0.0.npy", "state.0.1.npy", "weight.1.npy", "weight.2.npy",
         "state.2.0.npy", "state.2.1.npy"]


def test_every_array(folder):
    random = np.random.default_rng(1)
    m = embfuse.Model(TABLES, [{"table": t} for t in range(len(TABLES))])
    arrays = []
    for t, table in enumerate(TABLES):
        for i, info in enumerate(m.arrays(t)):
            data = random.integers(0, 256, table["rows"] * info.row_bytes, np.uint8).view(TYPES[info.type])
            arrays.append(data.reshape(table["rows"], info.width))
            m.bind(t, i, arrays[-1])
    m.call("save", folder.encode())
    state = os.path.join(folder, "state-00000001")
    assert {"manifest", *FILES} == set(os.listdir(state))
    for name, array in zip(FILES, arrays, strict=True):
        found = np.load(os.path.join(state, name))
        assert found.dtype == array.dtype and found.size == array.size and found.tobytes() == array.tobytes(), name


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "state"))
