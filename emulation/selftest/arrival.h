/* SPDX-License-Identifier: MIT
 *
 * The protocol by which groups of lanes find the last of them, which then reads what all have
 * written.
 */
#pragma once

#include "emulation/selftest/device_array.h"
#include "kernels/device/lanes.cuh"

enum protocol {
    CORRECT,
    NO_RELEASE_FENCE,
    NO_GROUP_SYNC,
    NO_ACQUIRE_FENCE,
    NO_LAST_SYNC,
    EARLY_FENCE /* before the group's barrier: lane 0 releases only what it wrote itself */
};

/* A group of more lanes than a warp is a block. */
static __device__ inline void group_sync(const struct lanes &g) {
    if (g.count > WARP)
        __syncthreads();
    else
        __syncwarp();
}

static __device__ inline bool any_of_group(const struct lanes &g, bool yes) {
    return g.count > WARP ? __syncthreads_or(yes) : __shfl_sync(ALL_LANES, yes, 0, g.count);
}

template <protocol P>
static __device__ bool last_to_arrive(const struct lanes &g, unsigned *arrived, unsigned groups) {
    bool last = false;
    if (P == EARLY_FENCE) __threadfence();
    if (P != NO_GROUP_SYNC) group_sync(g);
    if (g.lane == 0) {
        if (P != NO_RELEASE_FENCE && P != EARLY_FENCE) __threadfence();
        last = atomicAdd(arrived, 1u) + 1 == groups;
        if (P != NO_ACQUIRE_FENCE && last) __threadfence();
    }
    last = any_of_group(g, last);
    if (P != NO_LAST_SYNC) group_sync(g);
    return last;
}

template <protocol P>
static __global__ void sum_of_groups(float *parts, unsigned *arrived, float *out, int count,
                                     unsigned groups) {
    const struct lanes g = lanes_here(count);
    const int64_t group = group_number(g);
    parts[group * count + g.lane] = float(group);
    if (!last_to_arrive<P>(g, arrived, groups)) return;
    float sum = 0;
    for (unsigned n = 0; n < groups; n++)
        sum += parts[n * unsigned(count) + unsigned(count - 1 - g.lane)];
    out[g.lane] = sum;
}

template <protocol P> static void sum_by_last_group(int count) {
    const unsigned blocks = 6, threads = unsigned(count > WARP ? count : int(LANES_BLOCK)),
                   groups = blocks * threads / unsigned(count);
    DeviceArray<float> parts(groups * size_t(count)), out(size_t(count), -1);
    DeviceArray<unsigned> arrived(1);
    LAUNCH(sum_of_groups<P>, blocks, threads, 0, nullptr, parts.device, arrived.device, out.device,
           count, groups);
    for (int lane = 0; lane < count; lane++)
        CHECK(out.get()[size_t(lane)] == float(groups * (groups - 1) / 2));
}
