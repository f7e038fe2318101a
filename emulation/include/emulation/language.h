/* SPDX-License-Identifier: MIT
 *
 * CUDA's keywords and built-in variables.
 */
#pragma once

#include "emulation/vector_types.h"

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)

/* A plain __shared__ array works, but only SHARED and DYNAMIC_SHARED have checked bounds, poisoned
 * contents, and another address in each block, which the race detector needs. */
#define __shared__ static

/* References to const: a kernel cannot assign them, but the compiler knows that they change. */
extern const uint3 &threadIdx;
extern const uint3 &blockIdx;
extern const dim3 &blockDim;
extern const dim3 &gridDim;
constexpr int warpSize = 32;
