/* SPDX-License-Identifier: MIT
 *
 * With POOL_MAX an element of a gradient row belongs to one lookup of its bag: the winner of the column. So the factor
 * of a gradient row is a coefficient or a mask. Its 32 bits are those of the coefficient or, of a mask, the number of
 * the lookup in its bag and the sign bit. A batch with a max has no per-sample weights, and so no negative coefficient.
 */
#pragma once

#include "kernels/device/row.cuh"

enum : uint32_t { IS_MAX_MASK = 0x80000000u };

/* number: of the lookup, or -1 without a mask. */
static __device__ inline uint32_t factor_bits(float coefficient, int32_t number) {
    return number >= 0 ? IS_MAX_MASK | (uint32_t)number : __float_as_uint(coefficient);
}

/* Keeps columns column .. column+3 of q whose winner is `number`, and clears the others: a NaN there has no effect.
 * winners: of the gradient row. Returns whether it kept any. */
static __device__ inline bool max_mask_apply(struct quad *q, const int32_t *winners,
                                             uint32_t number, int32_t column, int32_t dim) {
    const struct quad_bits winner = quad_fetch<true>(FP32, winners, column, dim);
    bool any = false;
    for (int c = 0; c < LANE_COLUMNS; c++) {
        any |= winner.x[c] == number;
        q->x[c] = winner.x[c] == number ? q->x[c] : 0;
    }
    return any;
}

/* q times its factor. winners: of the gradient row, if the factor may be a mask. */
static __device__ inline struct quad quad_times_factor(struct quad q, uint32_t factor,
                                                       const int32_t *winners, bool masks,
                                                       int32_t column, int32_t dim) {
    if (!masks || !(factor & IS_MAX_MASK)) return quad_scale(q, __uint_as_float(factor));
    max_mask_apply(&q, winners, factor & ~IS_MAX_MASK, column, dim);
    return q;
}
