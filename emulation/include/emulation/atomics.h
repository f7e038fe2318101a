/* SPDX-License-Identifier: MIT
 *
 * CUDA's atomics, relaxed as on a GPU: they make an access indivisible and order nothing. One CPU
 * thread runs all kernels, but the race detector must see atomic accesses.
 */
#pragma once

#include <type_traits>

#include "emulation/device.h"

namespace emulation {

template <class T, class... Allowed> constexpr bool is_one_of = (std::is_same_v<T, Allowed> || ...);

/* The types of CUDA's integer atomics. uint64_t is another type, which nvcc refuses, too. */
template <class T>
constexpr bool is_atomic_integer = is_one_of<T, int, unsigned, long long, unsigned long long>;

/* Keeps a parameter out of template deduction, so that atomicAdd(&unsigned_sum, 1) works. */
template <class T> struct Same { using type = T; };
template <class T> using same = typename Same<T>::type;

/* Returns the old value. */
template <class T, class F> T atomic_update(T *p, F next_of, Site site) {
    aligned(p, site);
    T old, next;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        next = next_of(old);
    } while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

} // namespace emulation

template <class T>
T atomicAdd(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_one_of<T, int, unsigned, unsigned long long, float, double>);
    return emulation::atomic_update(
        p, [value](T old) { return T(old + value); }, site);
}

/* Adds member by member: as on a GPU, the vector as a whole is not indivisible. */
inline float2 atomicAdd(float2 *p, float2 value, emulation::Site site = emulation::here()) {
    emulation::aligned(p, site);
    return {atomicAdd(&p->x, value.x, site), atomicAdd(&p->y, value.y, site)};
}

inline float4 atomicAdd(float4 *p, float4 value, emulation::Site site = emulation::here()) {
    emulation::aligned(p, site);
    return {atomicAdd(&p->x, value.x, site), atomicAdd(&p->y, value.y, site),
            atomicAdd(&p->z, value.z, site), atomicAdd(&p->w, value.w, site)};
}

template <class T>
T atomicSub(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_one_of<T, int, unsigned>);
    return emulation::atomic_update(
        p, [value](T old) { return T(old - value); }, site);
}

template <class T>
T atomicMax(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_atomic_integer<T>);
    return emulation::atomic_update(
        p, [value](T old) { return old < value ? value : old; }, site);
}

template <class T>
T atomicMin(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_atomic_integer<T>);
    return emulation::atomic_update(
        p, [value](T old) { return value < old ? value : old; }, site);
}

template <class T>
T atomicOr(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_one_of<T, int, unsigned, unsigned long long>);
    return emulation::atomic_update(
        p, [value](T old) { return T(old | value); }, site);
}

template <class T>
T atomicAnd(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_one_of<T, int, unsigned, unsigned long long>);
    return emulation::atomic_update(
        p, [value](T old) { return T(old & value); }, site);
}

template <class T>
T atomicXor(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_one_of<T, int, unsigned, unsigned long long>);
    return emulation::atomic_update(
        p, [value](T old) { return T(old ^ value); }, site);
}

template <class T>
T atomicExch(T *p, emulation::same<T> value, emulation::Site site = emulation::here()) {
    static_assert(emulation::is_one_of<T, int, unsigned, unsigned long long, float>);
    return emulation::atomic_update(
        p, [value](T) { return value; }, site);
}

template <class T>
T atomicCAS(T *p, emulation::same<T> expected, emulation::same<T> value,
            emulation::Site site = emulation::here()) {
    static_assert(emulation::is_one_of<T, int, unsigned, unsigned short, unsigned long long>);
    emulation::aligned(p, site);
    __atomic_compare_exchange(p, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

inline void __threadfence() {
    emulation::fence();
}

inline void __threadfence_block() {
    emulation::fence();
}
