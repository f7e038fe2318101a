# SPDX-License-Identifier: MIT
"""The kernel to count: the facts that target.cu prints, its machine code and its resources. Also runs some of its
blocks."""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "extras", "cuda", "tests", "sass"))
from cubin import Cubin  # noqa: E402
from objects import demangle, run, tools  # noqa: E402
from occupancy import WARP, warps_of_sm  # noqa: E402

from batch import POINTS, Batch  # noqa: E402
from machine import Machine, Stopped  # noqa: E402

ARCH = 90
STACK = 0x28              # offset in constant bank 0 of a lane's initial stack pointer
PARAM_CBANK = 0x0a        # the attribute with the offset and the size of the arguments
LOCAL = 4096              # bytes of a lane, as in machine.h


class Facts:
    """The facts that target.cu prints."""

    def __init__(self, target, point, dim, rule):
        self.lookups, self.rows, bags, _ = POINTS[point]
        command = [target, *map(str, (self.lookups, dim, self.rows, rule, bags))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Stopped(f"{' '.join(command)}: {done.stderr.strip()}")
        self.memory, self.hyper = [], {}
        for line in done.stdout.splitlines():
            word, *rest = line.split()
            if word == "memory":
                self.memory.append((rest[0], int(rest[1], 16), int(rest[2]), bytes.fromhex("".join(rest[3:]))))
            elif word == "hyper":
                self.hyper[rest[0]] = np.float32(rest[1])
            elif word == "arguments":
                self.arguments = bytes.fromhex(rest[0])
            else:
                setattr(self, word, int(rest[0]) if rest[0].isdigit() else " ".join(rest))


class Kernels:
    """The functions of an object of nvcc, or of a cubin."""

    def __init__(self, path, venv):
        tool = tools(venv)
        if not tool:
            raise Stopped("no cuobjdump and nvdisasm; make sass-tools installs them")
        if not os.path.exists(path):
            raise Stopped(f"no {path}; make sass-counts builds it")
        self._disassembler, self._folder = tool["nvdisasm"], tempfile.TemporaryDirectory()
        if not path.endswith(".cubin"):
            run([tool["cuobjdump"], "-arch", f"sm_{ARCH}", "-xelf", "all", os.path.abspath(path)],
                cwd=self._folder.name)
            made = os.listdir(self._folder.name)
            if len(made) != 1:
                raise Stopped(f"{path} has {len(made)} cubins of sm_{ARCH} instead of one; build with CUDA_ARCHS={ARCH}")
            path = os.path.join(self._folder.name, made[0])
        self.path, self.cubin = path, Cubin(path)
        self.names = {short: name for name, short in demangle(self.cubin.functions()).items()}
        self.texts = {}

    def mangled(self, name):
        if name not in self.names:
            raise Stopped(f"{os.path.basename(self.path)} has no kernel {name}, which target.cu names")
        return self.names[name]

    def text(self, name):
        if name not in self.texts:
            number = self.cubin.symbols().index(self.mangled(name))
            self.texts[name] = run([self._disassembler, "-c", "-gi", "-fun", str(number), self.path])
        return self.texts[name]

    def shared(self, name):
        """Bytes of static shared memory, with the bytes that CUDA reserves."""
        head = self.cubin.sections.get(".nv.shared." + self.mangled(name))
        return head[5] if head else 1024

    def arguments(self, name):
        """(offset of the arguments in the constant bank, their size in bytes)"""
        for attribute, value in self.cubin.attributes(".nv.info." + self.mangled(name)):
            if attribute == PARAM_CBANK:
                return struct.unpack("<HH", value[4:8])
        return None

    def resources(self, facts):
        """Registers of a thread, blocks that an SM holds, bytes of code."""
        mangled = self.mangled(facts.kernel)
        registers = self.cubin.per_function()[0][mangled]
        shared = self.cubin.shared(mangled, ARCH) + facts.dynamic
        blocks = warps_of_sm(ARCH, registers, shared, facts.threads) // (-(-facts.threads // WARP))
        return registers, blocks, len(self.cubin.bytes_of(".text." + mangled))


def constants(facts, at):
    """Bank 0: the block's and the grid's dimensions, the stack, arguments."""
    bank = bytearray(at + len(facts.arguments))
    struct.pack_into("<6I", bank, 0, facts.threads, 1, 1, -(-facts.lookups // facts.entries), 1, 1)
    struct.pack_into("<I", bank, STACK, LOCAL)
    bank[at:] = facts.arguments
    return bytes(bank)


class Run:
    """Some blocks of the kernel at a point. lookups and rows count these blocks only; checked is what Batch.wrong()
    returned."""

    def __init__(self, lib, kernels, target, name, entries, dim, rule, blocks):
        self.facts, self.point = Facts(target, name, dim, rule), f"{name}, dim {dim}"
        facts = self.facts
        at, size = kernels.arguments(facts.kernel)
        if not 0 <= len(facts.arguments) - size < 8:  # a struct may end with padding
            raise Stopped(f"{facts.kernel} has {size} bytes of arguments, target.cu gives {len(facts.arguments)}")
        machine = Machine(lib, kernels.text(facts.kernel), constants(facts, at),
                          kernels.shared(facts.kernel) + facts.dynamic, facts.threads)
        arrays = {}
        for array, address, size, content in facts.memory:
            arrays[array] = machine.memory(address, -(-size // 4) * 4)
            arrays[array].view(np.uint8)[:len(content)] = np.frombuffer(content, np.uint8)
        batch = Batch(entries, facts, arrays, dim, rule)
        chosen = batch.blocks(blocks)
        batch.fill(chosen)
        try:
            machine.run(chosen)
            self.checked = batch.wrong()
        except Stopped as e:
            raise Stopped(f"{facts.kernel}, {self.point}: {e}") from None
        finally:
            self.code, self.issued, self.lanes = machine.code, machine.issued.copy(), machine.lanes.copy()
            machine.close()
        self.lookups, self.rows = batch.lookups_and_rows(chosen)
        self.ends = len(batch.runs.begin)
