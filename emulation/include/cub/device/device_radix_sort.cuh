/* SPDX-License-Identifier: MIT
 *
 * Emulated cub::DeviceRadixSort: stable, by the bits [begin_bit, end_bit) of integer keys.
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "cub/emulated_call.h"

namespace cub {

template <class T> struct DoubleBuffer {
    T *d_buffers[2] = {};
    int selector = 0;

    DoubleBuffer() = default;
    DoubleBuffer(T *current, T *alternate) : d_buffers{current, alternate} {}
    T *Current() {
        return d_buffers[selector];
    }
    T *Alternate() {
        return d_buffers[selector ^ 1];
    }
};

/* The bits of a key that the sort compares. */
template <class Key> uint64_t emulated_digits(Key key, int begin_bit, int end_bit) {
    static_assert(std::is_integral_v<Key>);
    using Bits = std::make_unsigned_t<Key>;
    Bits bits = Bits(key);
    if (std::is_signed_v<Key>) bits ^= Bits(Bits(1) << (sizeof(Key) * 8 - 1));
    uint64_t mask =
        end_bit - begin_bit < 64 ? (uint64_t(1) << (end_bit - begin_bit)) - 1 : ~uint64_t(0);
    return begin_bit < 64 ? uint64_t(bits) >> begin_bit & mask : 0;
}

/* Input and output must not overlap. */
template <class Key, class Value>
void emulated_sort(const Key *keys, Key *keys_out, const Value *values, Value *values_out, size_t n,
                   int begin_bit, int end_bit) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [=](size_t a, size_t b) {
        return emulated_digits(keys[a], begin_bit, end_bit) <
               emulated_digits(keys[b], begin_bit, end_bit);
    });
    for (size_t i = 0; i < n; i++) {
        keys_out[i] = keys[order[i]];
        values_out[i] = values[order[i]];
    }
}

struct DeviceRadixSort {
    /* Afterwards Current() has the result. The buffers change roles with each pass over eight bits,
     * at the call, even if the work is only recorded. */
    template <class Key, class Value, class Count>
    static cudaError_t SortPairs(void *temp, size_t &temp_bytes, DoubleBuffer<Key> &keys,
                                 DoubleBuffer<Value> &values, Count num_items, int begin_bit = 0,
                                 int end_bit = sizeof(Key) * 8, cudaStream_t stream = nullptr) {
        size_t n = size_t(num_items);
        int passes = n > 0 ? (end_bit - begin_bit + 7) / 8 : 0;
        Key *k = keys.Current(), *other_k = keys.Alternate();
        Value *v = values.Current(), *other_v = values.Alternate();
        cudaError_t error =
            emulated_call("cub::DeviceRadixSort::SortPairs", temp, temp_bytes,
                          emulated_temp_bytes(n), stream, [=] {
                              if (passes == 0) return;
                              emulated_sort(k, other_k, v, other_v, n, begin_bit, end_bit);
                              bool back = passes % 2 == 0;
                              if (back) std::copy_n(other_k, n, k), std::copy_n(other_v, n, v);
                              emulated_scribble(back ? other_k : k, n * sizeof(Key));
                              emulated_scribble(back ? other_v : v, n * sizeof(Value));
                          });
        if (temp && error == cudaSuccess) {
            keys.selector ^= passes % 2;
            values.selector ^= passes % 2;
        }
        return error;
    }
};

} // namespace cub
