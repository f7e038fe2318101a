/* SPDX-License-Identifier: MIT
 *
 * Sums over the columns of a row, in the order of kernels/rules.h.
 */
#pragma once

#include "kernels/device/access.cuh"

/* Adds this lane's columns over the EACH lanes of a row; all of them get the sum. */
template <int EACH>
static __device__ __forceinline__ float fold_quad(const struct quad &q, unsigned lane,
                                                  site at = here()) {
    struct quad x = q;
    if constexpr (EACH >= 4) {
        constexpr int half = EACH / 2, quarter = EACH / 4;
        const bool upper = lane & half, odd = lane & quarter;
        const auto add = [&](float keep, float give, int step) {
            return keep + __shfl_xor_sync(ALL_LANES, give, step, WARP, at);
        };
        const float even = add(upper ? x.x[2] : x.x[0], upper ? x.x[0] : x.x[2], half),
                    uneven = add(upper ? x.x[3] : x.x[1], upper ? x.x[1] : x.x[3], half);
        float sum = add(odd ? uneven : even, odd ? even : uneven, quarter);
#pragma unroll
        for (int step = quarter / 2; step > 0; step /= 2) sum = add(sum, sum, step);
        sum = add(sum, sum, half);
        return add(sum, sum, quarter);
    } else {
        if constexpr (EACH == 2)
            for (int c = 0; c < LANE_COLUMNS; c++)
                x.x[c] += __shfl_xor_sync(ALL_LANES, x.x[c], 1, WARP, at);
        return (x.x[0] + x.x[2]) + (x.x[1] + x.x[3]);
    }
}

/* Sums over the columns of the group's ROWS rows. Lane l gets the sum of row l / EACH: it takes ROWS quads of that row,
 * quad(k) beside those of the other lanes. */
template <class L, class Quad>
static __device__ __forceinline__ float fold_row(unsigned lane, const Quad &quad,
                                                 site at = here()) {
    struct quad part[L::ROWS];
#pragma unroll
    for (int k = 0; k < L::ROWS; k++) part[k] = quad(k);
#pragma unroll
    for (int half = L::ROWS / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; k++) part[k] = quad_sum(part[k], part[k + half]);
    return fold_quad<L::EACH>(part[0], lane, at);
}

/* This lane's place of a row in the stack, for fold_row(): quad k lies k * EACH quads on. sums: of the group's first
 * row. */
template <class L>
static __device__ __forceinline__ shared_address folded_at(shared_address sums, unsigned lane) {
    return sums + lane / L::EACH * L::BYTES + lane % L::EACH * 16;
}

/* The same for terms of this lane's columns, by way of their places in the stack, where they take those of the sums. */
template <class L>
static __device__ __forceinline__ float fold_terms(const struct quad (&term)[L::ROWS],
                                                   shared_address sums, unsigned lane,
                                                   bool has_columns, site at = here()) {
    __syncwarp(ALL_LANES, at);
#pragma unroll
    for (int r = 0; r < L::ROWS; r++)
        if (has_columns) shared_put(sums + r * L::BYTES + lane * 16, term[r]);
    __syncwarp(ALL_LANES, at);
    const shared_address mine = folded_at<L>(sums, lane);
    return fold_row<L>(
        lane, [&](int k) { return shared_quad(mine + k * L::EACH * 16); }, at);
}
