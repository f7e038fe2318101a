/* SPDX-License-Identifier: MIT
 *
 * Macros for the three parts of CUDA that are not C++. The CUDA emulation in emulation/ redefines
 * them. So nvcc compiles a .cu file for a device, and a C++ compiler compiles the same text for the
 * tests.
 */
#pragma once

#include <cuda_runtime.h>

#ifndef EMULATED_CUDA

/* Parentheses around a kernel that is a template. */
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

/* An array in shared memory: of constant size, or as large as shared_bytes of the launch. */
#define SHARED(type, name, count) __shared__ type name[count]
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];                          \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)

#else

#ifndef __grid_constant__
#define __grid_constant__
#endif

#endif
