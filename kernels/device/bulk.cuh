/* SPDX-License-Identifier: MIT
 *
 * Bulk copies from global to shared memory, which sm_90 and newer have: one request for a whole row, without
 * registers. Copies arrive at an mbarrier, a word of shared memory: a phase of it ends when so many lanes have
 * announced their bytes, and those have come. Phases alternate between the parities 0 and 1.
 *
 * The emulation copies at once, and a wait is a barrier of the warp. Its translation of PTX counts arrivals and bytes.
 * Source: PTX ISA, "cp.async.bulk", "mbarrier", and "proxy-preserved base causality order".
 */
#pragma once

#include "kernels/device/hints.cuh"
#include "kernels/device/lanes.cuh"

enum { BULK_ALIGN = 16 }; /* of both addresses and of the size */

/* Whether code that is compiled for this architecture has them. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool HAS_BULK = true;
#else
constexpr bool HAS_BULK = false;
#endif
enum { BULK_CAPABILITY = 90 };

#if defined(__CUDA_ARCH__)
static __device__ inline unsigned shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
#endif

/* One lane calls this, before bulk_order(). arrivals: of each phase. */
static __device__ inline void bulk_begin(uint64_t *barrier, int arrivals) {
#if defined(__CUDA_ARCH__)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
#else
    (void)barrier, (void)arrivals;
#endif
}

/* What lanes of this warp have done to shared memory comes before the copies that follow: the begin of a barrier, or
 * reads of what a copy overwrites. PTX orders a copy after ordinary accesses only by a fence between their proxies. All
 * lanes of a warp call this. */
static __device__ inline void bulk_order(site at = here()) {
    __syncwarp(ALL_LANES, at);
#if defined(__CUDA_ARCH__)
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Arrives at the barrier, and copies; 0 bytes: only arrives. */
static __device__ inline void bulk_copy(void *to, const void *from, unsigned bytes,
                                        uint64_t *barrier, uint64_t policy) {
#if defined(__CUDA_ARCH__)
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
    if (bytes)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                     "l"(GLOBAL_ADDRESS(from)), "r"(bytes), "r"(shared_address(barrier)),
                     "l"(policy)
                     : "memory");
#else
    (void)barrier, (void)policy;
    for (unsigned k = 0; k < bytes / BULK_ALIGN; k++)
        ((uint4 *)to)[k] = __ldg((const uint4 *)from + k);
#endif
}

/* Waits until the phase of that parity has ended. All lanes of a warp call this, and see what was copied. */
static __device__ inline void bulk_wait(const uint64_t *barrier, unsigned parity,
                                        site at = here()) {
#if defined(__CUDA_ARCH__)
    for (unsigned ended = 0; !ended;)
        asm volatile("{\n"
                     ".reg .pred ended;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, ended;\n"
                     "}"
                     : "=r"(ended)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    (void)at;
#else
    (void)barrier, (void)parity;
    __syncwarp(ALL_LANES, at);
#endif
}
