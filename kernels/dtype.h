/* SPDX-License-Identifier: MIT
 *
 * Element types of weights. Arithmetic is always in single precision: a read widens the element, a
 * write rounds it to nearest, ties to even.
 */
#ifndef EMBFUSE_DTYPE_H
#define EMBFUSE_DTYPE_H

#include <stdint.h>
#include <string.h>

/* Functions that loops call must be inlined: compilers do not vectorize a loop with a call. */
#ifdef __CUDACC__
#define HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define HOST_DEVICE static inline __attribute__((always_inline))
#endif

enum dtype { FP32, BF16, DTYPE_COUNT };

HOST_DEVICE int64_t dtype_bytes(enum dtype type) {
    return type == FP32 ? 4 : 2;
}

/* Bounds of the error of one rounding to the type: dtype_unit relative to the value, dtype_tiny
 * absolute, for values below the smallest normal number. */
static inline double dtype_unit(enum dtype type) {
    return type == FP32 ? 0x1p-24 : 0x1p-8;
}

static inline double dtype_tiny(enum dtype type) {
    return type == FP32 ? 0x1p-149 : 0x1p-133;
}

/* Values from here on may be rounded to infinity. */
static inline double dtype_limit(enum dtype type) {
    return type == FP32 ? 0x1.ffffffp127 : 0x1.ffp127;
}

/* bfloat16 is the upper half of a float. */
HOST_DEVICE float bf16_widen(uint16_t bits) {
    union {
        uint32_t bits;
        float value;
    } x = {(uint32_t)bits << 16};
    return x.value;
}

/* A NaN is truncated and made quiet, so it stays a NaN. */
HOST_DEVICE uint16_t bf16_round(float value) {
    union {
        float value;
        uint32_t bits;
    } x = {value};
    const uint32_t nearest = (x.bits + 0x7fffu + (x.bits >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? x.bits >> 16 | 0x40u : nearest);
}

/* Element `i` of a row of that type. */
HOST_DEVICE float dtype_get(enum dtype type, const void *row, int64_t i) {
    return type == FP32 ? ((const float *)row)[i] : bf16_widen(((const uint16_t *)row)[i]);
}

HOST_DEVICE void dtype_set(enum dtype type, void *row, int64_t i, float value) {
    if (type == FP32)
        ((float *)row)[i] = value;
    else
        ((uint16_t *)row)[i] = bf16_round(value);
}

/* What dtype_get() finds after dtype_set(). */
static inline float dtype_round(enum dtype type, float value) {
    return type == FP32 ? value : bf16_widen(bf16_round(value));
}

#endif
