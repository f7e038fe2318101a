/* SPDX-License-Identifier: MIT
 *
 * Additions to global memory that return nothing, for which CUDA C has no name. On the emulation they are atomics.
 */
#pragma once

#include <stdint.h>

#include "kernels/device/launch.h"

#if defined(__CUDA_ARCH__)
#define GLOBAL_ADDRESS(p) __cvta_generic_to_global(p)
#endif

/* Adds one float, or four aligned ones (from sm_90 on one request), to memory that others add to as well. */
static __device__ inline void reduce_add(float *to, float x) {
#if defined(__CUDA_ARCH__)
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(GLOBAL_ADDRESS(to)), "f"(x) : "memory");
#else
    atomicAdd(to, x);
#endif
}

static __device__ inline void reduce_add(float4 *to, float4 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(GLOBAL_ADDRESS(to)),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#else
    float *at = (float *)to;
    reduce_add(at, x.x), reduce_add(at + 1, x.y), reduce_add(at + 2, x.z), reduce_add(at + 3, x.w);
#endif
}
