/* SPDX-License-Identifier: MIT
 *
 * A group of lanes that works on one row at a time: a warp or a part of it. Lane l owns the columns 4l .. 4l+3 of every
 * tile of 4*count columns.
 *
 * The groups of a warp stay together: all lanes of a warp call the functions that exchange values. A group
 * without work takes part and gives nothing. So every mask is a constant, and nvcc does not have to compare
 * masks at run time (MATCH.ANY). If groups
 * diverged, the hardware would run them one after another anyway.
 */
#pragma once

#include <stdint.h>

#include "kernels/device/launch.h"

enum {
    WARP = 32,
    LANE_COLUMNS = 4,  /* one 16-byte load */
    LANES_BLOCK = 128, /* threads of a block of groups */
};

enum : unsigned { ALL_LANES = 0xffffffffu };

struct lanes {
    int count; /* a power of two up to WARP */
    int lane;  /* 0 .. count-1 */
};

/* Lanes of a warp that take a row of this dim together. */
static inline int lanes_of_row(int32_t dim) {
    int lanes = 1;
    while (lanes < WARP && lanes * LANE_COLUMNS < dim) lanes *= 2;
    return lanes;
}

static __device__ inline struct lanes lanes_here(int count) {
    return {count, (int)threadIdx.x % count};
}

/* The number of this thread's group in the grid. */
static __device__ inline int64_t group_number(const struct lanes &g) {
    int64_t groups = blockDim.x / (unsigned)g.count;
    return (int64_t)blockIdx.x * groups + (int)threadIdx.x / g.count;
}
