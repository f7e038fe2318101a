/* SPDX-License-Identifier: MIT
 *
 * CUDA's intrinsics: loads and stores with a cache hint, bits, and float arithmetic with a given
 * rounding.
 */
#pragma once

#include <cmath>
#include <type_traits>

#include "emulation/atomics.h"
#include "emulation/collectives.h"
#include "emulation/device.h"

namespace emulation {

/* There are no caches to hint, but every build checks the alignment. */
template <class T> T load(const T *p, Site site) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
    return *aligned(p, site);
}

template <class T> void store(T *p, const T &value, Site site) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
    *aligned(p, site) = value;
}

} // namespace emulation

template <class T> T __ldg(const T *p, emulation::Site site = emulation::here()) {
    return emulation::load(p, site);
}
template <class T> T __ldca(const T *p, emulation::Site site = emulation::here()) {
    return emulation::load(p, site);
}
template <class T> T __ldcg(const T *p, emulation::Site site = emulation::here()) {
    return emulation::load(p, site);
}
template <class T> T __ldcs(const T *p, emulation::Site site = emulation::here()) {
    return emulation::load(p, site);
}
template <class T> T __ldlu(const T *p, emulation::Site site = emulation::here()) {
    return emulation::load(p, site);
}
/* Others may write it meanwhile, by atomics. It orders nothing, even before a fence: it is no atomic. */
template <class T> T __ldcv(const T *p, emulation::Site site = emulation::here()) {
    emulation::aligned(p, site);
    emulation::switch_point();
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

template <class T>
void __stwb(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    emulation::store(p, value, site);
}
template <class T>
void __stcg(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    emulation::store(p, value, site);
}
template <class T>
void __stcs(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    emulation::store(p, value, site);
}
template <class T>
void __stwt(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    emulation::store(p, value, site);
}

/* --- bits */
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(unsigned(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++) reversed |= (x >> bit & 1u) << (31 - bit);
    return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return unsigned((unsigned long long)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __mulhi(int a, int b) {
    return int((long long)a * b >> 32);
}
inline unsigned __float_as_uint(float x) {
    return emulation::from_bits<unsigned>(emulation::to_bits(x));
}
inline float __uint_as_float(unsigned x) {
    return emulation::from_bits<float>(x);
}
inline int __float_as_int(float x) {
    return emulation::from_bits<int>(emulation::to_bits(x));
}
inline float __int_as_float(int x) {
    return emulation::from_bits<float>(unsigned(x));
}
inline long long __double_as_longlong(double x) {
    return emulation::from_bits<long long>(emulation::to_bits(x));
}
inline double __longlong_as_double(long long x) {
    return emulation::from_bits<double>(uint64_t(x));
}

/* --- float arithmetic; compile with -ffp-contract=off, or the rounding is wrong */
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __frcp_rn(float x) {
    return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
    return std::sqrt(x);
}
inline float __saturatef(float x) {
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; /* NaN gives 0 */
}
