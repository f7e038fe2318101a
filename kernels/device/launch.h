/* SPDX-License-Identifier: MIT
 *
 * Macros for the three parts of CUDA that are not C++. The CUDA emulation in emulation/ redefines
 * them. So nvcc compiles a .cu file for a device, and a C++ compiler compiles the same text for the
 * tests.
 *
 * A function that contains a collective takes the line of its caller as `site at = here()`, and
 * passes it on: the lanes that meet must come from the same line. Only the emulation looks at it.
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

struct site {};
__host__ __device__ inline site here() {
    return {};
}

/* CUDA's collectives with a site, as the emulation has them. */
__device__ inline void __syncwarp(unsigned mask, site) {
    __syncwarp(mask);
}
template <class T>
__device__ inline T __shfl_xor_sync(unsigned mask, T value, int by, int width, site) {
    return __shfl_xor_sync(mask, value, by, width);
}

#else

using emulation::here;
using site = emulation::Site;

#ifndef __grid_constant__
#define __grid_constant__
#endif

#endif
