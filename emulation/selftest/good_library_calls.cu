/* SPDX-License-Identifier: MIT
 *
 * The emulated CUB calls, compared with the standard library, and in a graph.
 */
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <numeric>

#include "emulation/selftest/device_array.h"

/* Numbers below 2^bits. */
template <class T> static std::vector<T> random_numbers(size_t n, int bits) {
    uint64_t state = 12345;
    std::vector<T> values(n);
    for (T &v : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v = T(state >> (64 - bits));
    }
    return values;
}

/* Calls twice, as CUB requires; too little storage must be refused. */
template <class Call> static void call_twice(Call call) {
    size_t bytes = 0;
    CHECK(call(nullptr, bytes) == cudaSuccess && bytes > 0);
    DeviceArray<char> temp(bytes);
    size_t small = bytes - 1;
    CHECK(call(temp.device, small) == cudaErrorInvalidValue);
    CHECK(call(temp.device, bytes) == cudaSuccess);
}

/* By the bits [begin, end) of keys, stably. */
template <class Key> static void sort_pairs(int begin, int end) {
    const size_t n = 500;
    const std::vector<Key> keys = random_numbers<Key>(n, 30);
    std::vector<int> positions(n);
    std::iota(positions.begin(), positions.end(), 0);
    DeviceArray<Key> k0(keys), k1(n);
    DeviceArray<int> v0(positions), v1(n), values(n);
    cub::DoubleBuffer<Key> k(k0.device, k1.device);
    cub::DoubleBuffer<int> v(v0.device, v1.device);
    call_twice([&](void *temp, size_t &bytes) {
        return cub::DeviceRadixSort::SortPairs(temp, bytes, k, v, int(n), begin, end);
    });
    const Key mask = Key((uint64_t(1) << (end - begin)) - 1);
    std::stable_sort(positions.begin(), positions.end(), [&](int a, int b) {
        return (keys[size_t(a)] >> begin & mask) < (keys[size_t(b)] >> begin & mask);
    });
    CHECK(k.selector == (end - begin + 7) / 8 % 2 && v.selector == k.selector);
    CHECK(!cudaMemcpy(values.device, v.Current(), n * sizeof(int), cudaMemcpyDeviceToDevice));
    CHECK(values.get() == positions);
    DeviceArray<Key> sorted(n);
    CHECK(!cudaMemcpy(sorted.device, k.Current(), n * sizeof(Key), cudaMemcpyDeviceToDevice));
    for (size_t i = 0; i < n; i++) CHECK(sorted.get()[i] == keys[size_t(positions[i])]);
}

static void radix_sort() {
    for (int end : {8, 12, 20, 32}) sort_pairs<uint32_t>(0, end);
    sort_pairs<uint32_t>(3, 7);
    sort_pairs<uint64_t>(0, 17);
}

static void run_length_encoding() {
    DeviceArray<int> in(std::vector<int>{5, 5, 5, 2, 7, 7, 5}), unique(4), counts(4), runs(1);
    call_twice([&](void *temp, size_t &bytes) {
        return cub::DeviceRunLengthEncode::Encode(temp, bytes, in.device, unique.device,
                                                  counts.device, runs.device, 7);
    });
    CHECK(runs.get()[0] == 4);
    CHECK((unique.get() == std::vector<int>{5, 2, 7, 5}));
    CHECK((counts.get() == std::vector<int>{3, 1, 2, 1}));
}

static void prefix_sums() {
    std::vector<int> values = random_numbers<int>(777, 10), expected(777);
    DeviceArray<int> in(values), out(777);
    call_twice([&](void *temp, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(temp, bytes, in.device, out.device, 777);
    });
    std::exclusive_scan(values.begin(), values.end(), expected.begin(), 0);
    CHECK(out.get() == expected);
}

/* --- a graph of a copy, a kernel, and a library call */

static __global__ void add(int *data, int n, int value) {
    int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) data[i] += value;
}

static void graph_of_library_calls() {
    DeviceArray<int> data(100), sums(100);
    size_t bytes = 0;
    CHECK(!cub::DeviceScan::ExclusiveSum(nullptr, bytes, data.device, sums.device, 100));
    DeviceArray<char> temp(bytes);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    int value = 3;
    CHECK(!cudaMemsetAsync(sums.device, 0, 100 * sizeof(int), stream));
    LAUNCH(add, 4, 32, 0, stream, data.device, 100, value);
    value = 1000; /* too late: the launch has copied it */
    CHECK(
        !cub::DeviceScan::ExclusiveSum(temp.device, bytes, data.device, sums.device, 100, stream));
    CHECK(!cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(!cudaGraphGetNodes(graph, nullptr, &nodes) && nodes == 3);
    CHECK(data.get()[0] == 0); /* nothing has run */
    CHECK(!cudaGraphInstantiate(&exec, graph));
    CHECK(!cudaGraphDestroy(graph));
    for (int i = 1; i <= 3; i++) {
        uint64_t before = emulation_launches();
        CHECK(!cudaGraphLaunch(exec, stream) && !cudaStreamSynchronize(stream));
        CHECK(emulation_launches() == before + 2);
        CHECK(data.get()[99] == 3 * i && sums.get()[99] == 99 * 3 * i);
    }
    CHECK(!cudaGraphExecDestroy(exec) && !cudaStreamDestroy(stream));
}

extern const self_case good_library_calls[] = {
    {"radix sort of pairs", radix_sort},
    {"run-length encoding", run_length_encoding},
    {"prefix sums", prefix_sums},
    {"graph of a memset, a kernel and a library call", graph_of_library_calls},
    {},
};
