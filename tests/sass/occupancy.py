# SPDX-License-Identifier: MIT
"""Warps of a kernel that an SM can hold, by the rules of CUDA's cuda_occupancy.h and the table "Technical
Specifications per Compute Capability" of the CUDA C++ Programming Guide."""

WARP = 32
PARTS = 4               # of an SM, each with its own registers
REGISTERS = 65536       # of an SM
REGISTER_UNIT = 256     # registers are given to a warp in units of this many
SHARED_UNIT = 128
RESERVED = 1024         # bytes of shared memory of every block that CUDA takes
MOST_BLOCKS = 32
# architecture: warps of an SM, bytes of shared memory of an SM
LIMITS = {80: (64, 164 * 1024), 90: (64, 228 * 1024), 100: (64, 228 * 1024)}

# Bytes of dynamic shared memory that a kernel may get at a launch: SMALL_FLOATS of kernels/device/small.cuh, and
# RING_BYTES of kernels/device/ring.cuh.
DYNAMIC = {"sum_slices": 4 * (12288 - 1024), "sum_runs_bulk": 2 * (8 * 128 * 16 + 4 * 8)}


def dynamic_shared(kernel):
    return DYNAMIC.get(kernel.split("<")[0], 0)


def up(n, unit):
    return -(-n // unit) * unit


def warps_of_sm(arch, registers, shared, block):
    """registers of a thread; shared: bytes of a block, static and dynamic; block: its threads."""
    most_warps, shared_of_sm = LIMITS[arch]
    warps = up(block, WARP) // WARP
    by_registers = REGISTERS // PARTS // up(max(registers, 1) * WARP, REGISTER_UNIT) * PARTS // warps
    by_shared = shared_of_sm // up(shared + RESERVED, SHARED_UNIT)
    return min(by_registers, by_shared, MOST_BLOCKS, most_warps // warps) * warps
