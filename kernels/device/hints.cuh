/* SPDX-License-Identifier: MIT
 *
 * Accesses to global memory that CUDA C has no name for: prefetches into L2, loads with a policy of L2, and
 * additions that return nothing. On the emulation they are what remains of them for correctness.
 */
#pragma once

#include <stdint.h>

#include "kernels/device/launch.h"

#if defined(__CUDA_ARCH__)
#define GLOBAL_ADDRESS(p) __cvta_generic_to_global(p)
#endif

/* Asks for the lines of `bytes` bytes in L2. */
static __device__ inline void prefetch_l2(const void *from, int64_t bytes) {
#if defined(__CUDA_ARCH__)
    const size_t at = GLOBAL_ADDRESS(from);
#if __CUDA_ARCH__ >= 900
    if ((at | (size_t)bytes) % 16 == 0) { /* one request for just these bytes */
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"((unsigned)bytes));
        return;
    }
#endif
    for (int64_t k = 0; k < bytes; k += 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(at + k));
#elif defined(EMULATED_CUDA)
    (void)bytes;
    emulation::prefetch_global(from);
#endif
}

/* What L2 does with lines that are read once: drops them first. */
static __device__ inline uint64_t policy_of_reads(bool once) {
    uint64_t policy = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (once)
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    else
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
#endif
    (void)once;
    return policy;
}

/* Loads 16 or 8 aligned bytes under a policy. No kernel of the step writes them. */
static __device__ inline void load_under(uint64_t policy, const void *from, uint4 *to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(to->x), "=r"(to->y), "=r"(to->z), "=r"(to->w)
        : "l"(GLOBAL_ADDRESS(from)), "l"(policy));
#else
    (void)policy;
    *to = *(const uint4 *)from;
#endif
}

static __device__ inline void load_under(uint64_t policy, const void *from, uint2 *to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
        : "=r"(to->x), "=r"(to->y)
        : "l"(GLOBAL_ADDRESS(from)), "l"(policy));
#else
    (void)policy;
    *to = *(const uint2 *)from;
#endif
}

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
