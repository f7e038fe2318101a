/* SPDX-License-Identifier: MIT
 *
 * Emulated cub::DeviceReduce.
 */
#pragma once

#include <type_traits>

#include "cub/emulated_call.h"

namespace cub {

struct DeviceReduce {
    template <class In, class Out, class Count>
    static cudaError_t Sum(void *temp, size_t &temp_bytes, In in, Out out, Count num_items,
                           cudaStream_t stream = nullptr) {
        using Value = std::decay_t<decltype(*in)>;
        return reduce("cub::DeviceReduce::Sum", temp, temp_bytes, in, out, size_t(num_items),
                      stream, Value(), [](Value a, Value b) { return Value(a + b); });
    }

    template <class In, class Out, class Count>
    static cudaError_t Max(void *temp, size_t &temp_bytes, In in, Out out, Count num_items,
                           cudaStream_t stream = nullptr) {
        using Value = std::decay_t<decltype(*in)>;
        return reduce("cub::DeviceReduce::Max", temp, temp_bytes, in, out, size_t(num_items),
                      stream, std::numeric_limits<Value>::lowest(),
                      [](Value a, Value b) { return a < b ? b : a; });
    }

  private:
    template <class In, class Out, class Value, class F>
    static cudaError_t reduce(const char *name, void *temp, size_t &temp_bytes, In in, Out out,
                              size_t n, cudaStream_t stream, Value first, F join) {
        return emulated_call(name, temp, temp_bytes, emulated_temp_bytes(n), stream, [=] {
            Value value = first;
            for (size_t i = 0; i < n; i++) value = join(value, in[i]);
            *out = value;
        });
    }
};

} // namespace cub
