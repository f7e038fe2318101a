/* SPDX-License-Identifier: MIT
 *
 * Planted bugs: threads that do not wait for each other. If the result depends on the order, the
 * case compares it in all orders; if not, only ThreadSanitizer can find the bug.
 */
#include "emulation/selftest/device_array.h"

static const char *const RACE = "WARNING: ThreadSanitizer: data race";
static const char *const WRONG = "wrong: ";
static const unsigned NOT_THREAD = ALL_BUILDS & ~unsigned(THREAD);

template <class Run> static void in_all_orders(Run run) {
    for (int order : {EMULATION_ASCENDING, EMULATION_DESCENDING, EMULATION_RANDOM}) {
        emulation_schedule(order, 1);
        run();
    }
}

static __global__ void reduce_without_barrier(const int *in, int *out) {
    SHARED(int, part, 64);
    unsigned t = threadIdx.x;
    part[t] = in[t];
    __syncthreads();
    for (unsigned step = 32; step > 0; step /= 2)
        if (t < step) part[t] += part[t + step]; /* no __syncthreads */
    __syncthreads();
    if (t == 0) *out = part[0];
}

static void missing_syncthreads() {
    in_all_orders([] {
        DeviceArray<int> in(64, 1), out(1);
        LAUNCH(reduce_without_barrier, 1, 64, 0, nullptr, in.device, out.device);
        CHECK(out.get()[0] == 64);
    });
}

static __global__ void exchange_without_syncwarp(int *out) {
    SHARED(int, box, 32);
    unsigned t = threadIdx.x;
    box[t] = int(t);
    out[t] = box[t ^ 1]; /* no __syncwarp */
}

static void missing_syncwarp() {
    in_all_orders([] {
        DeviceArray<int> out(32);
        LAUNCH(exchange_without_syncwarp, 1, 32, 0, nullptr, out.device);
        for (int i = 0; i < 32; i++) CHECK(out.get()[size_t(i)] == (i ^ 1));
    });
}

/* One barrier of two is missing: the next round's writes race with this round's reads. */
static __global__ void rounds_with_one_barrier(int *out) {
    SHARED(int, box, 1);
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x == 0) box[0] = round;
        __syncthreads();
        out[round * int(blockDim.x) + int(threadIdx.x)] = box[0];
    }
}

static void missing_second_barrier() {
    DeviceArray<int> out(4 * 64);
    LAUNCH(rounds_with_one_barrier, 1, 64, 0, nullptr, out.device);
    out.get();
}

/* A shuffle exchanges values, but orders no accesses to memory. */
static __global__ void exchange_by_shuffle(int *out) {
    SHARED(int, box, 32);
    unsigned t = threadIdx.x;
    box[t] = int(t);
    unsigned other = __shfl_xor_sync(0xffffffffu, t, 1);
    out[t] = box[other];
}

static void shuffle_for_a_barrier() {
    DeviceArray<int> out(32);
    LAUNCH(exchange_by_shuffle, 1, 32, 0, nullptr, out.device);
    CHECK(out.get()[0] == 1);
}

static __global__ void add_plainly(float *sum) {
    *sum += 1.0f;
}

static void race_in_a_block() {
    DeviceArray<float> sum(1);
    LAUNCH(add_plainly, 1, 64, 0, nullptr, sum.device);
    CHECK(sum.get()[0] == 64.0f);
}

static void race_between_blocks() {
    DeviceArray<float> sum(1);
    LAUNCH(add_plainly, 64, 1, 0, nullptr, sum.device);
    CHECK(sum.get()[0] == 64.0f);
}

static __global__ void mix(int *sum) {
    if (threadIdx.x == 0)
        *sum = 5;
    else
        atomicAdd(sum, 1);
}

static void race_with_an_atomic() {
    DeviceArray<int> sum(1);
    LAUNCH(mix, 1, 32, 0, nullptr, sum.device);
    sum.get();
}

/* Without the fence, the last block may count the other blocks but not see their results. */
static __global__ void last_block_without_fence(int *parts, unsigned *finished, int *out) {
    parts[blockIdx.x] = 1;
    if (atomicAdd(finished, 1) != gridDim.x - 1) return;
    int sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++) sum += parts[b];
    *out = sum;
}

static void missing_threadfence() {
    DeviceArray<int> parts(64), out(1);
    DeviceArray<unsigned> finished(1);
    LAUNCH(last_block_without_fence, 64, 1, 0, nullptr, parts.device, finished.device, out.device);
    CHECK(out.get()[0] == 64);
}

extern const planted_case planted_races[] = {
    {"missing __syncthreads", missing_syncthreads, {{NOT_THREAD, WRONG}, {THREAD, RACE}}},
    {"missing __syncwarp", missing_syncwarp, {{NOT_THREAD, WRONG}, {THREAD, RACE}}},
    {"shuffle in place of __syncwarp", shuffle_for_a_barrier, {{THREAD, RACE}}},
    {"missing second barrier of a round", missing_second_barrier, {{THREAD, RACE}}},
    {"addition that is not atomic, in a block", race_in_a_block, {{THREAD, RACE}}},
    {"addition that is not atomic, between blocks", race_between_blocks, {{THREAD, RACE}}},
    {"plain store beside atomics", race_with_an_atomic, {{THREAD, RACE}}},
    {"missing __threadfence", missing_threadfence, {{THREAD, RACE}}},
    {},
};
