/* SPDX-License-Identifier: MIT
 *
 * CUDA's atomics, relaxed as on a GPU: they make an access indivisible and order nothing without fences. One CPU
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

/* Blocks do not talk to each other by atomics of floats, which are many. */
template <class T> void switch_point_of() {
    if constexpr (std::is_integral_v<T>) switch_point();
}

/* Returns the old value. */
template <class T, class F> T atomic_update(T *p, F next_of, Site site) {
    aligned(p, site);
    switch_point_of<T>();
    T old, next;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        next = next_of(old);
    } while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    atomic_done(p, true);
    switch_point_of<T>();
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
    emulation::switch_point();
    bool swapped =
        __atomic_compare_exchange(p, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    emulation::atomic_done(p, swapped);
    emulation::switch_point();
    return expected;
}

inline void __threadfence() {
    emulation::fence();
}

inline void __threadfence_block() {
    emulation::fence(emulation::Scope::block);
}
