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
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))

/* gcc puts `most` one-byte instructions that do nothing before the kernel, and launch_bound() counts them. The number
 * may depend on parameters of a template; in clang's attribute it may not. */
#if defined(__x86_64__) && !defined(__clang__)
namespace emulation {
constexpr unsigned threads(unsigned most) {
    return most;
}
} // namespace emulation
#define __launch_bounds__(most, ...)                                                               \
    __attribute__((patchable_function_entry(emulation::threads(most), emulation::threads(most))))
#else
#define __launch_bounds__(...)
#endif

/* References to const: a kernel cannot assign them, but the compiler knows that they change. */
extern const uint3 &threadIdx;
extern const uint3 &blockIdx;
extern const dim3 &blockDim;
extern const dim3 &gridDim;
constexpr int warpSize = 32;
