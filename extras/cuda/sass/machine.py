# SPDX-License-Identifier: MIT
"""Runs a kernel's machine code on the CPU: the interpreter of machine.cpp, for Python.

    m = Machine(library, text of nvdisasm, constants, bytes of shared memory, threads)
    x = m.memory(address, bytes)        # the device's memory, until m.close()
    m.run([0, 7, 8])                    # blocks
    m.issued                            # how often warps issued each instruction of m.code
"""
import ctypes

import numpy as np

from decode import Code, Instruction

MOST = 100_000_000  # instructions of a block


class Stopped(Exception):
    """The reason why a run ended, in one line."""


def library(path):
    lib, pointer = ctypes.CDLL(path), ctypes.c_void_p
    for name, result, *given in (
            ("names", ctypes.c_char_p),
            ("new", pointer, ctypes.POINTER(Instruction), ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64,
             ctypes.c_uint64, ctypes.c_uint32),
            ("delete", None, pointer), ("memory", pointer, pointer, ctypes.c_uint64, ctypes.c_uint64),
            ("block", ctypes.c_char_p, pointer, ctypes.c_uint32, ctypes.c_uint64),
            ("place", ctypes.c_int32, pointer),
            ("counts", ctypes.POINTER(ctypes.c_uint64), pointer, ctypes.c_int)):
        function = getattr(lib, "sass_" + name)
        function.restype, function.argtypes = result, given
    return lib


class Machine:
    def __init__(self, lib, text, constants, shared, threads):
        operations, modifiers = (part.split() for part in lib.sass_names().decode().split("|"))
        self.code = Code(text, {n: k for k, n in enumerate(operations)}, {n: k for k, n in enumerate(modifiers)})
        self._lib, self._arrays = lib, []
        self._at = lib.sass_new(self.code.decoded, len(self.code.decoded), bytes(constants), len(constants), shared,
                                threads)
        self.issued, self.lanes = (np.ctypeslib.as_array(lib.sass_counts(self._at, k), (len(self.code.decoded),))
                                   for k in (0, 1))

    def memory(self, address, size):
        """Zeroed memory of `size` bytes at that address of the device, as an array of 32-bit words."""
        at = self._lib.sass_memory(self._at, address, max(size, 16))
        if not at:
            raise Stopped(f"no {size} bytes of address space for the memory at {address:#x}")
        return np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_uint8)), (size,)).view(np.uint32)

    def run(self, blocks):
        for block in blocks:
            problem = self._lib.sass_block(self._at, int(block), MOST)
            if problem:
                place = self._lib.sass_place(self._at)
                at = self.code.place(place) if place < len(self.code.texts) else f"{16 * place:#x}"
                raise Stopped(f"block {block}: {problem.decode()}: {at}")

    def close(self):
        self._lib.sass_delete(self._at)
