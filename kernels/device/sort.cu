/* SPDX-License-Identifier: MIT */
#include "kernels/device/sort.h"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>

template <class Value>
static cudaError_t sort(void *temp, size_t *temp_bytes, struct sort_buffers *b, uint32_t count,
                        int bits, cudaStream_t stream) {
    cub::DoubleBuffer<uint32_t> keys(b->key[b->now], b->key[!b->now]);
    cub::DoubleBuffer<Value> values((Value *)b->value[b->now], (Value *)b->value[!b->now]);
    cudaError_t status =
        cub::DeviceRadixSort::SortPairs(temp, *temp_bytes, keys, values, count, 0, bits, stream);
    if (temp && keys.Current() != b->key[b->now]) b->now = !b->now;
    return status;
}

cudaError_t sort_pairs(void *temp, size_t *temp_bytes, struct sort_buffers *b, uint32_t count,
                       int bits, cudaStream_t stream) {
    auto sorter = b->wide_values ? sort<uint64_t> : sort<uint32_t>;
    return sorter(temp, temp_bytes, b, count, bits, stream);
}

cudaError_t run_lengths(void *temp, size_t *temp_bytes, const uint32_t *keys, uint32_t *distinct,
                        uint32_t *lengths, uint32_t *runs, uint32_t count, cudaStream_t stream) {
    return cub::DeviceRunLengthEncode::Encode(temp, *temp_bytes, keys, distinct, lengths, runs,
                                              count, stream);
}

cudaError_t prefix_sums(void *temp, size_t *temp_bytes, const uint32_t *from, uint32_t *to,
                        uint32_t count, cudaStream_t stream) {
    return cub::DeviceScan::ExclusiveSum(temp, *temp_bytes, from, to, count, stream);
}
