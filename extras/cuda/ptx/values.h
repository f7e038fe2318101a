/* SPDX-License-Identifier: MIT
 *
 * The types of PTX, and functions for its instructions where C++ has no operator.
 */
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "extras/cuda/ptx/watch.h"

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;
using pred = bool;

namespace ptx {

/* Ends the process with a report of the instruction. */
[[noreturn]] void defect(const Instruction &at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

template <class T, class U> inline __attribute__((always_inline)) T bits(U value) {
    static_assert(sizeof(T) == sizeof(U));
    return __builtin_bit_cast(T, value);
}

template <class T> T shl(T a, u32 n) {
    return n >= sizeof(T) * 8 ? T(0) : T(a << n);
}
template <class T> T shr(T a, u32 n) {
    if (n >= sizeof(T) * 8) n = sizeof(T) * 8 - 1, a = std::is_signed_v<T> ? a : T(0);
    return T(a >> n);
}

template <class T> T high(T a, T b) {
    if constexpr (sizeof(T) == 8) {
        using W = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        return T(W(a) * W(b) >> 64);
    } else {
        using W = std::conditional_t<std::is_signed_v<T>, s64, u64>;
        return T(W(a) * W(b) >> (sizeof(T) * 8));
    }
}

/* Refuses divisions for which a device may give any number. */
template <class T> void divisible(T a, T b, const Instruction &at) {
    if (b == 0) defect(at, "a division by 0");
    if (std::is_signed_v<T> && a == std::numeric_limits<T>::min() && b == T(-1))
        defect(at, "a quotient that its type does not hold");
}
template <class T> T div(T a, T b, const Instruction &at) {
    divisible(a, b, at);
    return T(a / b);
}
template <class T> T rem(T a, T b, const Instruction &at) {
    divisible(a, b, at);
    return T(a % b);
}

/* A NaN loses against a number, and -0 is less than 0. */
template <class T> T fmin(T a, T b) {
    if (a == b) return std::signbit(a) ? a : b;
    return a < b || std::isnan(b) ? a : b;
}
template <class T> T fmax(T a, T b) {
    if (a == b) return std::signbit(a) ? b : a;
    return a > b || std::isnan(b) ? a : b;
}

/* Converts a whole number. A value out of range becomes the limit, and NaN becomes 0. */
template <class T, class F> T to_integer(F a) {
    constexpr F least = F(std::numeric_limits<T>::min()), most = F(std::numeric_limits<T>::max());
    if (std::isnan(a)) return 0;
    if (a <= least) return std::numeric_limits<T>::min();
    return a >= most ? std::numeric_limits<T>::max() : T(a);
}

inline u32 clz(u32 a) {
    return a ? u32(__builtin_clz(a)) : 32;
}
inline u32 clz(u64 a) {
    return a ? u32(__builtin_clzll(a)) : 64;
}
inline u32 popc(u32 a) {
    return u32(__builtin_popcount(a));
}
inline u32 popc(u64 a) {
    return u32(__builtin_popcountll(a));
}
template <class T> T brev(T a) {
    T reversed = 0;
    for (unsigned i = 0; i < sizeof(T) * 8; i++)
        reversed |= T((a >> i & 1) << (sizeof(T) * 8 - 1 - i));
    return reversed;
}
inline u32 bfind(u32 a, bool shiftamt) {
    if (!a) return ~0u;
    return shiftamt ? clz(a) : 31 - clz(a);
}
inline u32 bmsk(u32 begin, u32 length) {
    u64 ones = length >= 32 ? 0xffffffffu : (u64(1) << length) - 1;
    return begin >= 32 ? 0 : u32(ones << begin);
}
template <class T> T bfe(T a, u32 begin, u32 length) {
    begin &= 0xff, length &= 0xff;
    T mask = length >= sizeof(T) * 8 ? T(~T(0)) : T((T(1) << length) - 1);
    return shr<T>(a, begin) & mask;
}
/* b with its `length` bits from bit `begin` on replaced by the lowest bits of a. */
template <class T> T bfi(T a, T b, u32 begin, u32 length) {
    begin &= 0xff, length &= 0xff;
    if (begin >= sizeof(T) * 8) return b;
    T ones = length >= sizeof(T) * 8 ? T(~T(0)) : T((T(1) << length) - 1), mask = T(ones << begin);
    return (T(a << begin) & mask) | (b & ~mask);
}
inline u32 prmt(u32 a, u32 b, u32 selectors) {
    u64 from = u64(b) << 32 | a;
    u32 result = 0;
    for (int i = 0; i < 4; i++) {
        u32 s = selectors >> (4 * i) & 15, byte = u32(from >> (8 * (s & 7)) & 0xff);
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
inline u32 lop3(u32 a, u32 b, u32 c, u32 table) {
    u32 result = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}
inline u32 shf(bool left, bool wrap, u32 low, u32 hi, u32 n) {
    n = wrap ? n & 31 : n > 32 ? 32 : n;
    u64 both = u64(hi) << 32 | low;
    return left ? u32(both << n >> 32) : u32(both >> n);
}

/* The value of an fp16; any NaN becomes 0x7fffffff. */
inline f32 from_f16(u16 value) {
    const u32 sign = u32(value & 0x8000u) << 16, exponent = value >> 10 & 31u,
              mantissa = value & 0x3ffu;
    if (exponent == 0) return bits<f32>(sign | bits<u32>(f32(mantissa) / 16777216.0f));
    if (exponent == 31) return bits<f32>(mantissa ? 0x7fffffffu : sign | 0x7f800000u);
    return bits<f32>(sign | (exponent + 112) << 23 | mantissa << 13);
}

} // namespace ptx
