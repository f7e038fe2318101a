/* SPDX-License-Identifier: MIT
 *
 * Rows as the update sees them: which table a key belongs to, and the lanes that cover a row of it.
 */
#ifndef EMBFUSE_DEVICE_TARGET_CUH
#define EMBFUSE_DEVICE_TARGET_CUH

#include "kernels/device/row.cuh"
#include "kernels/shape.h"

/* How a group of lanes covers a row. */
struct cover {
    int tiles; /* 1, 2 or 4 */
    int count; /* lanes */
};

enum { WIDEST_ROW = 4 * LANE_COLUMNS * LARGEST_BLOCK };

static inline struct cover cover_of(int32_t dim) {
    struct cover c = {1, 4};
    while (c.count < WARP && c.count * LANE_COLUMNS < dim) c.count *= 2;
    while (c.tiles < 4 && c.tiles * c.count * LANE_COLUMNS < dim) c.tiles *= 2;
    while (c.tiles * c.count * LANE_COLUMNS < dim) c.count += WARP;
    return c;
}

static inline const char *cover_refuse(const struct batch *in) {
    return widest(in) > WIDEST_ROW ? "rows of more than 4096 floats" : NULL;
}

/* Floats between rows that stand for themselves: every row on a 16-byte boundary. */
static inline int64_t row_stride(const struct batch *in) {
    return (widest(in) + LANE_COLUMNS - 1) / LANE_COLUMNS * LANE_COLUMNS;
}

/* Rows and what their sums are for, in device memory. */
struct target {
    const struct table_shape *tables;
    int32_t num_tables;
    const struct rule_step *steps;
    const struct table *io;
};

static inline struct target target_of(const struct batch *in, const struct rule_step *steps,
                                      const struct table *io) {
    return {in->device_tables, in->num_tables, steps, io};
}

/* The table of a key: the last one that does not begin after it. */
static __device__ inline int32_t table_of_key(const struct target &to, uint64_t key) {
    int32_t lo = 0, hi = to.num_tables;
    while (hi - lo > 1) {
        int32_t mid = (lo + hi) / 2;
        if ((uint64_t)to.tables[mid].first_row <= key)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

#endif
