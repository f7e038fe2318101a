/* SPDX-License-Identifier: MIT
 *
 * Planted bugs: barriers and collectives at which threads do not meet as they must.
 */
#include "emulation/selftest/device_array.h"
#include "kernels/device/launch.h"

static const unsigned ALL = 0xffffffffu;

/* Each branch calls from a line of its own. */
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
    out[threadIdx.x] = __reduce_add_sync(ALL, 1);
}

static __global__ void divergent_shuffle(int *out) {
    if (threadIdx.x % 2)
        out[threadIdx.x] = __shfl_sync(ALL, 1, 0);
    else
        out[threadIdx.x] = __shfl_sync(ALL, 2, 0);
}

static __global__ void loop_of_unequal_length(int *out) {
    int sum = 0;
    for (unsigned i = 0; i <= threadIdx.x % 32; i++) sum += __shfl_xor_sync(ALL, 1, 1);
    out[threadIdx.x] = sum;
}

static __global__ void warp_waits_for_block(int *out) {
    if (threadIdx.x < 16)
        __syncwarp();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

static __device__ bool any_lane(int count, bool yes, site at = here()) {
    return count > 32 ? __syncthreads_or(yes, at) : __any_sync(ALL, yes, at);
}

/* Both calls meet on one line of any_lane(). */
template <int COUNT> static __global__ void divergent_helper(int *out) {
    const unsigned t = threadIdx.x;
    if (t < COUNT / 2)
        out[t] = any_lane(COUNT, true);
    else
        out[t] = any_lane(COUNT, false);
}

template <void KERNEL(int *), unsigned THREADS> static void run() {
    DeviceArray<int> out(64);
    LAUNCH(KERNEL, 1, THREADS, 0, nullptr, out.device);
}

static const char *const BLOCKS = "divergent barrier: thread (", *const LANES = "divergent warp: ";

extern const self_case planted_barriers[] = {
    {"divergent barrier", run<two_barriers, 64>, {{ALL_BUILDS, BLOCKS}}},
    {"return before a barrier",
     run<early_return, 64>,
     {{ALL_BUILDS, "deadlock: no thread can run; 1 of 64 threads have returned"}}},
    {"shuffle from outside of the mask",
     run<shuffle_from_outside, 64>,
     {{ALL_BUILDS, "which is not in the mask 0000ffff"}}},
    {"lane outside of its own mask",
     run<lane_outside_of_mask, 32>,
     {{ALL_BUILDS, "is not in its mask"}}},
    {"mask that names missing lanes",
     run<full_mask, 48>,
     {{ALL_BUILDS, "names lanes that the block lacks"}}},
    {"divergent warp", run<divergent_shuffle, 32>, {{ALL_BUILDS, LANES}}},
    {"lanes in two calls of a helper", run<divergent_helper<32>, 32>, {{ALL_BUILDS, LANES}}},
    {"warps in two calls of a helper", run<divergent_helper<64>, 64>, {{ALL_BUILDS, BLOCKS}}},
    {"mask that names returned lanes",
     run<loop_of_unequal_length, 32>,
     {{ALL_BUILDS, "in the mask ffffffff has returned"}}},
    {"lanes that wait in different barriers",
     run<warp_waits_for_block, 32>,
     {{ALL_BUILDS, "deadlock: "}}},
    {},
};
