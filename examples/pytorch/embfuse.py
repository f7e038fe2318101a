# SPDX-License-Identifier: MIT
"""libembfuse through ctypes: structs and functions as in include/embfuse.h, and a class for a model. It needs neither
NumPy nor PyTorch: arrays are addresses."""
import ctypes as c
import os

TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
ID_TYPES = {"int32": 0, "int64": 1}
POOLINGS = {"sum": 0, "mean": 1, "none": 2, "max": 3}
ROUNDINGS = {"nearest": 0, "stochastic": 1}
AVERAGES = {"swa": 1, "ema": 2}


class Struct(c.Structure):
    """A struct that begins with its size, if it has that field."""

    def __init__(self, **fields):
        if any(name == "size" for name, _ in self._fields_):
            fields["size"] = c.sizeof(type(self))
        super().__init__(**fields)


class Why(c.Structure):
    _fields_ = [("text", c.c_char * 512)]


class Table(Struct):
    _fields_ = [("rows", c.c_int64), ("dim", c.c_int32), ("weight_type", c.c_int32), ("momentum_type", c.c_int32),
                ("rounding", c.c_int32), ("rule", c.c_char_p)]


class Feature(Struct):
    _fields_ = [("table", c.c_int32), ("pooling", c.c_int32), ("padding_id", c.c_int64), ("grad_offset", c.c_int64),
                ("grad_stride", c.c_int64)]


class Options(Struct):
    _fields_ = [("size", c.c_size_t), ("kernel", c.c_char_p), ("forward", c.c_char_p), ("place", c.c_int32),
                ("threads", c.c_int32), ("grad_type", c.c_int32), ("reserved", c.c_int32),
                ("rounding_seed", c.c_uint64)]


class Array(Struct):
    _fields_ = [("name", c.c_char_p), ("states", c.c_char * 64), ("type", c.c_int32), ("width", c.c_int32),
                ("row_bytes", c.c_int64)]


class Batch(Struct):
    _fields_ = [("size", c.c_size_t), ("bags", c.c_int64), ("lookups", c.c_int64), ("ids", c.c_void_p),
                ("offsets", c.c_void_p), ("lookup_weights", c.c_void_p), ("id_type", c.c_int32),
                ("trusted", c.c_int32), ("stream", c.c_void_p), ("feature_lookups", c.c_void_p),
                ("winners", c.c_void_p), ("weight_grad", c.c_void_p)]


class Average(Struct):
    _fields_ = [("size", c.c_size_t), ("table", c.c_int32), ("kind", c.c_int32), ("decay", c.c_double),
                ("data", c.c_void_p), ("stride", c.c_int64), ("updates", c.c_int64), ("row_updates", c.c_void_p),
                ("covered", c.c_int64)]


class Loaded(Struct):
    _fields_ = [("size", c.c_size_t), ("number", c.c_int64), ("passed_over", c.c_int32), ("reserved", c.c_int32),
                ("damage", c.c_char * 512)]


# Every function needs its types: ctypes would pass an address as a 32-bit int.
_MODEL, _WHY = c.c_void_p, c.POINTER(Why)
_FUNCTIONS = {
    "model_create": [c.POINTER(_MODEL), c.POINTER(Table), c.c_int32, c.POINTER(Feature), c.c_int32,
                     c.POINTER(Options), _WHY],
    "array_info": [_MODEL, c.c_int32, c.c_int32, c.POINTER(Array), _WHY],
    "bind": [_MODEL, c.c_int32, c.c_int32, c.c_void_p, c.c_int64, _WHY],
    "init_states": [_MODEL, c.c_int32, _WHY],
    "set": [_MODEL, c.c_int32, c.c_char_p, c.c_double, _WHY],
    "get": [_MODEL, c.c_int32, c.c_char_p, c.POINTER(c.c_double), _WHY],
    "get_steps": [_MODEL, c.c_int32, c.POINTER(c.c_int64), _WHY],
    "set_steps": [_MODEL, c.c_int32, c.c_int64, _WHY],
    "save": [_MODEL, c.c_char_p, _WHY],
    "load": [_MODEL, c.c_char_p, c.POINTER(Loaded), _WHY],
    "forward": [_MODEL, c.POINTER(Batch), c.c_void_p, _WHY],
    "step": [_MODEL, c.POINTER(Batch), c.c_void_p, _WHY],
    "average_before_step": [_MODEL, c.POINTER(Average), c.c_int32, c.POINTER(Batch), _WHY],
    "average_update": [_MODEL, c.POINTER(Average), c.c_int32, _WHY],
    "average_finish": [_MODEL, c.POINTER(Average), c.c_int32, _WHY],
    "step_kernel": [_MODEL, c.POINTER(Batch), c.POINTER(c.c_char_p), _WHY],
}


class Error(RuntimeError):
    """What a function of the library says is wrong."""


def load(path=None):
    """The library: path, $EMBFUSE_LIBRARY, or the one of this checkout's build."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "libembfuse.so")
    lib = c.CDLL(path or os.environ.get("EMBFUSE_LIBRARY") or here)
    for name, types in _FUNCTIONS.items():
        function = getattr(lib, "embfuse_" + name)
        function.argtypes, function.restype = types, c.c_int
    lib.embfuse_model_free.argtypes, lib.embfuse_model_free.restype = [_MODEL], None
    lib.embfuse_array_count.argtypes, lib.embfuse_array_count.restype = [_MODEL, c.c_int32], c.c_int32
    return lib


class Model:
    """A model: its functions are those of the library without the prefix, and raise Error. Arrays that are bound
    must live as long as the model."""

    def __init__(self, tables, features, options=None, lib=None):
        self.lib, self.model = lib or load(), _MODEL()
        self.call("model_create", c.byref(self.model), (Table * len(tables))(*tables), len(tables),
                  (Feature * len(features))(*features), len(features), c.byref(options or Options()))

    def call(self, name, *args):
        why = Why()
        if getattr(self.lib, "embfuse_" + name)(*args, c.byref(why)):
            raise Error(why.text.decode(errors="replace"))

    def arrays(self, table):
        """[Array] of a table: the weights, then the states of its rule."""
        found = [Array() for _ in range(self.lib.embfuse_array_count(self.model, table))]
        for i, array in enumerate(found):
            self.call("array_info", self.model, table, i, c.byref(array))
        return found

    def bind(self, table, array, address, stride=0):
        self.call("bind", self.model, table, array, address, stride)

    def init_states(self, table):
        self.call("init_states", self.model, table)

    def set(self, table, name, value):
        self.call("set", self.model, table, name.encode(), value)

    def get(self, table, name):
        value = c.c_double()
        self.call("get", self.model, table, name.encode(), c.byref(value))
        return value.value

    def forward(self, batch, output):
        self.call("forward", self.model, c.byref(batch), output)

    def step(self, batch, grad):
        self.call("step", self.model, c.byref(batch), grad)

    def step_kernel(self, batch):
        name = c.c_char_p()
        self.call("step_kernel", self.model, c.byref(batch), c.byref(name))
        return name.value.decode()

    def __del__(self):
        if getattr(self, "model", None):
            self.lib.embfuse_model_free(self.model)
