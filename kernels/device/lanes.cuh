/* SPDX-License-Identifier: MIT
 *
 * A group of lanes that works on one row at a time: a part of a warp, a warp, or for wide rows a
 * whole block. Lane l owns the columns 4l .. 4l+3 of every tile of 4*count columns.
 *
 * A block holds several groups of 32 lanes or fewer; a group of more lanes is a whole block.
 *
 * The groups of a warp stay together: all lanes of a warp call the functions that exchange values. A group
 * without work takes part and gives nothing. So every mask is a constant, and nvcc does not have to compare
 * masks at run time (MATCH.ANY). Groups that went apart would take their turns one after another anyway.
 */
#pragma once

#include <stdint.h>

#include "kernels/device/launch.h"

enum {
    WARP = 32,
    LANE_COLUMNS = 4, /* one 16-byte load */
    SMALL_BLOCK = 128,
    LARGEST_BLOCK = 256,
};

enum : unsigned { ALL_LANES = 0xffffffffu };

struct lanes {
    int count; /* a power of two up to WARP, or a multiple of it */
    int lane;  /* 0 .. count-1 */
    int team;  /* lanes that exchange by shuffles: the group or, if it is wider, this warp */
    int me;    /* lane % team */
};

/* Threads of a block with groups of `count` lanes, and the number of groups in it. */
static __host__ __device__ inline int block_of_lanes(int count) {
    return count > WARP ? count : SMALL_BLOCK;
}

static __host__ __device__ inline int groups_of_block(int count) {
    return block_of_lanes(count) / count;
}

/* Lanes of a warp that take a row of this dim together. */
static inline int lanes_of_row(int32_t dim) {
    int lanes = 1;
    while (lanes < WARP && lanes * LANE_COLUMNS < dim) lanes *= 2;
    return lanes;
}

static __device__ inline struct lanes lanes_here(int count) {
    struct lanes g;
    g.count = count;
    g.team = count < WARP ? count : WARP;
    g.lane = (int)threadIdx.x % count;
    g.me = (int)threadIdx.x % g.team;
    return g;
}

/* The number of this thread's group in the grid. */
static __device__ inline int64_t group_number(const struct lanes &g) {
    int64_t groups = blockDim.x / (unsigned)g.count;
    return (int64_t)blockIdx.x * groups + (int)threadIdx.x / g.count;
}

/* A barrier of the group: afterwards every lane sees the earlier writes of all lanes. */
static __device__ inline void lanes_sync(const struct lanes &g, site at = here()) {
    if (g.count > WARP)
        block_sync(at);
    else
        __syncwarp(ALL_LANES, at);
}

/* The value of lane `from` of the team. */
template <class T>
static __device__ inline T team_get(const struct lanes &g, T value, int from, site at = here()) {
    return __shfl_sync(ALL_LANES, value, from, g.team, at);
}

/* Bit l: `yes` of lane l of the team. */
static __device__ inline unsigned team_votes(const struct lanes &g, bool yes, site at = here()) {
    const unsigned first = threadIdx.x % WARP - (unsigned)g.me,
                   votes = __ballot_sync(ALL_LANES, yes, at);
    return votes >> first & ALL_LANES >> (WARP - g.team);
}

/* Whether `yes` is true in any lane of the warp. */
static __device__ inline bool warp_any(bool yes, site at = here()) {
    return __any_sync(ALL_LANES, yes, at);
}

/* The value of lane 0 of the group. */
template <class T>
static __device__ inline T lanes_first(const struct lanes &g, T value, site at = here()) {
    value = team_get(g, value, 0, at);
    if (g.count <= WARP) return value;
    SHARED(T, first, 1);
    if (g.lane == 0) first[0] = value;
    block_sync(at);
    value = first[0];
    block_sync(at);
    return value;
}

/* Whether `yes` is true in any lane of the group. */
static __device__ inline bool lanes_any(const struct lanes &g, bool yes, site at = here()) {
    if (g.count > WARP) return __syncthreads_or(yes, at);
    return team_votes(g, yes, at) != 0;
}
