/* SPDX-License-Identifier: MIT
 *
 * Element types of weights, momenta and gradients. Arithmetic is always in single precision: a read
 * widens the element, a write rounds it, to the nearest value (ties to even) or stochastically.
 *
 *   fp32, fp16   IEEE 754
 *   bf16         the upper half of an fp32
 *   fp8          E4M3 (Micikevicius et al. 2022, "FP8 formats for deep learning"): no infinity; up to
 *                448. Larger finite values are rounded to 448; infinities and NaNs to NaN
 *
 * Stochastic rounding takes the upper neighbour with a probability equal to the distance from the
 * lower one, so the expected value is the value itself. Its random word is a pure function of (seed,
 * table, step, array, row, column): every kernel, thread count and device gives the same bits.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Functions that loops call must be inlined: compilers do not vectorize a loop with a call. */
#ifdef __CUDACC__
#define HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define HOST_DEVICE static inline __attribute__((always_inline))
#endif

enum dtype { FP32, BF16, FP16, FP8, DTYPE_COUNT };

/* How a write to a type narrower than fp32 rounds. */
enum rounding { ROUND_NEAREST, ROUND_STOCHASTIC };

HOST_DEVICE int64_t dtype_bytes(enum dtype type) {
    return type == FP32 ? 4 : type == FP8 ? 1 : 2;
}

/* Bits of a mantissa without its leading one, and exponent of the smallest normal number. */
HOST_DEVICE int dtype_mantissa(enum dtype type) {
    return type == FP32 ? 23 : type == FP16 ? 10 : type == BF16 ? 7 : 3;
}

HOST_DEVICE int dtype_least_exponent(enum dtype type) {
    return type == FP16 ? -14 : type == FP8 ? -6 : -126;
}

HOST_DEVICE uint32_t float_bits(float value) {
    union {
        float value;
        uint32_t bits;
    } x = {value};
    return x.bits;
}

HOST_DEVICE float bits_float(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } x = {bits};
    return x.value;
}

/* --- bf16 */

HOST_DEVICE float bf16_widen(uint32_t bits) {
    return bits_float(bits << 16);
}

/* below: from rounding_below(); a NaN is made quiet, so it stays a NaN. */
HOST_DEVICE uint32_t bf16_narrow(float value, uint32_t below) {
    const uint32_t bits = float_bits(value);
    return (value != value ? bits | 0x400000u : bits + below) >> 16;
}

/* --- fp16 and fp8: a sign, an exponent and a mantissa in the upper, middle and lower bits */

/* The code of infinity, or of NaN if there is no infinity, and the sign. */
HOST_DEVICE uint32_t small_float_top(enum dtype type) {
    return type == FP16 ? 0x7c00u : 0x7fu;
}

HOST_DEVICE uint32_t small_float_sign(enum dtype type) {
    return type == FP16 ? 0x8000u : 0x80u;
}

HOST_DEVICE float small_float_widen(enum dtype type, uint32_t bits) {
#ifdef __CUDA_ARCH__
    float wide;
    if (type == FP16) {
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"((unsigned short)bits));
        return wide;
    }
#endif
    const int mantissa = dtype_mantissa(type), least = dtype_least_exponent(type);
    const uint32_t top = small_float_top(type), code = bits & (small_float_sign(type) - 1u);
    const uint32_t sign = (bits & small_float_sign(type)) != 0 ? 0x80000000u : 0u;
    const uint32_t normal = (code << (23 - mantissa)) + ((uint32_t)(126 + least) << 23);
    const float unit = bits_float((uint32_t)(127 + least - mantissa) << 23); /* of subnormals */
    const uint32_t small = float_bits((float)(int32_t)code * unit);
    const uint32_t odd = type == FP16 ? normal | 0x7f800000u : 0x7fc00000u;
    return bits_float(sign | (code >= top ? odd : code >> mantissa ? normal : small));
}

/* What is added before the bits below the last place are cut off: half a unit of the last place for the
 * nearest value, less one if the last place is even; or the upper bits of a random word. */
HOST_DEVICE uint32_t rounding_below(enum rounding how, uint32_t word, uint32_t bits, int cut) {
    const uint32_t nearest = (1u << (cut - 1)) - 1u + (bits >> cut & 1u);
    return how == ROUND_STOCHASTIC ? word >> (32 - cut) : nearest;
}

HOST_DEVICE uint32_t small_float_narrow(enum dtype type, float value, enum rounding how,
                                        uint32_t word) {
    enum { MOST_CUT = 31 };
    const int mantissa = dtype_mantissa(type), least = dtype_least_exponent(type);
    const uint32_t all = float_bits(value), bits = all & 0x7fffffffu, top = small_float_top(type);
    const int exponent = (int)(bits >> 23) - 127, deep = least - exponent;
    /* A subnormal result is a whole number of units: more bits are cut off, and the leading one is
     * among the bits that stay. */
    const bool small = deep > 0;
    int cut = 23 - mantissa + (small ? deep : 0), gone = cut > MOST_CUT ? cut - MOST_CUT : 0;
    gone = gone > 31 ? 31 : gone;
    cut = cut > MOST_CUT ? MOST_CUT : cut;
    const uint32_t whole = ((bits & 0x7fffffu) | 0x800000u) >> gone;
    const uint32_t from = small ? whole : bits - ((uint32_t)(126 + least) << 23);
    uint32_t code = (from + rounding_below(how, word, from, cut)) >> cut;
    /* FP16 has an infinity; FP8 does not, and saturates. */
    const uint32_t most = type == FP16 ? top : top - 1u;
    code = code > most ? most : code;
    const uint32_t odd = type == FP16 ? top | (bits > 0x7f800000u ? 0x200u : 0u) : top;
    return (bits >= 0x7f800000u ? odd : code) | (all >> 31 ? small_float_sign(type) : 0u);
}

/* --- any type */

/* The element with these bits. */
HOST_DEVICE float dtype_widen(enum dtype type, uint32_t bits) {
    if (type == FP32) return bits_float(bits);
    if (type == BF16) return bf16_widen(bits);
    return small_float_widen(type, bits);
}

/* The bits of the rounded value. word: random, for ROUND_STOCHASTIC. */
HOST_DEVICE uint32_t dtype_narrow(enum dtype type, float value, enum rounding how, uint32_t word) {
    if (type == FP32) return float_bits(value);
    if (type == BF16) return bf16_narrow(value, rounding_below(how, word, float_bits(value), 16));
    return small_float_narrow(type, value, how, word);
}

/* Element `i` of a row of that type: its bits, and its value. */
HOST_DEVICE uint32_t dtype_bits(enum dtype type, const void *row, int64_t i) {
    if (type == FP32) return float_bits(((const float *)row)[i]);
    return type == FP8 ? ((const uint8_t *)row)[i] : ((const uint16_t *)row)[i];
}

HOST_DEVICE float dtype_get(enum dtype type, const void *row, int64_t i) {
    return dtype_widen(type, dtype_bits(type, row, i));
}

HOST_DEVICE void dtype_put(enum dtype type, void *row, int64_t i, uint32_t bits) {
    if (type == FP32)
        ((float *)row)[i] = bits_float(bits);
    else if (type == FP8)
        ((uint8_t *)row)[i] = (uint8_t)bits;
    else
        ((uint16_t *)row)[i] = (uint16_t)bits;
}

/* Rounds to the nearest value. */
HOST_DEVICE void dtype_set(enum dtype type, void *row, int64_t i, float value) {
    dtype_put(type, row, i, dtype_narrow(type, value, ROUND_NEAREST, 0));
}

/* What dtype_get() finds after dtype_set(). */
static inline float dtype_round(enum dtype type, float value) {
    return dtype_widen(type, dtype_narrow(type, value, ROUND_NEAREST, 0));
}

/* --- for the check */

/* Bounds of the error of one rounding: dtype_unit relative to the value, dtype_tiny absolute, for
 * values below the smallest normal number. */
static inline double dtype_unit(enum dtype type, enum rounding how) {
    return ldexp(1, -dtype_mantissa(type) - (how == ROUND_NEAREST));
}

static inline double dtype_tiny(enum dtype type) {
    return ldexp(1, dtype_least_exponent(type) - dtype_mantissa(type));
}

/* Larger values may be rounded to infinity, or to this one. */
static inline double dtype_most(enum dtype type) {
    return type == FP16 ? 65504 : type == BF16 ? 0x1.fep127 : type == FP8 ? 448 : 0x1.fffffep127;
}
