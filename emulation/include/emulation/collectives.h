/* SPDX-License-Identifier: MIT
 *
 * CUDA's barriers and warp collectives. Between them lanes run independently, the weakest schedule
 * that a GPU may choose.
 */
#pragma once

#include <cstring>
#include <type_traits>

#include "emulation/device.h"

/* --- the block */
inline void __syncthreads(emulation::Site site = emulation::here()) {
    emulation::block_barrier(emulation::BarrierOp::none, 0, site);
}

inline int __syncthreads_count(int predicate, emulation::Site site = emulation::here()) {
    return emulation::block_barrier(emulation::BarrierOp::count, predicate, site);
}

inline int __syncthreads_and(int predicate, emulation::Site site = emulation::here()) {
    return emulation::block_barrier(emulation::BarrierOp::all, predicate, site);
}

inline int __syncthreads_or(int predicate, emulation::Site site = emulation::here()) {
    return emulation::block_barrier(emulation::BarrierOp::any, predicate, site);
}

/* --- the warp: values travel as 64 bits */
namespace emulation {

template <class T> uint64_t to_bits(T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
T shuffle(WarpOp op, unsigned mask, T value, int parameter, int width, Site site) {
    return from_bits<T>(warp_collective(op, mask, {to_bits(value), parameter, width}, site));
}

inline unsigned vote(WarpOp op, unsigned mask, int predicate, Site site) {
    return unsigned(warp_collective(op, mask, {predicate != 0, 0, warpSize}, site));
}

/* int and unsigned only, as in CUDA; the sum needs no sign. */
template <class T>
T reduce(WarpOp for_signed, WarpOp for_unsigned, unsigned mask, T value, Site site) {
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>);
    WarpOp op = std::is_signed_v<T> ? for_signed : for_unsigned;
    return from_bits<T>(warp_collective(op, mask, {to_bits(value), 0, warpSize}, site));
}

} // namespace emulation

inline void __syncwarp(unsigned mask = 0xffffffffu, emulation::Site site = emulation::here()) {
    emulation::warp_collective(emulation::WarpOp::sync, mask, {0, 0, warpSize}, site);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
              emulation::Site site = emulation::here()) {
    return emulation::shuffle(emulation::WarpOp::shuffle, mask, value, lane, width, site);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 emulation::Site site = emulation::here()) {
    return emulation::shuffle(emulation::WarpOp::shuffle_up, mask, value, int(delta), width, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   emulation::Site site = emulation::here()) {
    return emulation::shuffle(emulation::WarpOp::shuffle_down, mask, value, int(delta), width,
                              site);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  emulation::Site site = emulation::here()) {
    return emulation::shuffle(emulation::WarpOp::shuffle_xor, mask, value, lane_mask, width, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              emulation::Site site = emulation::here()) {
    return emulation::vote(emulation::WarpOp::ballot, mask, predicate, site);
}

inline int __any_sync(unsigned mask, int predicate, emulation::Site site = emulation::here()) {
    return int(emulation::vote(emulation::WarpOp::any, mask, predicate, site));
}

inline int __all_sync(unsigned mask, int predicate, emulation::Site site = emulation::here()) {
    return int(emulation::vote(emulation::WarpOp::all, mask, predicate, site));
}

template <class T>
unsigned __match_any_sync(unsigned mask, T value, emulation::Site site = emulation::here()) {
    return unsigned(emulation::warp_collective(emulation::WarpOp::match_any, mask,
                                               {emulation::to_bits(value), 0, warpSize}, site));
}

template <class T>
T __reduce_add_sync(unsigned mask, T value, emulation::Site site = emulation::here()) {
    return emulation::reduce(emulation::WarpOp::add, emulation::WarpOp::add, mask, value, site);
}

template <class T>
T __reduce_min_sync(unsigned mask, T value, emulation::Site site = emulation::here()) {
    return emulation::reduce(emulation::WarpOp::min_signed, emulation::WarpOp::min_unsigned, mask,
                             value, site);
}

template <class T>
T __reduce_max_sync(unsigned mask, T value, emulation::Site site = emulation::here()) {
    return emulation::reduce(emulation::WarpOp::max_signed, emulation::WarpOp::max_unsigned, mask,
                             value, site);
}
