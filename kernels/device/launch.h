/* SPDX-License-Identifier: MIT
 *
 * The three things in CUDA that are not C++, under names that the emulation of CUDA in
 * emulation can give another meaning: a .cu file that keeps to them is compiled by nvcc for a
 * device and by a C++ compiler for the tests, from the same text.
 */
#ifndef EMBFUSE_DEVICE_LAUNCH_H
#define EMBFUSE_DEVICE_LAUNCH_H

#include <cuda_runtime.h>

#ifndef EMULATED_CUDA

/* A kernel that is a template goes in parentheses. */
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

/* An array in shared memory, of a size known here, or of the launch's shared_bytes. */
#define SHARED(type, name, count) __shared__ type name[count]
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];                          \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)

#else

#ifndef __grid_constant__
#define __grid_constant__
#endif

#endif

#endif
