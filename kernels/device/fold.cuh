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

/* Folds sums over the team's lanes; all of them get them. In the first two steps a lane gives two columns, then
 * one, to another lane; then each lane holds one column. The next steps fold each column over its lanes. The
 * last two steps add columns 2 apart and 1 apart, also between lanes. Each step is that of all sums: an exchange takes
 * some 25 cycles, and those of different sums overlap. */
template <int SUMS>
static __device__ __forceinline__ void quads_fold(const struct lanes &g,
                                                  const struct quad (&q)[SUMS], float (&sum)[SUMS],
                                                  site at = here()) {
    const int half = g.team / 2, quarter = g.team / 4;
    const bool upper = g.me & half, odd = g.me & quarter;
    float even_column[SUMS], odd_column[SUMS];
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        const float x0 = q[k].x[0], x1 = q[k].x[1], x2 = q[k].x[2], x3 = q[k].x[3];
        even_column[k] = lane_add(g, upper ? x2 : x0, upper ? x0 : x2, half, at);
        odd_column[k] = lane_add(g, upper ? x3 : x1, upper ? x1 : x3, half, at);
    }
#pragma unroll
    for (int k = 0; k < SUMS; k++)
        sum[k] = lane_add(g, odd ? odd_column[k] : even_column[k],
                          odd ? even_column[k] : odd_column[k], quarter, at);
    const auto add = [&](int step) {
#pragma unroll
        for (int k = 0; k < SUMS; k++) sum[k] = lane_add(g, sum[k], sum[k], step, at);
    };
    for (int step = quarter / 2; step > 0; step /= 2) add(step);
    add(half);
    add(quarter);
}

static __device__ inline float quad_fold(const struct lanes &g, const struct quad &q,
                                         site at = here()) {
    const struct quad quads[1] = {q};
    float sum[1];
    quads_fold(g, quads, sum, at);
    return sum[0];
}

/* Folds the rule's sums (1 or 2) of several rows; all lanes of the group get them. */
template <int ROWS>
static __device__ __forceinline__ void
row_sums_fold(const struct lanes &g, const bool several_warps, const struct row_sums (&x)[ROWS],
              const int sums, struct pair (&all)[ROWS], site at = here()) {
    struct quad quads[ROWS];
    float folded[ROWS];
    for (int which = 0; which < sums; which++) {
#pragma unroll
        for (int k = 0; k < ROWS; k++) quads[k] = which ? x[k].b : x[k].a;
        quads_fold(g, quads, folded, at);
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const float sum = several_warps ? lanes_first(g, folded[k], at) : folded[k];
            (which ? all[k].b : all[k].a) = sum;
        }
    }
}
