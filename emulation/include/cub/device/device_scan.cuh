/* SPDX-License-Identifier: MIT
 *
 * Emulated cub::DeviceScan. Input and output may be the same array.
 */
#pragma once

#include <type_traits>

#include "cub/emulated_call.h"

namespace cub {

struct DeviceScan {
    /* Sums in the type of the input, as CUB does. */
    template <class In, class Out, class Count>
    static cudaError_t ExclusiveSum(void *temp, size_t &temp_bytes, In in, Out out, Count num_items,
                                    cudaStream_t stream = nullptr) {
        using Sum = std::decay_t<decltype(*in)>;
        const size_t n = size_t(num_items);
        return emulated_call("cub::DeviceScan::ExclusiveSum", temp, temp_bytes,
                             emulated_temp_bytes(n), stream, [=] {
                                 Sum before = {};
                                 for (size_t i = 0; i < n; i++) {
                                     const Sum with = Sum(before + in[i]);
                                     out[i] = before;
                                     before = with;
                                 }
                             });
    }
};

} // namespace cub
