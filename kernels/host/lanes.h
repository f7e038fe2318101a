/* SPDX-License-Identifier: MIT
 *
 * Elements of a row of any type as registers of floats.
 */
#pragma once

#if defined(__AVX2__) || defined(__F16C__)
#include <immintrin.h>
#endif
#include <string.h>

#include "kernels/host/walk.h"

/* LANES: floats per register. REGISTERS: registers per sum; compilers spill more than these. */
#if defined(__AVX512F__)
enum { LANES = 16, REGISTERS = 8 };
#elif defined(__AVX__)
enum { LANES = 8, REGISTERS = 8 };
#else
enum { LANES = 4, REGISTERS = 8 };
#endif

/* One register of floats; _at: the same in unaligned memory. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef lanes lanes_at __attribute__((aligned(sizeof(float)), may_alias));

/* LANES integers. lane_ints also has 0 or -1, or a winner, for each of LANES columns. */
typedef uint32_t lane_words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef int32_t lane_ints __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef lane_ints lane_ints_at __attribute__((aligned(sizeof(int32_t)), may_alias));

/* yes where `which` is -1, no where it is 0. */
ALWAYS_INLINE lane_ints choose_lanes(lane_ints which, lane_ints yes, lane_ints no) {
    return (yes & which) | (no & ~which);
}

/* LANES integers of 16 or of 8 bits in memory, and LANES integers below 2^16 or 2^8. gcc 12 takes up to five times the
 * instructions for __builtin_convertvector() of eight. */
#if defined(__AVX2__) && !defined(__AVX512F__)
ALWAYS_INLINE lane_words halves_get(const uint16_t *from) {
    return (lane_words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)from));
}

ALWAYS_INLINE lane_words bytes_get(const uint8_t *from) {
    return (lane_words)_mm256_cvtepu8_epi32(_mm_loadu_si64(from));
}

ALWAYS_INLINE __m128i packed(lane_words x) {
    const __m256i all = (__m256i)x;
    return _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

ALWAYS_INLINE void halves_put(uint16_t *to, lane_words x) {
    _mm_storeu_si128((__m128i_u *)to, packed(x));
}

ALWAYS_INLINE void bytes_put(uint8_t *to, lane_words x) {
    _mm_storeu_si64(to, _mm_packus_epi16(packed(x), packed(x)));
}
#else
typedef uint16_t lane_halves
    __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(1), may_alias));
typedef uint8_t lane_bytes
    __attribute__((vector_size(LANES * sizeof(uint8_t)), aligned(1), may_alias));

ALWAYS_INLINE lane_words halves_get(const uint16_t *from) {
    return __builtin_convertvector(*(const lane_halves *)from, lane_words);
}

ALWAYS_INLINE lane_words bytes_get(const uint8_t *from) {
    return __builtin_convertvector(*(const lane_bytes *)from, lane_words);
}

ALWAYS_INLINE void halves_put(uint16_t *to, lane_words x) {
    *(lane_halves *)to = __builtin_convertvector(x, lane_halves);
}

ALWAYS_INLINE void bytes_put(uint8_t *to, lane_words x) {
    *(lane_bytes *)to = __builtin_convertvector(x, lane_bytes);
}
#endif

/* LANES elements of bf16, with the bits of dtype_widen(). */
ALWAYS_INLINE lanes bf16_lanes(const uint16_t *from) {
    return (lanes)(halves_get(from) << 16);
}

/* LANES elements of fp8, with the bits of dtype_widen(). */
ALWAYS_INLINE lanes fp8_lanes(const uint8_t *from) {
    const lane_ints x = (lane_ints)bytes_get(from), code = x & 0x7f;
    const lane_ints normal = (code << 20) + (120 << 23), none = {0};
    const lane_ints small = (lane_ints)(__builtin_convertvector(code, lanes) * 0x1p-9f);
    const lane_ints finite = choose_lanes(code < 8, small, normal);
    return (lanes)(choose_lanes(code == 0x7f, none + 0x7fc00000, finite) | (x & 0x80) << 24);
}

/* LANES elements of fp16, with the bits of dtype_widen() except for the payload of a NaN. */
ALWAYS_INLINE lanes fp16_lanes(const uint16_t *from) {
#if defined(__AVX512F__)
    return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)from));
#elif defined(__F16C__)
    return (lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)from));
#else
    lanes to;
    for (int k = 0; k < LANES; k++) to[k] = dtype_get(FP16, from, k);
    return to;
#endif
}

/* LANES elements from column `column` on. */
ALWAYS_INLINE lanes row_lanes(const enum dtype type, const void *row, int32_t column) {
    if (type == FP32) return *(const lanes_at *)((const float *)row + column);
    if (type == FP16) return fp16_lanes((const uint16_t *)row + column);
    if (type == BF16) return bf16_lanes((const uint16_t *)row + column);
    return fp8_lanes((const uint8_t *)row + column);
}

/* The next three functions round to the nearest value, with the bits of dtype_narrow() except for the payload of a NaN
 * of fp16. */
ALWAYS_INLINE void bf16_put_lanes(uint16_t *to, lanes from) {
    const lane_words bits = (lane_words)from, nan = (lane_words)(from != from);
    const lane_words below = 0x7fff + (bits >> 16 & 1);
    const lane_words all = ((bits + (below & ~nan)) | (nan & 0x400000)) >> 16;
    halves_put(to, all);
}

ALWAYS_INLINE void fp16_put_lanes(uint16_t *to, lanes from) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i_u *)to, _mm512_cvtps_ph((__m512)from, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    _mm_storeu_si128((__m128i_u *)to, _mm256_cvtps_ph((__m256)from, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int k = 0; k < LANES; k++) dtype_set(FP16, to, k, from[k]);
#endif
}

/* A subnormal result is the number of units in value + 2^14, whose last place is such a unit. */
ALWAYS_INLINE void fp8_put_lanes(uint8_t *to, lanes from) {
    enum { LEAST = 121 << 23, TOP = 0x7f, UNIT_IN_LAST_PLACE = 141 << 23 }; /* 2^-6, NaN, 2^14 */
    const lane_ints all = (lane_ints)from, bits = all & 0x7fffffff;
    const lane_words normal = ((lane_words)bits - (120 << 23) + 0x7ffff + (bits >> 20 & 1)) >> 20;
    const lane_ints small = (lane_ints)((lanes)bits + 0x1p14f) - UNIT_IN_LAST_PLACE;
    lane_ints code = choose_lanes(bits < LEAST, small, (lane_ints)normal);
    code = choose_lanes(code >= TOP, TOP + (bits < 0x7f800000), code); /* the largest, or NaN */
    bytes_put(to, (lane_words)(code | (all >> 24 & 0x80)));
}

/* Writes LANES elements from column `column` on. */
ALWAYS_INLINE void row_put_lanes(const enum dtype type, void *row, int32_t column, lanes x) {
    if (type == FP32) *(lanes_at *)((float *)row + column) = x;
    if (type == BF16) bf16_put_lanes((uint16_t *)row + column, x);
    if (type == FP16) fp16_put_lanes((uint16_t *)row + column, x);
    if (type == FP8) fp8_put_lanes((uint8_t *)row + column, x);
}
