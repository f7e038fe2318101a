/* SPDX-License-Identifier: MIT
 *
 * With POOL_MAX an element of a gradient row belongs to one lookup of its bag: the winner of the column. A mask says
 * which columns of a gradient row count for a lookup. Kernels get it with the row (gather.h) and hand it on to the sum
 * (row.h). Where the compiler knows that all columns count, the mask costs nothing.
 */
#pragma once

#include "kernels/host/lanes.h"

struct max_mask {
    const int32_t
        *winner;    /* [dim]: the columns count whose winner is `number`. NULL: all columns count */
    int32_t number; /* of the lookup in its bag */
};

/* The mask of lookup i in flat bag q of feature f. */
ALWAYS_INLINE struct max_mask max_mask_of(const struct batch *in, int32_t f, int64_t q, int64_t i) {
    const struct feature *x = &in->features[f];
    if (x->pooling != POOL_MAX) return (struct max_mask){NULL, 0};
    return (struct max_mask){in->winners + x->grad_offset + (q - x->first_bag) * x->grad_stride,
                             (int32_t)(i - in->offsets[q])};
}

ALWAYS_INLINE bool max_mask_counts(struct max_mask m, int32_t column) {
    return !m.winner || m.winner[column] == m.number;
}

/* x, the columns from `column` on, with 0 where a column does not count: a NaN there has no effect. */
ALWAYS_INLINE lanes max_mask_lanes(struct max_mask m, lanes x, int32_t column) {
    if (!m.winner) return x;
    return (lanes)((lane_ints)x & (*(const lane_ints_at *)(m.winner + column) == m.number));
}
