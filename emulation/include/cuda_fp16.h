/* SPDX-License-Identifier: MIT
 *
 * Emulated CUDA: half precision as storage. Kernels compute in float.
 */
#ifndef EMULATED_CUDA_FP16_H
#define EMULATED_CUDA_FP16_H

#include <cmath>
#include <cstdint>
#include <cstring>

struct alignas(2) __half {
    uint16_t emulated_bits;
};

struct alignas(4) __half2 {
    __half x, y;
};

using half = __half;
using half2 = __half2;

/* Rounds to nearest even; any NaN becomes 0x7fff. */
inline __half __float2half_rn(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {0x7fff};
    if (magnitude >= 0x47800000u) return {uint16_t(sign | 0x7c00u)}; /* 65536 or more */
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 the result is a multiple of 2^-24. */
        float scaled = std::fabs(value) * 16777216.0f;
        return {uint16_t(sign | uint32_t(std::nearbyint(scaled)))};
    }
    /* The bias of the exponent becomes 15, and 13 bits go. A carry may rightly reach infinity. */
    uint32_t rounded = magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u);
    return {uint16_t(sign | rounded >> 13)};
}

inline __half __float2half(float value) {
    return __float2half_rn(value);
}

inline float __half2float(__half value) {
    uint32_t sign = uint32_t(value.emulated_bits & 0x8000u) << 16;
    uint32_t exponent = value.emulated_bits >> 10 & 31u, mantissa = value.emulated_bits & 0x3ffu;
    if (exponent == 0) {
        float magnitude = float(mantissa) / 16777216.0f;
        return sign ? -magnitude : magnitude;
    }
    uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 31) bits = mantissa ? 0x7fffffffu : sign | 0x7f800000u;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

inline __half __ushort_as_half(unsigned short bits) {
    return {bits};
}

inline unsigned short __half_as_ushort(__half value) {
    return value.emulated_bits;
}

#endif
