# SPDX-License-Identifier: MIT
"""Warps of a kernel that an SM can hold, by the rules of CUDA's cuda_occupancy.h and the table "Technical
Specifications per Compute Capability" of the CUDA C++ Programming Guide."""

WARP = 32
PARTS = 4               # of an SM, each with its own registers
REGISTERS = 65536       # of an SM
REGISTER_UNIT = 256     # registers are given to a warp in units of this many
RESERVED = 1024         # bytes of shared memory of every block that CUDA takes, from sm_80 on
# architecture: warps of an SM, blocks of an SM, KiB of shared memory of an SM
LIMITS = {75: (32, 16, 64), 80: (64, 32, 164), 86: (48, 16, 100), 87: (48, 16, 164), 89: (48, 24, 100),
          90: (64, 32, 228), 100: (64, 32, 228), 103: (64, 32, 228), 110: (48, 24, 228), 120: (48, 24, 100),
          121: (48, 24, 100)}

def up(n, unit):
    return -(-n // unit) * unit


def warps_of_sm(arch, registers, shared, block):
    """registers of a thread; shared: bytes of a block, static and dynamic; block: its threads."""
    most_warps, most_blocks, shared_of_sm = LIMITS[arch]
    reserved, shared_unit = (0, 256) if arch < 80 else (RESERVED, 128)
    warps = up(block, WARP) // WARP
    by_registers = REGISTERS // PARTS // up(max(registers, 1) * WARP, REGISTER_UNIT) * PARTS // warps
    by_shared = shared_of_sm * 1024 // up(max(shared + reserved, 1), shared_unit)
    return min(by_registers, by_shared, most_blocks, most_warps // warps) * warps
