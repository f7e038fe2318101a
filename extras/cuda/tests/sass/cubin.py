# SPDX-License-Identifier: MIT
"""Reads a cubin, the ELF file that nvcc makes for one architecture: the code bytes of every function, and what the
driver is told about it."""
import struct

from occupancy import RESERVED

# Attributes: EIATTR_MAX_THREADS, EIATTR_FRAME_SIZE, EIATTR_REGCOUNT.
MAX_THREADS, FRAME, REGISTERS = 0x05, 0x11, 0x2f


class Cubin:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        at, = struct.unpack_from("<Q", self.data, 0x28)
        count, names = struct.unpack_from("<HH", self.data, 0x3c)
        heads = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + 64 * n) for n in range(count)]
        self.sections = {self._name(heads[names][4], h[0]): h for h in heads}

    def _name(self, table, at):
        return self.data[table + at:self.data.index(b"\0", table + at)].decode()

    def bytes_of(self, section):
        h = self.sections.get(section)
        return self.data[h[4]:h[4] + h[5]] if h else b""

    def functions(self):
        return [name[6:] for name in self.sections if name.startswith(".text.")]

    def controls(self, function):
        """{address: control} of all instructions. Bits 105 to 125 of the 128 of an instruction say which of six
        barriers its result sets (7: none) and which it waits for; CUDA does not document them, Jia et al.,
        "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking" (2018), section 2.1 does."""
        code = self.bytes_of(".text." + function)
        result = {}
        for at in range(0, len(code), 16):
            bits = struct.unpack_from("<Q", code, at + 8)[0] >> 41
            barrier = bits >> 5 & 7
            result[at] = None if barrier == 7 else barrier, bits >> 11 & 63
        return result

    def attributes(self, section):
        """[(attribute, value)] of an .nv.info section; a value is bytes or a number."""
        data, at, result = self.bytes_of(section), 0, []
        while at + 4 <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == 4:
                result.append((attribute, data[at:at + size]))
                at += size
            else:
                result.append((attribute, size))
        return result

    def shared(self, function, arch):
        """Bytes of static shared memory. For sm_90 and newer nvcc counts what CUDA reserves."""
        head = self.sections.get(".nv.shared." + function)
        return max(head[5] - (RESERVED if arch >= 90 else 0), 0) if head else 0

    def block(self, function):
        """Threads of the largest block that __launch_bounds__ allows; None without."""
        for attribute, value in self.attributes(".nv.info." + function):
            if attribute == MAX_THREADS:
                x, y, z = struct.unpack("<III", value)
                return x * y * z
        return None

    def symbols(self):
        """Their names, by number."""
        table, names = self.bytes_of(".symtab"), self.sections[".strtab"][4]
        return [self._name(names, struct.unpack_from("<I", table, at)[0]) for at in range(0, len(table), 24)]

    def per_function(self):
        """({function: registers of a thread}, {function: bytes of its stack frame})"""
        symbols = self.symbols()
        found = {REGISTERS: {}, FRAME: {}}
        for attribute, value in self.attributes(".nv.info"):
            if attribute in found:
                index, number = struct.unpack("<II", value)
                found[attribute][symbols[index]] = number
        return found[REGISTERS], found[FRAME]
