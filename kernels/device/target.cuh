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

static __host__ __device__ inline struct cover cover_of(int32_t dim) {
    struct cover c = {1, 4};
    while (c.count < WARP && c.count * LANE_COLUMNS < dim) c.count *= 2;
    while (c.tiles < 4 && c.tiles * c.count * LANE_COLUMNS < dim) c.tiles *= 2;
    while (c.count < LARGEST_BLOCK && c.tiles * c.count * LANE_COLUMNS < dim) c.count += WARP;
    if (c.tiles * c.count * LANE_COLUMNS < dim) c.tiles = 0;
    return c;
}

/* What the tables of a lean launch share (lean.h). */
enum { ANY_KIND = -1 };
struct kind {
    int rule;   /* ANY_KIND: no lean kernel takes such tables */
    bool plain; /* all arrays are fp32, and no shared hyper-parameter adjusts */
};

/* Rows of at most 256 columns, a multiple of 4, that lie packed; arrays of at most 64 GiB, so that the number of a quad
 * has 32 bits. */
static __host__ __device__ inline struct kind kind_of(const struct table_shape *t) {
    const struct cover c = cover_of(t->dim);
    const bool lean = (c.tiles == 1 || c.tiles == 2) && t->dim % LANE_COLUMNS == 0 &&
                      t->rows <= (int64_t)UINT32_MAX * 4 / t->dim &&
                      !(t->row_state == ROW_STATE_BESIDE && rule_row_states(t->rule));
    struct kind k = {ANY_KIND, false};
    if (lean) k.rule = t->rule, k.plain = !table_is_narrow(t) && !t->adjusts;
    return k;
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
static inline int32_t stride_of(int32_t dim) {
    return (dim + LANE_COLUMNS - 1) / LANE_COLUMNS * LANE_COLUMNS;
}

static inline int64_t row_stride(const struct batch *in) {
    return stride_of(widest(in));
}

/* A table, and the key of its first row. */
struct placed_table {
    int64_t first;
    int32_t table;
};

/* What an update needs, in device memory. */
struct target {
    const struct table_shape *tables;
    int32_t num_tables;
    const struct rule_step *steps;
    const struct table *io;
    const struct placed_table *order; /* [num_tables] by key; NULL: in their own order */
};

static inline struct target target_of(const struct batch *in, const struct rule_step *steps,
                                      const struct table *io) {
    return {in->device_tables, in->num_tables, steps, io, NULL};
}

/* A compact gradient: the unique keys in the order of the entries, and a gradient row for each. */
struct compact {
    const void *key;       /* [runs] of the same width as in the entries */
    const uint32_t *begin; /* [runs] first entry of each */
    const uint32_t *runs;  /* their number, in device memory */
    float *grad;           /* [runs][stride]; NULL: rows are updated at once */
    int64_t stride;
};

/* The place in the order of the table of a key. */
static __device__ inline int32_t place_of_key(const struct target &to, uint64_t key) {
    if (!to.order) return table_of_row(to.tables, to.num_tables, (int64_t)key);
    return (int32_t)last_at_most(&to.order->first, sizeof *to.order, 0, to.num_tables,
                                 (int64_t)key);
}

static __device__ inline struct placed_table table_at(const struct target &to, int32_t place) {
    if (!to.order) return {to.tables[place].first_row, place};
    return to.order[place];
}
