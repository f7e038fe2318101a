/* SPDX-License-Identifier: MIT
 *
 * CUDA's intrinsics: loads and stores with a cache hint, and bits.
 */
#pragma once

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
template <class T> T __ldcg(const T *p, emulation::Site site = emulation::here()) {
    return emulation::load(p, site);
}
template <class T> T __ldcs(const T *p, emulation::Site site = emulation::here()) {
    return emulation::load(p, site);
}
/* Others may write it meanwhile, by atomics. It orders nothing, even before a fence: it is no atomic. */
template <class T> T __ldcv(const T *p, emulation::Site site = emulation::here()) {
    emulation::aligned(p, site);
    emulation::switch_point();
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

template <class T>
void __stcg(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    emulation::store(p, value, site);
}
template <class T>
void __stcs(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
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
inline int __clz(int x) {
    return x ? __builtin_clz(unsigned(x)) : 32;
}
inline unsigned __float_as_uint(float x) {
    return emulation::from_bits<unsigned>(emulation::to_bits(x));
}
inline float __uint_as_float(unsigned x) {
    return emulation::from_bits<float>(x);
}
