/* SPDX-License-Identifier: MIT
 *
 * Planted bugs: accesses that are out of bounds, after cudaFree, misaligned, to memory never
 * written, or from the host; and other memory where global memory is promised.
 */
#include "emulation/selftest/device_array.h"

static const unsigned NOT_ADDRESS = ALL_BUILDS & ~unsigned(ADDRESS);
static const char *const POISONED = "AddressSanitizer: use-after-poison";
static const char *const FAULT = "AddressSanitizer: SEGV";
static const char *const WRONG = "wrong: ";

/* --- out of bounds */

/* Pointers to the arrays: where the size is known, UndefinedBehaviorSanitizer stops the access
 * first. */
static __global__ void use_shared(int *out, int fixed, int dynamic, int load) {
    SHARED(int, array, 33);
    DYNAMIC_SHARED(int, more);
    int *box = array;
    for (int i = 0; i < fixed; i++) box[i] = i;
    for (int i = 0; i < dynamic; i++) more[i] = i;
    *out = box[load];
}

static void shared(int fixed, int dynamic, int load) {
    DeviceArray<int> out(1);
    LAUNCH(use_shared, 1, 1, 36, nullptr, out.device, fixed, dynamic, load);
    CHECK(out.get()[0] == load);
}

static __global__ void store(int *p, long at) {
    p[at] = 1;
}

static void store_at(long at) {
    DeviceArray<int> data(100);
    LAUNCH(store, 1, 1, 0, nullptr, data.device, at);
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
    volatile char local[400 << 10];
    for (int i = 0; i < n; i++) local[i] = char(i);
    *out = local[n - 1];
}

static void stack_overflow() {
    DeviceArray<int> out(1);
    LAUNCH(deep, 1, 1, 0, nullptr, out.device, 400 << 10);
}

static __global__ void too_much_shared() {
    SHARED(float, box, 13 << 10);
    box[threadIdx.x] = 0;
}

/* --- misaligned */

template <bool HINT> static __global__ void load_vector(const float *in, float4 *out) {
    const float4 *from = reinterpret_cast<const float4 *>(in + 1);
    *out = HINT ? __ldg(from) : *from;
}

template <bool HINT> static void misaligned() {
    DeviceArray<float> in(8);
    DeviceArray<float4> out(1);
    LAUNCH(load_vector<HINT>, 1, 1, 0, nullptr, in.device, out.device);
}

/* --- never written */

static __global__ void sum_shared(float *out, int written) {
    SHARED(float, box, 4);
    for (int i = 0; i < written; i++) box[i] = 1.0f;
    *out = box[0] + box[1] + box[2] + box[3];
}

/* The second block must not see the values of the first. */
static void uninitialised_shared() {
    DeviceArray<float> out(1);
    for (int written : {4, 3}) {
        LAUNCH(sum_shared, 1, 1, 0, nullptr, out.device, written);
        CHECK(out.get()[0] == float(written));
    }
}

static void uninitialised_global() {
    float *p, value = 0;
    CHECK(!cudaMalloc(&p, sizeof *p) && !cudaMemcpy(&value, p, sizeof *p, cudaMemcpyDeviceToHost));
    CHECK(value == value);
}

/* --- other memory where global memory is promised */

enum memory { OF_SHARED, OF_THREAD, OF_HOST };

static __global__ void use_as_global(const float *host, memory of) {
    SHARED(float, sum, 1);
    const float local[2] = {1, 2};
    sum[0] = 1;
    emulation::prefetch_global(of == OF_SHARED
                                   ? reinterpret_cast<const float *>(__cvta_generic_to_global(sum))
                               : of == OF_THREAD ? local
                                                 : host);
}

template <memory OF> static void promised() {
    static const float mine[4] = {};
    LAUNCH(use_as_global, 1, 1, 0, nullptr, static_cast<const float *>(mine), OF);
}

static const char *const SHARED_BOUNDS = "a write out of bounds of shared memory";
static const char *const BOUNDS = "a write out of bounds: ";

extern const self_case planted_accesses[] = {
    {"store past a shared array",
     [] { shared(34, 0, 0); },
     {{PLAIN | THREAD, SHARED_BOUNDS}, {ADDRESS, POISONED}, {UNDEFINED, "out of bounds"}}},
    {"store past dynamic shared memory",
     [] { shared(1, 10, 0); },
     {{NOT_ADDRESS, SHARED_BOUNDS}, {ADDRESS, POISONED}}},
    {"load past a shared array",
     [] { shared(33, 0, 33); },
     {{PLAIN | THREAD, WRONG}, {ADDRESS, POISONED}, {UNDEFINED, "out of bounds"}}},
    {"store past global memory",
     [] { store_at(100); },
     {{NOT_ADDRESS, BOUNDS}, {ADDRESS, POISONED}}},
    {"store before global memory",
     [] { store_at(-1); },
     {{NOT_ADDRESS, BOUNDS}, {ADDRESS, POISONED}}},
    {"store far past global memory",
     [] { store_at(128); },
     {{NOT_ADDRESS, "an access out of bounds: 112 bytes past the end"}, {ADDRESS, FAULT}}},
    {"store after cudaFree",
     after_free,
     {{NOT_ADDRESS, "byte 40 of 400 bytes that have been freed"}, {ADDRESS, FAULT}}},
    {"host dereferences a device pointer",
     host_dereference,
     {{NOT_ADDRESS, "the host accesses device memory"}, {ADDRESS, FAULT}}},
    {"stack overflow", stack_overflow, {{PLAIN | UNDEFINED, "a thread's stack overflows"}}},
    {"shared array that is too large",
     [] { LAUNCH(too_much_shared, 1, 32, 0, nullptr); },
     {{ALL_BUILDS, "too much shared memory"}}},
    {"misaligned float4", misaligned<false>, {{UNDEFINED, "misaligned address"}}},
    {"misaligned __ldg", misaligned<true>, {{ALL_BUILDS, "misaligned access of 16 bytes"}}},
    {"shared memory that was never written", uninitialised_shared, {{ALL_BUILDS, WRONG}}},
    {"global memory that was never written", uninitialised_global, {{ALL_BUILDS, WRONG}}},
    {"shared address as a global one",
     promised<OF_SHARED>,
     {{ALL_BUILDS, "which is not global memory but shared memory"}}},
    {"prefetch of local memory",
     promised<OF_THREAD>,
     {{ALL_BUILDS, "which is not global memory but a thread's local memory"}}},
    {"prefetch of host memory",
     promised<OF_HOST>,
     {{ALL_BUILDS, "which is not global memory but the host's"}}},
    {},
};
