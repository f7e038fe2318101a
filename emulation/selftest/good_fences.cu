/* SPDX-License-Identifier: MIT
 *
 * Correct protocols between threads and blocks: no order may give a false alarm.
 */
#include "emulation/selftest/arrival.h"
#include "emulation/selftest/hand_over.h"

static void last_group() {
    for (int count = 1; count <= 128; count *= 2) sum_by_last_group<CORRECT>(count);
}

/* A block that waits for another one needs both resident. */
static void waiting_block() {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        emulation_schedule(EMULATION_RANDOM, seed);
        run_hand_over<NO_BUG>();
    }
}

/* Each block waits for the one before it in the order in which they start: that one is resident
 * or has ended. A middle block passes on what it has seen. */
static __global__ void chain(unsigned *tickets, unsigned *done, int *sums) {
    SHARED(unsigned, mine, 1);
    if (threadIdx.x == 0) {
        mine[0] = atomicAdd(tickets, 1u);
        while (atomicAdd(done, 0u) < mine[0]) {
        }
        __threadfence();
    }
    __syncthreads();
    const unsigned t = threadIdx.x, ticket = mine[0];
    const unsigned before = ticket < 2 ? 0 : ticket - 2;
    sums[ticket * blockDim.x + t] =
        ticket == 0 ? 1
                    : 1 + sums[(ticket - 1) * blockDim.x + t] + 0 * sums[before * blockDim.x + t];
    __syncthreads();
    if (t == 0) {
        __threadfence();
        atomicAdd(done, 1u);
    }
}

static void chain_of_blocks() {
    DeviceArray<unsigned> tickets(1), done(1);
    DeviceArray<int> sums(20 * 32);
    LAUNCH(chain, 20, 32, 0, nullptr, tickets.device, done.device, sums.device);
    for (int i = 0; i < 20 * 32; i++) CHECK(sums.get()[size_t(i)] == i / 32 + 1);
}

/* Warps of a block: a fence of the block is enough. */
static __global__ void warp_to_warp(int *out) {
    SHARED(int, value, 1);
    SHARED(unsigned, ready, 1);
    if (threadIdx.x == 0) ready[0] = 0;
    __syncthreads();
    if (threadIdx.x == 32) {
        value[0] = 5;
        __threadfence_block();
        atomicExch(ready, 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0 && atomicOr(ready, 0u)) {
        __threadfence_block();
        *out = value[0];
    }
}

static void fence_of_block() {
    DeviceArray<int> out(1);
    LAUNCH(warp_to_warp, 1, 64, 0, nullptr, out.device);
    CHECK(out.get()[0] == 5);
}

/* Successive threads of one fibre have local memory at the same addresses. */
static __global__ void use_local_memory(int *out) {
    volatile int local[64];
    for (int i = 0; i < 64; i++) local[i] = i;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 64; i++) sum += local[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

static void local_memory() {
    DeviceArray<int> out(20 * 128);
    LAUNCH(use_local_memory, 20, 128, 0, nullptr, out.device);
    CHECK(out.get()[20 * 128 - 1] == 63 * 32);
}

extern const self_case good_fences[] = {
    {"last group to arrive, of 1 to 128 lanes", last_group},
    {"block that waits for another", waiting_block},
    {"chain of blocks in the order of their start", chain_of_blocks},
    {"fence of the block", fence_of_block},
    {"local memory of many threads", local_memory},
    {},
};
