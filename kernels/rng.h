/* SPDX-License-Identifier: MIT
 *
 * Counter-based random numbers: value n of a stream is a pure function of (key, n), so any thread
 * can make any part of any stream. Streams use splitmix64's output function (Steele, Lea and Flood,
 * OOPSLA 2014) over a keyed counter. Rows of floats use murmur3's 32-bit finalizer.
 */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define RNG_FN __host__ __device__ static inline
#else
#define RNG_FN static inline
#endif

RNG_FN uint64_t mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The key of a sub-stream: streams with different (key, a) are independent. */
RNG_FN uint64_t rng_key(uint64_t key, uint64_t a) {
    return mix64(key + 0x9e3779b97f4a7c15u * (a + 1));
}

/* Number n of stream key. */
RNG_FN uint64_t rng_u64(uint64_t key, uint64_t n) {
    return mix64(key ^ mix64(n + 0x9e3779b97f4a7c15u));
}

/* Uniform in [0, 1), 53 bits. */
RNG_FN double rng_unit(uint64_t key, uint64_t n) {
    return (double)(rng_u64(key, n) >> 11) * 0x1p-53;
}

/* Uniform 32 bits. Cheap enough to fill tables; vectorises over n. */
RNG_FN uint32_t rng_u32(uint32_t key, uint32_t n) {
    uint32_t z = key + n * 0x9e3779b9u;
    z = (z ^ (z >> 16)) * 0x85ebca6bu;
    z = (z ^ (z >> 13)) * 0xc2b2ae35u;
    return z ^ (z >> 16);
}
