/* SPDX-License-Identifier: MIT
 *
 * What an update works on: the summed gradients of a group's rows, and rows of a table in memory.
 */
#pragma once

#include "kernels/device/target.cuh"

/* Prefetches what a step needs of a row. */
static __device__ inline void table_prefetch(const struct table *io, int64_t row) {
    prefetch_l2(array_row(&io->weight, row), io->weight.stride);
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        if (io->elem[k].data) prefetch_l2(array_row(&io->elem[k], row), io->elem[k].stride);
    if (io->row.data) prefetch_l2(array_row(&io->row, row), io->row.stride);
}

/* --- the summed gradients of a group's rows, one row after another */

/* Memory of the block for sums: QUADS of each thread lie blockDim.x apart. A thread reads only its own, so no
 * barrier is needed. */
template <int BLOCK, int QUADS> static __device__ inline struct quad *held_quads() {
    SHARED(struct quad, held, (BLOCK * QUADS));
    return &held[threadIdx.x];
}

/* Quads of this thread: TILES for each row, in memory of the block (held_quads()). */
template <int TILES> struct summed {
    static constexpr bool several_warps = TILES == 4;
    struct quad *quad; /* of the first row */
    __device__ int tiles(const struct lanes &, int32_t) const {
        return TILES;
    }
    __device__ struct quad get(const struct lanes &, int32_t, int j) const {
        return quad[j * (int)blockDim.x];
    }
    __device__ void put(const struct lanes &, int32_t, int j, const struct quad &q) const {
        quad[j * (int)blockDim.x] = q;
    }
    __device__ void skip(int rows) {
        quad += rows * TILES * (int)blockDim.x;
    }
};

/* A single row, too wide for that. */
template <> struct summed<0> {
    static constexpr bool several_warps = true;
    float *row;
    __device__ int tiles(const struct lanes &g, int32_t dim) const {
        const int tile = g.count * LANE_COLUMNS;
        return (dim + tile - 1) / tile;
    }
    __device__ struct quad get(const struct lanes &g, int32_t dim, int j) const {
        return quad_load(row, tile_column(g, j), dim);
    }
    __device__ void put(const struct lanes &g, int32_t dim, int j, const struct quad &q) const {
        quad_store(row, tile_column(g, j), dim, q);
    }
    __device__ void skip(int) {}
};

/* --- rows of a table in memory */

/* A table's arrays (the weight, then STATES per element), and this group's row of it. */
template <int STATES> struct place {
    const struct table_shape *shape;
    const struct table *io;
    struct array array[1 + STATES];
    enum dtype weight_type;
    unsigned bf16_states; /* bit k: state k is bf16, not fp32 */
    int32_t dim;
    int64_t step, row;
    bool active; /* the group has a row */
};

/* Four elements of an array of a type narrower than fp32 are loaded and stored by calls: otherwise every
 * update would contain the conversions for each of its arrays. Arguments are few and in registers. */
static __device__ __attribute__((noinline)) float4 load_narrow(enum dtype type, const void *row,
                                                               int32_t column, int32_t dim) {
    return float4_of(quad_load_as(type, row, column, dim));
}

static __device__ __attribute__((noinline)) void store_narrow(const struct table_shape *t,
                                                              const struct table *io, int64_t row,
                                                              int64_t step, int array,
                                                              int32_t column, float4 value) {
    const struct row_format f = row_format(t, step, array, row);
    const struct quad q = quad_of(value);
    struct quad_bits bits = {{0, 0, 0, 0}};
    for (int c = 0; c < LANE_COLUMNS; c++)
        quad_bits_put(f.type, &bits, c, row_format_bits(&f, column + c, q.x[c]));
    quad_put(f.type, array_row(&io->array[array], row), column, t->dim, bits);
}

/* Array k of the place: 0 the weight, 1 + n state n. */
template <int STATES>
static __device__ inline enum dtype place_type(const struct place<STATES> &at, int k) {
    if (k == 0) return at.weight_type;
    return at.bf16_states >> (k - 1) & 1 ? BF16 : FP32;
}

template <int STATES>
static __device__ inline struct quad place_load(const struct place<STATES> &at, int k,
                                                int32_t column) {
    const enum dtype type = place_type(at, k);
    const int32_t dim = at.active ? at.dim : 0;
    const void *row = array_row(&at.array[k], at.row);
    if (type == FP32) return quad_load((const float *)row, column, dim);
    return quad_of(load_narrow(type, row, column, dim));
}

template <int STATES>
static __device__ inline void place_store(const struct place<STATES> &at, int k, int32_t column,
                                          const struct quad &q) {
    if (!at.active) return;
    if (place_type(at, k) == FP32)
        quad_store((float *)array_row(&at.array[k], at.row), column, at.dim, q);
    else
        store_narrow(at.shape, at.io, at.row, at.step, k ? TABLE_ELEM + k - 1 : TABLE_WEIGHT,
                     column, float4_of(q));
}

template <int STATES>
static __device__ inline struct place<STATES> place_of(const struct target &to, int32_t table,
                                                       enum rule_kind kind) {
    struct place<STATES> at = {};
    at.shape = &to.tables[table];
    at.io = &to.io[table];
    at.array[0] = at.io->weight;
    for (int k = 0; k < STATES; k++) at.array[1 + k] = at.io->elem[k];
    at.weight_type = at.shape->weight_type;
    at.bf16_states = at.shape->momentum_type == FP32 ? 0 : rule_momenta(kind);
    at.dim = at.shape->dim;
    at.step = to.steps[table].number;
    return at;
}

/* Goes to the next row of the group: rows is a bit for each, in `row` of that lane. */
template <int STATES>
static __device__ inline void place_next(const struct lanes &g, struct place<STATES> *at,
                                         int64_t row, unsigned rows) {
    at->active = rows != 0;
    at->row = team_get(g, row, at->active ? __ffs((int)rows) - 1 : 0);
}
