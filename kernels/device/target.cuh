/* SPDX-License-Identifier: MIT
 *
 * The rows to update: the table of a key, and the lanes that cover a row of it.
 */
#pragma once

#include "kernels/device/row.cuh"
#include "kernels/shape.h"

/* How a group of lanes covers a row. */
struct cover {
    int tiles; /* 1, 2 or 4 in registers; 0: too wide, one tile at a time */
    int count; /* lanes */
};

static inline struct cover cover_of(int32_t dim) {
    struct cover c = {1, 4};
    while (c.count < WARP && c.count * LANE_COLUMNS < dim) c.count *= 2;
    while (c.tiles < 4 && c.tiles * c.count * LANE_COLUMNS < dim) c.tiles *= 2;
    while (c.count < LARGEST_BLOCK && c.tiles * c.count * LANE_COLUMNS < dim) c.count += WARP;
    if (c.tiles * c.count * LANE_COLUMNS < dim) c.tiles = 0;
    return c;
}

/* The instance of a kernel template for the tiles of a cover: with a row's tiles in registers, or any. */
#define OF_HELD_TILES(kernel, tiles, ...)                                                          \
    ((tiles) == 1   ? kernel<1 __VA_OPT__(, ) __VA_ARGS__>                                         \
     : (tiles) == 2 ? kernel<2 __VA_OPT__(, ) __VA_ARGS__>                                         \
                    : kernel<4 __VA_OPT__(, ) __VA_ARGS__>)
#define OF_TILES(kernel, tiles, ...)                                                               \
    ((tiles) == 0 ? kernel<0 __VA_OPT__(, ) __VA_ARGS__>                                           \
                  : OF_HELD_TILES(kernel, tiles __VA_OPT__(, ) __VA_ARGS__))

/* The largest block of its launches. */
template <int TILES>
static constexpr int BLOCK_OF = TILES == 0 || TILES == 4 ? LARGEST_BLOCK : SMALL_BLOCK;

/* Floats from row to row in scratch: every row begins on a 16-byte boundary. */
static inline int64_t row_stride(const struct batch *in) {
    return (widest(in) + LANE_COLUMNS - 1) / LANE_COLUMNS * LANE_COLUMNS;
}

/* What an update needs, in device memory. */
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

/* A compact gradient: the unique keys in the order of the entries, and a gradient row for each. */
struct compact {
    const void *key;       /* [runs] of the same width as in the entries */
    const uint32_t *begin; /* [runs] first entry of each */
    const uint32_t *runs;  /* their number, in device memory */
    float *grad;           /* [runs][stride]; NULL: rows are updated at once */
    int64_t stride;
};

static __device__ inline int32_t table_of_key(const struct target &to, uint64_t key) {
    return table_of_row(to.tables, to.num_tables, (int64_t)key);
}
