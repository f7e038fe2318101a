/* SPDX-License-Identifier: MIT
 *
 * Planted bugs: accesses that are out of bounds, after cudaFree, misaligned, to memory never
 * written, or from the host; and copies and launches that CUDA refuses.
 */
#include "emulation/selftest/device_array.h"

#include <cub/device/device_radix_sort.cuh>

#include <cmath>

static const unsigned NOT_ADDRESS = ALL_BUILDS & ~unsigned(ADDRESS);
static const char *const POISONED = "AddressSanitizer: use-after-poison";
static const char *const FAULT = "AddressSanitizer: SEGV";
static const char *const WRONG = "wrong: ";

/* --- out of bounds */

/* Pointers to the arrays: where the size is known, UndefinedBehaviorSanitizer stops the access first. */
static __global__ void fill_shared(int *out, int n) {
    SHARED(int, array, 33);
    DYNAMIC_SHARED(int, more);
    int *box = array;
    for (int i = 0; i < n; i++) box[i] = more[i % 8] = i;
    out[0] = box[n - 1] + more[0];
}

static void past_shared_array() {
    DeviceArray<int> out(1);
    LAUNCH(fill_shared, 1, 1, 32, nullptr, out.device, 34);
}

static __global__ void fill_dynamic(int n) {
    DYNAMIC_SHARED(int, box);
    for (int i = 0; i < n; i++) box[i] = i;
}

static void past_dynamic_shared() {
    LAUNCH(fill_dynamic, 1, 1, 36, nullptr, 10);
}

static __global__ void read_shared(int *out, int at) {
    SHARED(int, array, 32);
    int *box = array;
    box[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = box[at];
}

static void read_past_shared() {
    DeviceArray<int> out(32);
    LAUNCH(read_shared, 1, 32, 0, nullptr, out.device, 33);
    CHECK(out.get()[0] == 1);
}

static __global__ void store(int *p, long at) {
    p[at] = 1;
}

static void past_global() {
    DeviceArray<int> data(100);
    LAUNCH(store, 1, 1, 0, nullptr, data.device, 100L);
}

static void before_global() {
    DeviceArray<int> data(100);
    LAUNCH(store, 1, 1, 0, nullptr, data.device, -1L);
}

static void far_past_global() {
    DeviceArray<int> data(100);
    LAUNCH(store, 1, 1, 0, nullptr, data.device, 128L);
}

static void after_free() {
    int *p;
    CHECK(!cudaMalloc(&p, 400) && !cudaFree(p));
    LAUNCH(store, 1, 1, 0, nullptr, p, 10L);
}

static void host_dereference() {
    DeviceArray<int> data(100);
    printf("%d\n", *(volatile int *)data.device);
}

static __global__ void deep(int *out, int n) {
    volatile char local[100 << 10];
    for (int i = 0; i < n; i++) local[i] = char(i);
    *out = local[n - 1];
}

static void stack_overflow() {
    DeviceArray<int> out(1);
    LAUNCH(deep, 1, 1, 0, nullptr, out.device, 100 << 10);
}

/* --- misaligned */

static __global__ void load_vector(const float *in, float4 *out) {
    *out = *reinterpret_cast<const float4 *>(in + 1);
}

static void misaligned_vector() {
    DeviceArray<float> in(8);
    DeviceArray<float4> out(1);
    LAUNCH(load_vector, 1, 1, 0, nullptr, in.device, out.device);
}

static __global__ void load_vector_hinted(const float *in, float4 *out) {
    *out = __ldg(reinterpret_cast<const float4 *>(in + 1));
}

static void misaligned_ldg() {
    DeviceArray<float> in(8);
    DeviceArray<float4> out(1);
    LAUNCH(load_vector_hinted, 1, 1, 0, nullptr, in.device, out.device);
}

/* --- never written */

static __global__ void sum_shared(float *out, int written) {
    SHARED(float, box, 4);
    for (int i = 0; i < written; i++) box[i] = 1.0f;
    *out = box[0] + box[1] + box[2] + box[3];
}

static void uninitialised_shared() {
    DeviceArray<float> out(1);
    LAUNCH(sum_shared, 1, 1, 0, nullptr, out.device, 4);
    CHECK(out.get()[0] == 4.0f); /* the next block must not see these values */
    LAUNCH(sum_shared, 1, 1, 0, nullptr, out.device, 3);
    CHECK(out.get()[0] == 3.0f);
}

static __global__ void accumulate(float *sum) {
    atomicAdd(sum, 1.0f);
}

static void uninitialised_global() {
    float *sum, value;
    CHECK(!cudaMalloc(&sum, sizeof *sum));
    LAUNCH(accumulate, 1, 32, 0, nullptr, sum);
    CHECK(!cudaMemcpy(&value, sum, sizeof value, cudaMemcpyDeviceToHost));
    CHECK(value == 32.0f);
}

/* --- what the calls refuse */

static void wrong_direction() {
    int value = 0;
    DeviceArray<int> data(1);
    CHECK(cudaMemcpy(&value, data.device, sizeof value, cudaMemcpyHostToDevice) == cudaSuccess);
}

static void copy_too_much() {
    int values[2] = {};
    DeviceArray<int> data(1);
    CHECK(cudaMemcpy(values, data.device, sizeof values, cudaMemcpyDeviceToHost) == cudaSuccess);
}

static void launch_too_large() {
    LAUNCH(accumulate, 1, 2048, 0, nullptr, static_cast<float *>(nullptr));
    CHECK(cudaGetLastError() == cudaSuccess);
}

/* One pass leaves the result in the second buffer. */
static void buffer_that_is_not_current() {
    DeviceArray<uint32_t> keys(std::vector<uint32_t>{3, 1, 2}), other_keys(3);
    DeviceArray<int> values(3), other_values(3);
    DeviceArray<char> temp(4096);
    size_t bytes = 4096;
    cub::DoubleBuffer<uint32_t> k(keys.device, other_keys.device);
    cub::DoubleBuffer<int> v(values.device, other_values.device);
    CHECK(!cub::DeviceRadixSort::SortPairs(temp.device, bytes, k, v, 3, 0, 8));
    CHECK(keys.get()[0] == 1);
}

static __global__ void too_much_shared() {
    SHARED(float, box, 13 << 10);
    box[threadIdx.x] = 0;
}

static void fixed_shared_too_large() {
    LAUNCH(too_much_shared, 1, 32, 0, nullptr);
}

/* --- other memory where global memory is promised */

static __global__ void add_to_shared(float *out) {
    SHARED(float, sum, 1);
    sum[0] = 1;
    *out = *reinterpret_cast<float *>(__cvta_generic_to_global(sum));
}

static __global__ void prefetch(const float *p, int from) {
    const float local[2] = {1, 2};
    emulation::prefetch_global(from == 0 ? local : p);
}

static void global_address_of_shared() {
    DeviceArray<float> out(1);
    LAUNCH(add_to_shared, 1, 1, 0, nullptr, out.device);
}

static void prefetch_of_local_memory() {
    LAUNCH(prefetch, 1, 1, 0, nullptr, static_cast<const float *>(nullptr), 0);
}

static void prefetch_of_host_memory() {
    static const float mine[4] = {};
    LAUNCH(prefetch, 1, 1, 0, nullptr, static_cast<const float *>(mine), 1);
}

/* --- a block that is larger than the kernel allows */

template <int N>
static __global__ void __launch_bounds__(2 * N, N == 48 ? 2 : 1) bounded(int *out) {
    out[threadIdx.x] = N;
}

static void launch_past_bounds() {
    DeviceArray<int> out(128);
    LAUNCH(bounded<48>, 1, 128, 0, nullptr, out.device);
    CHECK(cudaGetLastError() == cudaSuccess);
}

#ifdef __clang__ /* which cannot tell the emulation the bound */
static const unsigned KNOW_BOUNDS = 0;
#else
static const unsigned KNOW_BOUNDS = ALL_BUILDS;
#endif

static const char *const SHARED_BOUNDS = "a write out of bounds of shared memory";
static const char *const BOUNDS = "a write out of bounds: ";

extern const planted_case planted_accesses[] = {
    {"store past a shared array",
     past_shared_array,
     {{PLAIN | THREAD, SHARED_BOUNDS}, {ADDRESS, POISONED}, {UNDEFINED, "out of bounds"}}},
    {"store past dynamic shared memory",
     past_dynamic_shared,
     {{NOT_ADDRESS, SHARED_BOUNDS}, {ADDRESS, POISONED}}},
    {"load past a shared array",
     read_past_shared,
     {{PLAIN | THREAD, WRONG}, {ADDRESS, POISONED}, {UNDEFINED, "out of bounds"}}},
    {"store past global memory", past_global, {{NOT_ADDRESS, BOUNDS}, {ADDRESS, POISONED}}},
    {"store before global memory", before_global, {{NOT_ADDRESS, BOUNDS}, {ADDRESS, POISONED}}},
    {"store far past global memory",
     far_past_global,
     {{NOT_ADDRESS, "an access out of bounds: 112 bytes past the end"}, {ADDRESS, FAULT}}},
    {"store after cudaFree",
     after_free,
     {{NOT_ADDRESS, "byte 40 of 400 bytes that have been freed"}, {ADDRESS, FAULT}}},
    {"host dereferences a device pointer",
     host_dereference,
     {{NOT_ADDRESS, "the host accesses device memory"}, {ADDRESS, FAULT}}},
    {"stack overflow", stack_overflow, {{PLAIN | UNDEFINED, "a thread's stack overflows"}}},
    {"misaligned float4", misaligned_vector, {{UNDEFINED, "misaligned address"}}},
    {"misaligned __ldg", misaligned_ldg, {{ALL_BUILDS, "misaligned access of 16 bytes"}}},
    {"shared memory that was never written", uninitialised_shared, {{ALL_BUILDS, WRONG}}},
    {"global memory that was never written", uninitialised_global, {{ALL_BUILDS, WRONG}}},
    {"copy in the wrong direction", wrong_direction, {{ALL_BUILDS, WRONG}}},
    {"copy of more than the allocation", copy_too_much, {{ALL_BUILDS, WRONG}}},
    {"launch that is too large", launch_too_large, {{ALL_BUILDS, WRONG}}},
    {"launch past __launch_bounds__", launch_past_bounds, {{KNOW_BOUNDS, WRONG}}},
    {"shared address as a global one",
     global_address_of_shared,
     {{ALL_BUILDS, "which is not global memory but shared memory"}}},
    {"prefetch of local memory",
     prefetch_of_local_memory,
     {{ALL_BUILDS, "which is not global memory but a thread's local memory"}}},
    {"prefetch of host memory",
     prefetch_of_host_memory,
     {{ALL_BUILDS, "which is not global memory but the host's"}}},
    {"sorted buffer that is not the current one",
     buffer_that_is_not_current,
     {{ALL_BUILDS, WRONG}}},
    {"shared array that is too large",
     fixed_shared_too_large,
     {{ALL_BUILDS, "too much shared memory"}}},
    {},
};
