/* SPDX-License-Identifier: MIT
 *
 * One row of a frozen table: widened, narrowed, and the bound of its error.
 */
#pragma once

#include <float.h>

#include "kernels/host/row.h"
#include "extras/library/frozen/frozen.h"

/* What follows the codes of an int8 row. */
struct int8_tail {
    float scale, bias;
};

ALWAYS_INLINE struct int8_tail int8_tail(const void *row, int32_t dim) {
    struct int8_tail tail;
    memcpy(&tail, (const uint8_t *)row + dim, sizeof tail); /* codes may end at an odd address */
    return tail;
}

/* to += coefficient * row */
ALWAYS_INLINE void int8_row_add(float *to, const void *row, float coefficient, int32_t dim) {
    const uint8_t *code = row;
    const struct int8_tail tail = int8_tail(row, dim);
#pragma omp simd
    for (int32_t d = 0; d < dim; d++)
        to[d] += coefficient * (tail.scale * (float)code[d] + tail.bias);
}

/* to[dim] = the elements */
static inline void frozen_row_get(int type, const void *row, int32_t dim, float *to) {
    if (type == FROZEN_INT8) {
        const struct int8_tail tail = int8_tail(row, dim);
        for (int32_t d = 0; d < dim; d++)
            to[d] = tail.scale * (float)((const uint8_t *)row)[d] + tail.bias;
        return;
    }
    for (int32_t d = 0; d < dim; d++) to[d] = dtype_get((enum dtype)type, row, d);
}

struct extent {
    float least, most;
};

static inline struct extent row_extent(const float *row, int32_t dim) {
    struct extent x = {row[0], row[0]};
    for (int32_t d = 1; d < dim; d++) {
        x.least = row[d] < x.least ? row[d] : x.least;
        x.most = row[d] > x.most ? row[d] : x.most;
    }
    return x;
}

/* The codes reach from least to most of the row. The scale is rounded up, so that the largest code
 * reaches most. */
static inline void int8_row_put(const float *from, int32_t dim, void *to) {
    const struct extent x = row_extent(from, dim);
    const double range = (double)x.most - x.least;
    struct int8_tail tail = {(float)(range / UINT8_MAX), x.least};
    if ((double)tail.scale * UINT8_MAX < range) tail.scale = nextafterf(tail.scale, INFINITY);
    for (int32_t d = 0; d < dim; d++)
        ((uint8_t *)to)[d] =
            tail.scale > 0 ? (uint8_t)lrint(((double)from[d] - x.least) / tail.scale) : 0;
    memcpy((uint8_t *)to + dim, &tail, sizeof tail);
}

/* Narrows a row that row_fits(). */
static inline void frozen_row_put(int type, const float *from, int32_t dim, void *to) {
    if (type == FROZEN_INT8)
        int8_row_put(from, dim, to);
    else
        for (int32_t d = 0; d < dim; d++) dtype_set((enum dtype)type, to, d, from[d]);
}

/* The first element that the type cannot hold: not finite, or beyond its largest value; dim if there is
 * none. The codes of an int8 row span its range, which must itself be a float. */
static inline int32_t row_misfit(int type, const float *row, int32_t dim) {
    const double most = type == FROZEN_INT8 ? FLT_MAX / 4 : dtype_most((enum dtype)type);
    int32_t d = 0;
    while (d < dim && fabs((double)row[d]) <= most) d++; /* false for NaN */
    return d;
}

/* The bound of the error of an element of a row: half a step, and the roundings of scale * code and of
 * the sum. In terms of the source alone, so that a wrong scale does not widen it. */
static inline double frozen_bound(int type, const float *row, struct extent x, int32_t d) {
    if (type == FP32) return 0;
    if (type != FROZEN_INT8)
        return dtype_unit((enum dtype)type, ROUND_NEAREST) * fabs((double)row[d]) +
               dtype_tiny((enum dtype)type) / 2;
    const double most = fmax(fabs((double)x.least), fabs((double)x.most));
    const double step = ((double)x.most - x.least) / UINT8_MAX * (1 + 0x1p-23) + 0x1p-149;
    return x.least == x.most ? 0 : step / 2 + 0x1p-22 * most + 0x1p-149;
}
