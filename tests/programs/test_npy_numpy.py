# SPDX-License-Identifier: MIT
"""NumPy and the suite read each other's .npy files.

tests/unit/test_npy.c writes arrays to $BUILD/tests/npy and reads those in tests/golden/npy. This test loads
the former with the right type, shape and values; they must be, byte for byte, what numpy.save writes.
The latter must be what NumPy writes today. `test_npy_numpy.py --write-golden` makes them.
"""
import io
import os
import re
import sys

GOLDEN = "tests/golden/npy"
WRITTEN = os.path.join(os.environ.get("BUILD", "build"), "tests/npy")
# Name: TYPE_SHAPE.npy, or TYPE_SHAPE.vN.npy for an explicit format version N; as in test_npy.c.
SAMPLES = ["f4_scalar", "f4_2x3", "i4_5", "i8_0", "i8_2x1x3x2", "i4_3x0x1000", "f4_120",
           "f2_3x20", "u2_70", "u1_2x50"]
VERSIONS = ["i4_5.v2", "i4_5.v3"]

try:
    import numpy
except ImportError:
    numpy = None


def sample(name):
    """The array of that name, by the formulas of struct sample in test_npy.c."""
    kind, dims = re.match(r"(\w\w)_([^.]*)", name).groups()
    shape = () if dims == "scalar" else tuple(int(d) for d in dims.split("x"))
    i = numpy.arange(numpy.prod(shape, dtype=int))
    if kind == "f2":
        return (5 * i + 1).astype("<u2").view("<f2").reshape(shape)
    value = {"f4": i * 0.5 - 1.25, "i4": 7 * i - 3, "i8": i * 2**33 - 5}.get(kind, 5 * i + 1)
    return value.astype("<" + kind).reshape(shape)


def saved(name):
    """The bytes that NumPy writes for it."""
    out = io.BytesIO()
    version = re.search(r"\.v(\d)", name)
    if version:
        numpy.lib.format.write_array(out, sample(name), version=(int(version.group(1)), 0))
    else:
        numpy.save(out, sample(name))
    return out.getvalue()


def file_bytes(folder, name):
    with open(os.path.join(folder, name + ".npy"), "rb") as f:
        return f.read()


def loads(folder, name):
    a = numpy.load(os.path.join(folder, name + ".npy"), allow_pickle=False)
    want = sample(name)
    return a.dtype == want.dtype and a.shape == want.shape and (a == want).all()


def checks():
    """(what is checked, a function that says whether it holds)"""
    for name in SAMPLES:
        yield f"numpy loads our {name}", lambda: loads(WRITTEN, name)
        yield f"same bytes as numpy.save: {name}", lambda: file_bytes(WRITTEN, name) == saved(name)
    for name in SAMPLES + VERSIONS:
        yield f"golden file is what numpy writes: {name}", (
            lambda: file_bytes(GOLDEN, name) == saved(name))


def write_golden():
    os.makedirs(GOLDEN, exist_ok=True)
    for name in SAMPLES + VERSIONS:
        with open(os.path.join(GOLDEN, name + ".npy"), "wb") as f:
            f.write(saved(name))


def main():
    number = failed = 0
    for what, holds in checks():
        number += 1
        if numpy is None:
            print(f"ok {number} - {what} # SKIP numpy is missing")
            continue
        try:
            good, why = holds(), ""
        except (OSError, ValueError) as e:
            good, why = False, f" ({e})"
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {what}{why}")
    print(f"1..{number}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(write_golden() if sys.argv[1:] == ["--write-golden"] else main())
