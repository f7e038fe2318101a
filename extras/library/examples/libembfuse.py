# SPDX-License-Identifier: MIT
"""libembfuse in Python, through ctypes and without a copy of an array.

Structs, enums and functions are those of extras/library/embfuse.h, which is read when this module is imported: no second
declaration can fall behind it, and ctypes knows the types of all arguments. `call` calls any of its functions, `new`
makes any of its structs, `constant` has its numbers. `Model` is a thin class above them, for NumPy arrays and PyTorch
tensors on the host. A pointer in a struct is an address; see `address`.

Header and library are those of make install in $EMBFUSE_PREFIX (/usr/local), where this file may be a copy anywhere, or
else those of the source tree that this file lies in (make library). $EMBFUSE_LIBRARY names another library.
"""
import ctypes
import os
import re
import threading
from pathlib import Path

PREFIX, HERE = os.environ.get("EMBFUSE_PREFIX"), Path(__file__).resolve().parent
HEADER = Path(PREFIX, "include", "embfuse.h") if PREFIX else HERE.parent / "embfuse.h"
LIBRARY = os.environ.get("EMBFUSE_LIBRARY") or os.path.normpath(
    Path(PREFIX, "lib", "libembfuse.so") if PREFIX else HERE / "../../../build/libembfuse.so")

SCALARS = {"void": None, "char": ctypes.c_char, "int": ctypes.c_int, "size_t": ctypes.c_size_t, "float": ctypes.c_float,
           "double": ctypes.c_double, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32,
           "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}


class Error(Exception):
    """What the library says is wrong; status is one of enum embfuse_status."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Namespace(dict):
    __getattr__ = dict.__getitem__


# --- the header

def read_constants(text):
    """The values of enums, and of macros that are numbers."""
    found = Namespace((name, int(value)) for name, value in re.findall(r"#define EMBFUSE_(\w+) (\d+)\n", text))
    for body in re.findall(r"enum \w+ \{(.*?)\}", text, re.S):
        value = -1
        for name, given in re.findall(r"EMBFUSE_(\w+)(?:\s*=\s*(\d+))?", body):
            value = int(given) if given else value + 1
            found[name] = value
    return found


def declared(line):
    """(base type, name, stars, length of an array) for each name of a declaration like `const int64_t *a, *b`."""
    base, names = re.fullmatch(r"(?:const )?(?:struct )?(\w+)\s+(.*)", " ".join(line.split())).groups()
    for name in names.split(","):
        stars, word, length = re.fullmatch(r"\s*(\**)\s*(?:const )?(\w*)(?:\[(\d+)\])?\s*", name).groups()
        yield base, word, len(stars), int(length or 0)


def read_structs(text):
    """Addresses in structs are plain numbers, strings are bytes."""
    found = Namespace()
    for name, body in re.findall(r"struct embfuse_(\w+) \{(.*?)\}", text, re.S):
        fields = []
        for line in body.split(";")[:-1]:
            for base, word, stars, length in declared(line):
                kind = (ctypes.c_char_p if base == "char" else ctypes.c_void_p) if stars else SCALARS[base]
                fields.append((word, kind * length if length else kind))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def argument_type(structs, base, stars):
    known = structs.get(base.replace("embfuse_", ""))
    if stars and base == "char":
        kind, stars = ctypes.c_char_p, stars - 1
    elif stars and not known and base not in SCALARS or base == "void":  # opaque, or of any type
        kind, stars = (ctypes.c_void_p, stars - 1) if stars else (None, 0)
    else:
        kind = known or SCALARS[base]
    for _ in range(stars):
        kind = ctypes.POINTER(kind)
    return kind


def load(path=LIBRARY, header=HEADER):
    """(library, structs, constants), with the types of all functions."""
    if not header.exists():
        raise ImportError(f"there is no {header}: set EMBFUSE_PREFIX to the PREFIX of make install")
    text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
    constants, structs = read_constants(text), read_structs(text)
    try:
        library = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"{e}: build it with make library, or set EMBFUSE_PREFIX or EMBFUSE_LIBRARY") from None
    for function, arguments in re.findall(r"(?sm)^EMBFUSE_API ([^()]*)\((.*?)\);", text):
        of = lambda line: [(word, argument_type(structs, base, stars)) for base, word, stars, _ in declared(line)]
        (name, result), = of(function)
        of_library = getattr(library, name)
        of_library.restype = result
        of_library.argtypes = [of(x)[0][1] for x in arguments.split(",") if x != "void"]
    version = constants.VERSION_MAJOR * 10000 + constants.VERSION_MINOR * 100 + constants.VERSION_PATCH
    if library.embfuse_version() != version:
        raise ImportError(f"{path} is version {library.embfuse_version()}, but {header} is {version}")
    return library, structs, constants


lib, struct, constant = load()


# --- calls

def new(name, /, **values):
    """A struct of the header without its embfuse_, with these values and its size; the rest is 0."""
    kind = struct[name]
    if hasattr(kind, "size"):
        values["size"] = ctypes.sizeof(kind)
    return kind(**{k: v.encode() if isinstance(v, str) else v for k, v in values.items()})


def call(name, *arguments):
    """Calls the function of that name, without embfuse_ and without its last argument, where it says what is wrong."""
    why = struct.error()
    status = getattr(lib, "embfuse_" + name)(*arguments, why)
    if status:
        raise Error(status, why.text.decode(errors="replace"))


def address(array, least=0):
    """Where a NumPy array or a tensor begins, which must have at least so many bytes, without gaps."""
    if array is None:
        return None
    tensor = hasattr(array, "data_ptr")
    if tensor and array.device.type != "cpu":
        raise TypeError("an array is not in host memory")
    if not (array.is_contiguous() if tensor else array.flags.c_contiguous):
        raise TypeError("an array is not contiguous")
    held = array.numel() * array.element_size() if tensor else array.nbytes
    if held < least:
        raise TypeError(f"an array has {held} bytes, but {least} are needed")
    return array.data_ptr() if tensor else array.ctypes.data


def need_type(array, name, *types):
    """The name of the type of a NumPy array or a tensor, which is one of these; None has none."""
    found = None if array is None else str(array.dtype).rpartition(".")[2]
    if found not in (None, *types):
        raise TypeError(f"{name} are {array.dtype}, not {' or '.join(types)}")
    return found


# --- models

class Model:
    """Tables, features and options are dicts with the fields of the structs of the header. The model keeps the arrays
    that are bound to it. Threads may share it: they take turns."""

    def __init__(self, tables, features, **options):
        self._model, self._arrays, self._lock = ctypes.c_void_p(), {}, threading.Lock()
        self.tables, self.features = [new("table", **t) for t in tables], [new("feature", **f) for f in features]
        options = new("options", **options)
        self.element_bytes = 4 if options.grad_type == constant.FP32 else 2
        call("model_create", self._model, (struct.table * len(tables))(*self.tables), len(tables),
             (struct.feature * len(features))(*self.features), len(features), options)

    def __del__(self):
        lib.embfuse_model_free(self._model)

    def __reduce__(self):
        raise TypeError("a model belongs to its arrays, and cannot be copied: make another one")

    def call(self, name, *arguments):
        """As the function above, for those whose first argument is a model."""
        with self._lock:
            call(name, self._model, *arguments)

    def _got(self, kind, name, *arguments):
        """What a function writes to its last argument."""
        value = kind()
        self.call(name, *arguments, value)
        return value.value

    def arrays(self, table):
        """A struct embfuse_array for each array: weights, then states."""
        found = [struct.array() for _ in range(lib.embfuse_array_count(self._model, table))]
        for i, array in enumerate(found):
            self.call("array_info", table, i, array)
        return found

    def bind(self, table, number, array):
        least = self.tables[table].rows * self.arrays(table)[number].row_bytes
        self.call("bind", table, number, address(array, least), 0)
        self._arrays[table, number] = array

    def init_states(self, table):
        self.call("init_states", table)

    def set(self, name, value, table=-1):
        self.call("set", table, name.encode(), value)

    def get(self, name, table=0):
        return self._got(ctypes.c_double, "get", table, name.encode())

    def get_steps(self, table=0):
        return self._got(ctypes.c_int64, "get_steps", table)

    def set_steps(self, steps, table=0):
        self.call("set_steps", table, steps)

    def batch(self, ids, offsets, lookup_weights=None, winners=None):
        """ids: int32 or int64; offsets: int64, of all features one after another; lookup_weights: float32; winners: int32,
        as many as elements of the output. They must not change before the step."""
        id_type = constant[need_type(ids, "ids", "int32", "int64").upper()]
        need_type(offsets, "offsets", "int64")
        need_type(lookup_weights, "lookup weights", "float32")
        need_type(winners, "winners", "int32")
        batch = new("batch", bags=(len(offsets) - 1) // len(self.features), lookups=len(ids), ids=address(ids),
                    offsets=address(offsets), id_type=id_type, lookup_weights=address(lookup_weights, 4 * len(ids)))
        batch.elements = self._got(ctypes.c_int64, "output_elements", batch)
        batch.winners = address(winners, 4 * batch.elements)
        batch.arrays = [ids, offsets, lookup_weights, winners]  # they live as long as the batch
        return batch

    def forward(self, batch, output):
        """Looks up and pools into output, which has the options' grad_type."""
        self.call("forward", batch, address(output, self.element_bytes * batch.elements))

    def step(self, batch, grad, weight_grad=None):
        """weight_grad, if given, gets the gradient of the lookup weights: float32."""
        need_type(weight_grad, "gradients of lookup weights", "float32")
        batch.weight_grad = address(weight_grad, 4 * batch.lookups)
        self.call("step", batch, address(grad, self.element_bytes * batch.elements))

    def step_kernel(self, batch):
        return self._got(ctypes.c_char_p, "step_kernel", batch).decode()
