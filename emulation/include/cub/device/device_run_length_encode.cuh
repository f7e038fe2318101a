/* SPDX-License-Identifier: MIT
 *
 * Emulated cub::DeviceRunLengthEncode.
 */
#pragma once

#include "cub/emulated_call.h"

namespace cub {

struct DeviceRunLengthEncode {
    template <class In, class Unique, class Counts, class NumRuns, class Count>
    static cudaError_t Encode(void *temp, size_t &temp_bytes, In in, Unique unique, Counts counts,
                              NumRuns num_runs, Count num_items, cudaStream_t stream = nullptr) {
        size_t n = size_t(num_items);
        /* CUB's own parameter is an int. */
        if (n > size_t(std::numeric_limits<int>::max())) return cudaErrorInvalidValue;
        return emulated_call("cub::DeviceRunLengthEncode::Encode", temp, temp_bytes,
                             emulated_temp_bytes(n), stream, [=] {
                                 size_t runs = 0;
                                 for (size_t i = 0, end; i < n; i = end, runs++) {
                                     for (end = i + 1; end < n && in[end] == in[i];) end++;
                                     unique[runs] = in[i];
                                     counts[runs] = int(end - i);
                                 }
                                 *num_runs = int(runs);
                             });
    }
};

} // namespace cub
