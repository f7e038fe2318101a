/* SPDX-License-Identifier: MIT
 *
 * Sums and updates for any kind of tables: rows of any dim, of any type, at any address, with shared hyper-parameters,
 * and maxima. A warp works on a row tile by tile: 128 columns, four of each lane. Between two passes
 * over a row all values are in memory, so no row is too wide.
 */
#pragma once

#include "kernels/device/chunk.cuh"
#include "kernels/device/fold.cuh"
#include "kernels/device/lean.cuh"

enum { TILE_COLUMNS = WARP * LANE_COLUMNS };
static_assert((int)ROW_LANES == (int)TILE_COLUMNS, "a warp has all lanes of a row's sums");

/* A row of a list (runs.cuh). */
struct listed_row {
    bool there; /* false: there is no such row, and the other fields are not set */
    uint32_t row;
    int32_t table;
    const float *sum;
};

/* Row `number`, if it is wanted and of the launch's kind. */
static __device__ inline struct listed_row listed_at(const struct row_list &r, uint32_t number,
                                                     bool wanted) {
    struct listed_row x = {wanted && number < *r.count};
    const uint32_t key = x.there ? r.key[number] : 0;
    if (key == r.padding) x.there = false;
    if (!x.there) return x;
    const struct placed_table at = table_at(r.target, place_of_key(r.target, key));
    const struct table_shape *t = &r.target.tables[at.table];
    if (r.mixed && !(kind_of(t, r.general) == r.kind)) x.there = false;
    x.row = key - (uint32_t)at.first;
    x.table = at.table;
    if (r.first)
        x.sum = r.sums + r.first[at.table] + (int64_t)x.row * t->dim;
    else
        x.sum = r.sums + (int64_t)(r.place ? r.place[number] : number) * r.stride;
    return x;
}

/* A row, and its summed gradient. */
struct row_in_memory {
    const struct table_shape *shape;
    const struct table *io;
    const struct rule_step *step;
    int64_t row;
    const float *sum; /* [dim] aligned, where dim is a multiple of 4 */
    float factor;     /* of the gradient, from its norm */
};

/* A lane's four columns of a row. */
template <int STATES> struct row_tile { struct quad w, g, s[STATES ? STATES : 1]; };

static __device__ inline const void *part_of_row(const struct row_in_memory &x, int array) {
    return array_row(&x.io->array[array], x.row);
}

template <int STATES>
static __device__ inline struct row_tile<STATES> tile_load(const struct row_in_memory &x,
                                                           int32_t column) {
    const int32_t dim = x.shape->dim;
    struct row_tile<STATES> t;
    t.w = quad_load_as(x.shape->weight_type, part_of_row(x, TABLE_WEIGHT), column, dim);
    for (int k = 0; k < STATES; k++)
        t.s[k] = quad_load_as(table_array_type(x.shape, TABLE_ELEM + k),
                              part_of_row(x, TABLE_ELEM + k), column, dim);
    t.g = quad_load_as(FP32, x.sum, column, dim);
    const struct adjustment *a = &x.step->adjust;
    for (int c = 0; c < LANE_COLUMNS && a->gradient; c++)
        t.g.x[c] = adjust_decay(a, adjust_clip(a, t.g.x[c]), x.factor, t.w.x[c]);
    return t;
}

static __device__ inline void
part_store(const struct row_in_memory &x, int array, int32_t column, const struct quad &q) {
    const struct row_format f = row_format(x.shape, x.step->number, array, x.row);
    struct quad_bits bits = {};
    for (int c = 0; c < LANE_COLUMNS; c++)
        quad_bits_put(f.type, &bits, c, row_format_bits(&f, column + c, q.x[c]));
    quad_put(f.type, array_row(&x.io->array[array], x.row), column, x.shape->dim, bits);
}

template <int STATES>
static __device__ inline struct element tile_element(const struct row_in_memory &x,
                                                     struct pair rate,
                                                     const struct row_tile<STATES> &t, int c) {
    struct states s = {};
    for (int k = 0; k < STATES; k++) s.x[k] = t.s[k].x[c];
    return rule_element(x.step, rate, t.w.x[c], s, t.g.x[c]);
}

/* Sums over the row, in the order of kernels/rules.h. terms(column, both): what this lane's columns add. Every lane
 * gets the sums. */
template <int SUMS, class Terms>
static __device__ inline struct pair sums_of_row(int32_t dim, unsigned me, const Terms &terms) {
    struct quad all[2] = {};
#pragma unroll 1
    for (int32_t column = (int32_t)me * LANE_COLUMNS; column < dim; column += TILE_COLUMNS) {
        struct pair each[LANE_COLUMNS] = {};
        terms(column, each);
        for (int c = 0; c < LANE_COLUMNS; c++) {
            all[0].x[c] += column + c < dim ? each[c].a : 0;
            if (SUMS > 1) all[1].x[c] += column + c < dim ? each[c].b : 0;
        }
    }
    struct pair sum = {fold_quad<WARP>(all[0], me), 0};
    if (SUMS > 1) sum.b = fold_quad<WARP>(all[1], me);
    return sum;
}

/* Applies the rule to a row. All lanes of a warp call this. A rule with sums after the step takes the step of each tile
 * twice: a stored state may be rounded, and the weights need the unrounded one. */
template <enum rule_kind RULE>
static __device__ __attribute__((noinline)) void
update_in_memory(const struct target &to, int32_t table, int64_t row, const float *sum) {
    using rule = rule_constants<RULE>;
    const unsigned me = threadIdx.x % WARP;
    struct row_in_memory x = {&to.tables[table], &to.io[table], &to.steps[table], row, sum, 1};
    const int32_t dim = x.shape->dim;
    const struct adjustment *a = &x.step->adjust;
    if (a->clip_norm > 0)
        x.factor = adjust_norm(a, sums_of_row<1>(dim, me, [&](int32_t column, struct pair *each) {
                                      const struct quad g = quad_load_as(FP32, sum, column, dim);
                                      for (int c = 0; c < LANE_COLUMNS; c++) {
                                          const float clipped = adjust_clip(a, g.x[c]);
                                          each[c].a = clipped * clipped;
                                      }
                                  }).a);
    struct pair rate = {0, 0};
    if constexpr (rule::before > 0)
        rate = sums_of_row<rule::before>(dim, me, [&](int32_t column, struct pair *each) {
            const auto t = tile_load<rule::states>(x, column);
            for (int c = 0; c < LANE_COLUMNS; c++)
                each[c] = rule_before(RULE, tile_element(x, {0, 0}, t, c));
        });
    float state[RULE_ROW_STATES] = {}, *of_row = (float *)part_of_row(x, TABLE_ROW_STATE);
    for (int k = 0; k < rule::row_states; k++) state[k] = of_row[k];
    rate = rule_row(RULE, x.step, rate, dim, rule::row_states ? state : NULL);
    __syncwarp(ALL_LANES); /* all lanes have the old states */
    for (int k = 0; k < rule::row_states && me == 0; k++) of_row[k] = state[k];
    float scale = 1;
    const auto stepped = [&](int32_t column, auto *t) {
        *t = tile_load<rule::states>(x, column);
        for (int c = 0; c < LANE_COLUMNS; c++) {
            struct element e = tile_element(x, rate, *t, c);
            e.s = rule_states(RULE, e);
            for (int k = 0; k < rule::states; k++) t->s[k].x[c] = e.s.x[k];
            if (!rule::after) t->w.x[c] = rule_weight(RULE, e, 1);
        }
    };
    if constexpr (rule::after > 0)
        scale = rule_scale(RULE, x.step, rate,
                           sums_of_row<rule::after>(dim, me,
                                                    [&](int32_t column, struct pair *each) {
                                                        struct row_tile<rule::states> t;
                                                        stepped(column, &t);
                                                        for (int c = 0; c < LANE_COLUMNS; c++)
                                                            each[c] = rule_after(
                                                                RULE, tile_element(x, rate, t, c));
                                                    }),
                           dim);
#pragma unroll 1
    for (int32_t column = (int32_t)me * LANE_COLUMNS; column < dim; column += TILE_COLUMNS) {
        struct row_tile<rule::states> t;
        stepped(column, &t);
        if (rule::after)
            for (int c = 0; c < LANE_COLUMNS; c++)
                t.w.x[c] = rule_weight(RULE, tile_element(x, rate, t, c), scale);
        part_store(x, TABLE_WEIGHT, column, t.w);
        for (int k = 0; k < rule::states; k++) part_store(x, TABLE_ELEM + k, column, t.s[k]);
    }
}

/* A warp takes a chunk, and its runs one after another. The sum of a run is in the chunk's tail, which is free until
 * the last run. */
template <enum rule_kind RULE>
static __device__ __forceinline__ void sum_chunk_in_memory(const struct runs &r) {
    const unsigned me = threadIdx.x % WARP;
    const uint32_t number = blockIdx.x * LEAN_WARPS + threadIdx.x / WARP;
    if (number >= r.tree.count[0]) return;
    const struct keys keys = keys_of(r);
    struct chunk c = chunk_of<WARP>(keys, number, (uint32_t)r.tree.chunk, (int)me);
    for (uint32_t from = c.begin, to; from < c.end; from = to, c.open = false) {
        const uint32_t key = keys.at[from];
        to = end_of_run(keys, from + 1, c.end, key);
        const struct placed_table at = table_at(r.target, place_of_key(r.target, key));
        const int32_t dim = r.target.tables[at.table].dim;
        float *sum = part_of_chunk(r, number, !c.open);
#pragma unroll 1
        for (int32_t column = (int32_t)me * LANE_COLUMNS; column < r.stride;
             column += TILE_COLUMNS) {
            struct quad all = {};
            for (uint32_t i = from; i < to; i++) all = quad_sum(all, summand_at(r, i, column, dim));
            *(struct quad *)(sum + column) = all;
        }
        __syncwarp(ALL_LANES);
        const bool ends = to < c.end || !c.goes_on;
        if (ends && !c.open)
            update_in_memory<RULE>(r.target, at.table, (int64_t)(key - (uint32_t)at.first), sum);
        __syncwarp(ALL_LANES);
    }
}

/* A warp takes a row. */
template <enum rule_kind RULE>
static __device__ __forceinline__ void update_listed_in_memory(const struct row_list &r) {
    const uint32_t number = blockIdx.x * LEAN_WARPS + threadIdx.x / WARP;
    const struct listed_row x = listed_at(r, number, true);
    if (x.there) update_in_memory<RULE>(r.target, x.table, x.row, x.sum);
}
