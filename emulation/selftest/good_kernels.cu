/* SPDX-License-Identifier: MIT
 *
 * Correct kernels: the emulation must run them without a false alarm.
 */
#include "emulation/selftest/device_array.h"

#include <numeric>

/* --- the block */

static __global__ void reverse(int *data) {
    DYNAMIC_SHARED(int, copy);
    unsigned t = threadIdx.x;
    int all = __syncthreads_count(t % 3 == 0);
    copy[t] = data[t];
    int any = __syncthreads_or(t == 17), every = __syncthreads_and(t != 17);
    data[t] = copy[blockDim.x - 1 - t] + (all == 342 && any && !every ? 0 : 1000000);
}

static void block_of_1024() {
    std::vector<int> values(1024);
    std::iota(values.begin(), values.end(), 0);
    DeviceArray<int> data(values);
    LAUNCH(reverse, 1, 1024, 1024 * sizeof(int), nullptr, data.device);
    for (int i = 0; i < 1024; i++) CHECK(data.get()[i] == 1023 - i);
}

template <int factor> static __global__ void place(uint3 *out, int times) {
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned size = blockDim.x * blockDim.y * blockDim.z;
    uint3 value = threadIdx;
    value.x += factor * times * blockIdx.x;
    out[block * size + thread] = value;
}

static void three_dimensions() {
    DeviceArray<uint3> out(2 * 3 * 4 * 5 * 6 * 7);
    LAUNCH((place<10>), dim3(2, 3, 4), dim3(5, 6, 7), 0, nullptr, out.device, 10);
    size_t i = 0;
    out.get();
    for (unsigned block = 0; block < 24; block++)
        for (unsigned z = 0; z < 7; z++)
            for (unsigned y = 0; y < 6; y++)
                for (unsigned x = 0; x < 5; x++, i++)
                    CHECK(out.host[i].x == x + 100 * (block % 2) && out.host[i].y == y &&
                          out.host[i].z == z);
}

/* --- the warp */

static __global__ void shuffle(double *up, long long *down, int *exchanged, float *within) {
    unsigned mask = 0xffffffffu;
    int lane = int(threadIdx.x);
    up[lane] = __shfl_up_sync(mask, lane * 0.5, 3);
    down[lane] = __shfl_down_sync(mask, (long long)lane << 40, 5);
    exchanged[lane] = __shfl_xor_sync(mask, lane, 9);
    within[lane] = __shfl_sync(mask, float(lane), 2, 8);
}

static void shuffles() {
    DeviceArray<double> up(32);
    DeviceArray<long long> down(32);
    DeviceArray<int> exchanged(32);
    DeviceArray<float> within(32);
    LAUNCH(shuffle, 1, 32, 0, nullptr, up.device, down.device, exchanged.device, within.device);
    up.get(), down.get(), exchanged.get(), within.get();
    for (int lane = 0; lane < 32; lane++) {
        CHECK(up.host[lane] == 0.5 * (lane < 3 ? lane : lane - 3));
        CHECK(down.host[lane] == (long long)(lane + 5 < 32 ? lane + 5 : lane) << 40);
        CHECK(exchanged.host[lane] == (lane ^ 9));
        CHECK(within.host[lane] == float(lane / 8 * 8 + 2));
    }
}

/* The halves of a warp diverge; the last warp has only 16 lanes. */
static __global__ void vote(unsigned *out, const int *keys) {
    unsigned t = threadIdx.x, lane = t % 32;
    unsigned mask = lane < 16 ? 0xffffu : 0xffff0000u;
    unsigned result = 0;
    if (lane < 16)
        result = __ballot_sync(mask, lane % 2);
    else
        result = __match_any_sync(mask, keys[lane]);
    result += 1000 * unsigned(__any_sync(mask, lane == 20)) + 2000 * unsigned(__all_sync(mask, 1));
    __syncwarp(mask);
    out[t] = result + unsigned(__reduce_max_sync(mask, int(lane) - 40)) +
             __reduce_add_sync(mask, lane) * 10000;
}

static void votes_of_partial_warps() {
    std::vector<int> values(32);
    for (int i = 0; i < 32; i++) values[i] = i % 3;
    DeviceArray<int> keys(values);
    DeviceArray<unsigned> out(48);
    LAUNCH(vote, 1, 48, 0, nullptr, out.device, keys.device);
    out.get();
    for (unsigned t = 0; t < 48; t++) {
        unsigned lane = t % 32, match = 0;
        for (unsigned i = 16; i < 32; i++) match |= unsigned(i % 3 == lane % 3) << i;
        unsigned low = 0xaaaau + 2000 - 25 + 120 * 10000, high = match + 3000 - 9 + 376 * 10000;
        CHECK(out.host[t] == (lane < 16 ? low : high));
    }
}

/* --- launches */

static __global__ void nothing() {
    DYNAMIC_SHARED(unsigned char, bytes);
    (void)bytes;
}

/* For good_host_calls.c, which is C. */
extern "C" void launch_nothing(unsigned blocks, unsigned threads, size_t shared_bytes);
extern "C" cudaError_t allow_shared(size_t bytes);

void launch_nothing(unsigned blocks, unsigned threads, size_t shared_bytes) {
    LAUNCH(nothing, blocks, threads, shared_bytes, nullptr);
}

cudaError_t allow_shared(size_t bytes) {
    return cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
}

template <int N>
static __global__ void __launch_bounds__(2 * N, N == 48 ? 2 : 1) bounded(int *out) {
    emulation::prefetch_global(out + 1000000);
    reinterpret_cast<int *>(__cvta_generic_to_global(out))[threadIdx.x] = N;
}

template <int N> static void launch_within_bounds(int *out) {
    cudaFuncAttributes attributes;
    CHECK(!cudaFuncGetAttributes(&attributes, bounded<N>));
    LAUNCH(bounded<N>, 1, 2 * N, 0, nullptr, out);
    CHECK(!cudaGetLastError());
#ifndef __clang__ /* which cannot tell the emulation the bound */
    CHECK(attributes.maxThreadsPerBlock == 2 * N);
    LAUNCH(bounded<N>, 1, 2 * N + 1, 0, nullptr, out);
    CHECK(cudaGetLastError() != cudaSuccess);
#endif
}

static void bounds() {
    DeviceArray<int> out(1024);
    launch_within_bounds<16>(out.device);
    launch_within_bounds<48>(out.device);
    launch_within_bounds<512>(out.device);
    CHECK(out.get()[1023] == 512);
    cudaFuncAttributes attributes;
    CHECK(!cudaFuncGetAttributes(&attributes, shuffle) && attributes.maxThreadsPerBlock == 1024);
}

/* --- the schedule */

static __global__ void arrive(int *counter, int *order) {
    order[atomicAdd(counter, 1)] = int(blockIdx.x * blockDim.x + threadIdx.x);
}

static std::vector<int> arrivals(int order, uint64_t seed) {
    DeviceArray<int> counter(1), out(256);
    emulation_schedule(order, seed);
    LAUNCH(arrive, 8, 32, 0, nullptr, counter.device, out.device);
    return out.get();
}

static void orders() {
    std::vector<int> ascending(256);
    std::iota(ascending.begin(), ascending.end(), 0);
    CHECK(arrivals(EMULATION_ASCENDING, 1) == ascending);
    CHECK(arrivals(EMULATION_DESCENDING, 1) ==
          std::vector<int>(ascending.rbegin(), ascending.rend()));
    std::vector<int> one = arrivals(EMULATION_RANDOM, 1), two = arrivals(EMULATION_RANDOM, 2);
    CHECK(one != ascending && one != two);
    CHECK(arrivals(EMULATION_RANDOM, 1) == one);
    std::vector<bool> seen(256);
    for (int i : two) seen[size_t(i)] = true;
    CHECK(seen == std::vector<bool>(256, true));
}

extern const self_case good_kernels[] = {
    {"block of 1024 threads, dynamic shared memory", block_of_1024},
    {"grid and block of three dimensions, kernel template", three_dimensions},
    {"shuffles", shuffles},
    {"votes of partial warps", votes_of_partial_warps},
    {"launch bounds of templates, global addresses", bounds},
    {"orders differ and can be replayed", orders},
    {},
};
