/* SPDX-License-Identifier: MIT
 *
 * Sums over the columns of a row, in the one order of kernels/rules.h.
 */
#pragma once

#include "kernels/device/row.cuh"

/* A group adds to them tile by tile, in the order of kernels/rules.h: lane l of the first warp has the columns
 * 4l .. 4l+3 modulo ROW_LANES. */
struct row_sums {
    struct quad a, b;
};

static_assert(ROW_LANES == WARP * LANE_COLUMNS, "a warp has a lane's columns of a row's sums");

/* The whole group calls this for every tile, in order. several_warps: the group may be so large. */
static __device__ __forceinline__ void row_sums_add(const struct lanes &g, const bool several_warps,
                                                    struct row_sums *x, struct quad a,
                                                    struct quad b, site at = here()) {
    if (!several_warps || g.count <= WARP) {
        x->a = quad_sum(x->a, a);
        x->b = quad_sum(x->b, b);
        return;
    }
    SHARED(struct row_sums, part, LARGEST_BLOCK);
    part[g.lane].a = a;
    part[g.lane].b = b;
    block_sync(at);
    for (int w = 0; w < g.count / WARP && g.lane < WARP; w++) {
        x->a = quad_sum(x->a, part[w * WARP + g.lane].a);
        x->b = quad_sum(x->b, part[w * WARP + g.lane].b);
    }
    block_sync(at);
}

/* Gives `give` to the team's lane at distance `step`; returns `keep` plus what that lane gave. */
static __device__ inline float lane_add(const struct lanes &g, float keep, float give, int step,
                                        site at) {
    return keep + __shfl_xor_sync(ALL_LANES, give, step, g.team, at);
}

/* Folds a sum over the team's lanes; all of them get it. In the first two steps a lane gives two columns, then
 * one, to another lane; then each lane holds one column. The next steps fold each column over its lanes. The
 * last two steps add columns 2 apart and 1 apart, also between lanes. */
static __device__ inline float quad_fold(const struct lanes &g, const struct quad &q,
                                         site at = here()) {
    const int half = g.team / 2, quarter = g.team / 4;
    const bool upper = g.me & half, odd = g.me & quarter;
    const float x0 = q.x[0], x1 = q.x[1], x2 = q.x[2], x3 = q.x[3];
    const float even_column = lane_add(g, upper ? x2 : x0, upper ? x0 : x2, half, at);
    const float odd_column = lane_add(g, upper ? x3 : x1, upper ? x1 : x3, half, at);
    float sum =
        lane_add(g, odd ? odd_column : even_column, odd ? even_column : odd_column, quarter, at);
    for (int step = quarter / 2; step > 0; step /= 2) sum = lane_add(g, sum, sum, step, at);
    sum = lane_add(g, sum, sum, half, at);
    return lane_add(g, sum, sum, quarter, at);
}

/* Folds the rule's sums (1 or 2); all lanes of the group get them. */
static __device__ inline struct pair row_sums_fold(const struct lanes &g, const bool several_warps,
                                                   const struct row_sums &x, const int sums,
                                                   site at = here()) {
    struct pair all = {quad_fold(g, x.a, at), sums > 1 ? quad_fold(g, x.b, at) : 0};
    if (several_warps) all = {lanes_first(g, all.a, at), sums > 1 ? lanes_first(g, all.b, at) : 0};
    return all;
}
