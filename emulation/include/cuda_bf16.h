/* SPDX-License-Identifier: MIT
 *
 * Emulated CUDA: bfloat16 as storage, the upper half of a float. Kernels compute in float.
 */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include <cstdint>
#include <cstring>

struct alignas(2) __nv_bfloat16 {
    uint16_t emulated_bits;
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

/* Rounds to nearest even; any NaN becomes 0x7fff. */
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
    return {uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

inline __nv_bfloat16 __float2bfloat16(float value) {
    return __float2bfloat16_rn(value);
}

inline float __bfloat162float(__nv_bfloat16 value) {
    uint32_t bits = uint32_t(value.emulated_bits) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return {bits};
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
    return value.emulated_bits;
}

#endif
