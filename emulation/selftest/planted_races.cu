/* SPDX-License-Identifier: MIT
 *
 * Planted bugs: threads that do not wait for each other. If the result depends on the order, the
 * case compares it in all orders; if not, only ThreadSanitizer can find the bug.
 */
#include "emulation/selftest/device_array.h"

static const char *const RACE = "WARNING: ThreadSanitizer: data race";
static const char *const WRONG = "wrong: ";
static const unsigned NOT_THREAD = ALL_BUILDS & ~unsigned(THREAD);

static __global__ void reduce_without_barrier(int *out) {
    SHARED(int, part, 64);
    unsigned t = threadIdx.x;
    part[t] = 1;
    __syncthreads();
    for (unsigned step = 32; step > 0; step /= 2)
        if (t < step) part[t] += part[t + step]; /* no __syncthreads */
    __syncthreads();
    if (t == 0) *out = part[0];
}

static __global__ void exchange_without_syncwarp(int *out) {
    SHARED(int, box, 32);
    unsigned t = threadIdx.x;
    box[t] = int(t);
    out[t] = box[t ^ 1]; /* no __syncwarp */
}

/* One barrier of two is missing: the next round's writes race with this round's reads. */
static __global__ void rounds_with_one_barrier(int *out) {
    SHARED(int, box, 1);
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x == 0) box[0] = round;
        __syncthreads();
        out[threadIdx.x] = box[0];
    }
}

/* A shuffle exchanges values, but orders no accesses to memory. */
static __global__ void exchange_by_shuffle(int *out) {
    SHARED(int, box, 32);
    unsigned t = threadIdx.x;
    box[t] = int(t);
    unsigned other = __shfl_xor_sync(0xffffffffu, t, 1);
    out[t] = box[other];
}

static __global__ void add_plainly(int *sum) {
    *sum += 1;
}

static __global__ void mix(int *sum) {
    if (threadIdx.x == 0)
        *sum = 5;
    else
        atomicAdd(sum, 1);
}

/* The first result in all orders; ANY: it is of no interest. */
enum { ANY = -1 };
template <void KERNEL(int *), unsigned BLOCKS, unsigned THREADS, int FIRST> static void run() {
    for (int order : {EMULATION_ASCENDING, EMULATION_DESCENDING, EMULATION_RANDOM}) {
        DeviceArray<int> out(64);
        emulation_schedule(order, 1);
        LAUNCH(KERNEL, BLOCKS, THREADS, 0, nullptr, out.device);
        CHECK(out.get()[0] == FIRST || FIRST == ANY);
    }
}

extern const self_case planted_races[] = {
    {"missing __syncthreads",
     run<reduce_without_barrier, 1, 64, 64>,
     {{NOT_THREAD, WRONG}, {THREAD, RACE}}},
    {"missing __syncwarp",
     run<exchange_without_syncwarp, 1, 32, 1>,
     {{NOT_THREAD, WRONG}, {THREAD, RACE}}},
    {"shuffle in place of __syncwarp", run<exchange_by_shuffle, 1, 32, 1>, {{THREAD, RACE}}},
    {"missing second barrier of a round",
     run<rounds_with_one_barrier, 1, 64, ANY>,
     {{THREAD, RACE}}},
    {"addition that is not atomic, in a block", run<add_plainly, 1, 64, 64>, {{THREAD, RACE}}},
    {"addition that is not atomic, between blocks", run<add_plainly, 64, 1, 64>, {{THREAD, RACE}}},
    {"plain store beside atomics", run<mix, 1, 32, ANY>, {{THREAD, RACE}}},
    {},
};
