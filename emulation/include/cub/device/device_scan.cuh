/* SPDX-License-Identifier: MIT
 *
 * Emulated cub::DeviceScan. Input and output may be the same array.
 */
#pragma once

#include <type_traits>

#include "cub/emulated_call.h"

namespace cub {

struct DeviceScan {
    template <class In, class Out, class Count>
    static cudaError_t ExclusiveSum(void *temp, size_t &temp_bytes, In in, Out out, Count num_items,
                                    cudaStream_t stream = nullptr) {
        return sum("cub::DeviceScan::ExclusiveSum", false, temp, temp_bytes, in, out,
                   size_t(num_items), stream);
    }

    template <class In, class Out, class Count>
    static cudaError_t InclusiveSum(void *temp, size_t &temp_bytes, In in, Out out, Count num_items,
                                    cudaStream_t stream = nullptr) {
        return sum("cub::DeviceScan::InclusiveSum", true, temp, temp_bytes, in, out,
                   size_t(num_items), stream);
    }

  private:
    /* Sums in the type of the input, as CUB does. */
    template <class In, class Out>
    static cudaError_t sum(const char *name, bool inclusive, void *temp, size_t &temp_bytes, In in,
                           Out out, size_t n, cudaStream_t stream) {
        using Sum = std::decay_t<decltype(*in)>;
        return emulated_call(name, temp, temp_bytes, emulated_temp_bytes(n), stream, [=] {
            Sum before = {};
            for (size_t i = 0; i < n; i++) {
                Sum with = Sum(before + in[i]);
                out[i] = inclusive ? with : before;
                before = with;
            }
        });
    }
};

} // namespace cub
