/* SPDX-License-Identifier: MIT
 *
 * Planted bugs: barriers and collectives at which threads do not meet as they must.
 */
#include "emulation/selftest/device_array.h"
#include "kernels/device/lanes.cuh"

static __global__ void two_barriers(int *out) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void early_return(int *out) {
    if (threadIdx.x == 40) return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void shuffle_from_outside(int *out) {
    if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_down_sync(0xffffu, 1, 8);
}

static __global__ void lane_outside_of_mask(int *out) {
    out[threadIdx.x] = int(__ballot_sync(0x7fffffffu, 1));
}

static __global__ void full_mask(int *out) {
    out[threadIdx.x] = __reduce_add_sync(0xffffffffu, 1);
}

static __global__ void divergent_shuffle(int *out) {
    if (threadIdx.x % 2)
        out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
    else
        out[threadIdx.x] = __shfl_sync(0xffffffffu, 2, 0);
}

static __global__ void loop_of_unequal_length(int *out) {
    int sum = 0;
    for (unsigned i = 0; i <= threadIdx.x % 32; i++) sum += __shfl_xor_sync(0xffffffffu, 1, 1);
    out[threadIdx.x] = sum;
}

static __global__ void warp_waits_for_block(int *out) {
    if (threadIdx.x < 16)
        __syncwarp();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

/* Both calls shuffle, on one line of lanes.cuh. */
static __global__ void divergent_helper(int *out) {
    const struct lanes g = lanes_here(32);
    if (g.lane < 16)
        out[g.lane] = team_get(g, g.lane, 3);
    else
        out[g.lane] = team_get(g, g.lane, 5);
}

static __global__ void divergent_wide_helper(int *out) {
    const struct lanes g = lanes_here(64);
    if (g.lane < 32)
        out[g.lane] = lanes_any(g, true);
    else
        out[g.lane] = lanes_any(g, false);
}

static void run(void (*kernel)(int *), unsigned threads) {
    DeviceArray<int> out(64);
    LAUNCH(kernel, 1, threads, 0, nullptr, out.device);
}

static void divergent_barrier() {
    run(two_barriers, 64);
}
static void return_before_barrier() {
    run(early_return, 64);
}
static void shuffle_outside_of_mask() {
    run(shuffle_from_outside, 64);
}
static void outside_of_own_mask() {
    run(lane_outside_of_mask, 32);
}
static void mask_of_missing_lanes() {
    run(full_mask, 48);
}
static void divergent_warp() {
    run(divergent_shuffle, 32);
}
static void divergent_calls_of_a_helper() {
    run(divergent_helper, 32);
}
static void divergent_calls_of_a_wide_helper() {
    run(divergent_wide_helper, 64);
}
static void lanes_that_have_returned() {
    run(loop_of_unequal_length, 32);
}
static void different_barriers() {
    run(warp_waits_for_block, 32);
}

extern const planted_case planted_barriers[] = {
    {"divergent barrier", divergent_barrier, {{ALL_BUILDS, "divergent barrier: thread ("}}},
    {"return before a barrier",
     return_before_barrier,
     {{ALL_BUILDS, "deadlock: no thread can run; 1 of 64 threads have returned"}}},
    {"shuffle from outside of the mask",
     shuffle_outside_of_mask,
     {{ALL_BUILDS, "which is not in the mask 0000ffff"}}},
    {"lane outside of its own mask", outside_of_own_mask, {{ALL_BUILDS, "is not in its mask"}}},
    {"mask that names missing lanes",
     mask_of_missing_lanes,
     {{ALL_BUILDS, "names lanes that the block lacks"}}},
    {"divergent warp", divergent_warp, {{ALL_BUILDS, "divergent warp: "}}},
    {"lanes in two calls of a helper",
     divergent_calls_of_a_helper,
     {{ALL_BUILDS, "divergent warp: "}}},
    {"warps in two calls of a helper",
     divergent_calls_of_a_wide_helper,
     {{ALL_BUILDS, "divergent barrier: thread ("}}},
    {"mask that names returned lanes",
     lanes_that_have_returned,
     {{ALL_BUILDS, "in the mask ffffffff has returned"}}},
    {"lanes that wait in different barriers", different_barriers, {{ALL_BUILDS, "deadlock: "}}},
    {},
};
