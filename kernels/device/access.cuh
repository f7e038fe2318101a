/* SPDX-License-Identifier: MIT
 *
 * Addresses and accesses that take one machine instruction each. From plain C++ nvcc makes three or four
 * instructions of the address of a row, and looks for the window of shared memory again and again. On the emulation,
 * and in the host's half of a compilation, they are plain accesses.
 */
#pragma once

#include "kernels/device/row.cuh"

/* Hides from nvcc how a pointer was computed. Then an offset from it by a number times 16 is one instruction; otherwise
 * nvcc computes the pointer again for each offset. */
template <class T> static __device__ __forceinline__ void keep_sum(T **p) {
#if defined(__CUDA_ARCH__)
    asm("" : "+l"(*p));
#else
    (void)p;
#endif
}

/* An address in global memory. */
template <class T> static __device__ __forceinline__ T *in_global(T *p) {
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(p));
#endif
    return p;
}

/* Asks for the line of an address in L2: one instruction for the lines of all lanes. */
static __device__ __forceinline__ void prefetch_line(const void *from) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
#elif defined(EMULATED_CUDA)
    emulation::prefetch_global(from);
#endif
}

/* --- shared memory by 32-bit addresses */

#if defined(__CUDA_ARCH__)
typedef uint32_t shared_address;
#else
typedef uintptr_t shared_address;
#endif

static __device__ __forceinline__ shared_address shared_address_of(const void *p) {
#if defined(__CUDA_ARCH__)
    return (uint32_t)__cvta_generic_to_shared(p);
#else
    return (uintptr_t)p;
#endif
}

static __device__ __forceinline__ struct quad shared_quad(shared_address at) {
    struct quad q;
#if defined(__CUDA_ARCH__)
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(q.x[0]), "=f"(q.x[1]), "=f"(q.x[2]), "=f"(q.x[3])
                 : "r"(at));
#else
    q = *(const struct quad *)at;
#endif
    return q;
}

static __device__ __forceinline__ uint32_t shared_word(shared_address at) {
    uint32_t x;
#if defined(__CUDA_ARCH__)
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
#else
    x = *(const uint32_t *)at;
#endif
    return x;
}

/* Four words. Another token makes nvcc load them again: because they may have changed, or to keep them out of
 * registers. */
static __device__ __forceinline__ uint4 shared_words(shared_address at, int token) {
    uint4 q;
#if defined(__CUDA_ARCH__)
    asm("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; // %5"
        : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
        : "r"(at), "r"(token));
#else
    (void)token;
    q = *(const uint4 *)at;
#endif
    return q;
}

static __device__ __forceinline__ void shared_put(shared_address at, const struct quad &q) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(q.x[0]), "f"(q.x[1]),
                 "f"(q.x[2]), "f"(q.x[3])
                 : "memory");
#else
    *(struct quad *)at = q;
#endif
}

static __device__ __forceinline__ void shared_put(shared_address at, uint32_t x) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
#else
    *(uint32_t *)at = x;
#endif
}

/* --- whole quads of arrays of any type */

static __device__ __forceinline__ struct quad load_quad(enum dtype type, const char *at) {
    if (type == FP32) return *(const struct quad *)at;
    struct quad_bits bits = {};
    if (type == FP8) {
        bits.x[0] = *(const uint32_t *)at;
    } else {
        const uint2 two = *(const uint2 *)at;
        bits.x[0] = two.x, bits.x[1] = two.y;
    }
    return quad_widen(type, bits);
}

static __device__ __forceinline__ void store_quad(const struct row_format &f, char *at,
                                                  int32_t column, const struct quad &q) {
    struct quad_bits bits = {};
    for (int c = 0; c < LANE_COLUMNS; c++)
        quad_bits_put(f.type, &bits, c, row_format_bits(&f, column + c, q.x[c]));
    if (f.type == FP32)
        *(struct quad *)at = q;
    else if (f.type == FP8)
        *(uint32_t *)at = bits.x[0];
    else
        *(uint2 *)at = make_uint2(bits.x[0], bits.x[1]);
}
