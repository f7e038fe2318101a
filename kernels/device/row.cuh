/* SPDX-License-Identifier: MIT
 *
 * Rows of floats in the hands of a group of lanes: loads and stores of 16 bytes where a row's
 * address and dim allow, single floats elsewhere; and the update of a row whose summed gradient is
 * in registers.
 */
#ifndef EMBFUSE_DEVICE_ROW_CUH
#define EMBFUSE_DEVICE_ROW_CUH

#include "kernels/device/lanes.cuh"
#include "kernels/kernel.h"

/* The four columns of a lane in one tile. */
struct quad {
    float x[LANE_COLUMNS];
};

/* A lane's part of a row that is at most TILES*count*LANE_COLUMNS wide. */
template <int TILES> struct strip { struct quad tile[TILES]; };

static __device__ inline bool is_whole(const float *at, int32_t column, int32_t dim) {
    return column + LANE_COLUMNS <= dim && (uintptr_t)at % sizeof(float4) == 0;
}

/* Columns column .. column+3 of a row; 0 beyond dim. */
static __device__ inline struct quad quad_load(const float *row, int32_t column, int32_t dim) {
    struct quad q = {{0, 0, 0, 0}};
    const float *at = row + column;
    if (is_whole(at, column, dim)) {
        float4 v = *(const float4 *)at;
        q.x[0] = v.x, q.x[1] = v.y, q.x[2] = v.z, q.x[3] = v.w;
    } else {
        for (int c = 0; c < LANE_COLUMNS; c++)
            if (column + c < dim) q.x[c] = at[c];
    }
    return q;
}

/* The same of memory that no kernel of the step writes, through the read-only path. */
static __device__ inline struct quad quad_read(const float *row, int32_t column, int32_t dim) {
    struct quad q = {{0, 0, 0, 0}};
    const float *at = row + column;
    if (is_whole(at, column, dim)) {
        float4 v = __ldg((const float4 *)at);
        q.x[0] = v.x, q.x[1] = v.y, q.x[2] = v.z, q.x[3] = v.w;
    } else {
        for (int c = 0; c < LANE_COLUMNS; c++)
            if (column + c < dim) q.x[c] = __ldg(at + c);
    }
    return q;
}

static __device__ inline void quad_store(float *row, int32_t column, int32_t dim, struct quad q) {
    float *at = row + column;
    if (is_whole(at, column, dim)) {
        *(float4 *)at = make_float4(q.x[0], q.x[1], q.x[2], q.x[3]);
    } else {
        for (int c = 0; c < LANE_COLUMNS; c++)
            if (column + c < dim) at[c] = q.x[c];
    }
}

/* Adds to a row that other groups add to as well. */
static __device__ inline void quad_add_atomically(float *row, int32_t column, int32_t dim,
                                                  struct quad q) {
    float *at = row + column;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 /* one request for four floats */
    if (is_whole(at, column, dim)) {
        atomicAdd((float4 *)at, make_float4(q.x[0], q.x[1], q.x[2], q.x[3]));
        return;
    }
#endif
    for (int c = 0; c < LANE_COLUMNS; c++)
        if (column + c < dim) atomicAdd(&at[c], q.x[c]);
}

static __device__ inline struct quad quad_scale(struct quad q, float by) {
    for (int c = 0; c < LANE_COLUMNS; c++) q.x[c] *= by;
    return q;
}

static __device__ inline struct quad quad_sum(struct quad p, struct quad q) {
    for (int c = 0; c < LANE_COLUMNS; c++) p.x[c] += q.x[c];
    return p;
}

static __device__ inline int32_t tile_column(const struct lanes &g, int tile) {
    return (tile * g.count + g.lane) * LANE_COLUMNS;
}

template <int TILES> static __device__ inline struct strip<TILES> strip_zero() {
    struct strip<TILES> s;
    for (int j = 0; j < TILES; j++)
        for (int c = 0; c < LANE_COLUMNS; c++) s.tile[j].x[c] = 0;
    return s;
}

template <int TILES>
static __device__ inline struct strip<TILES> strip_load(const struct lanes &g, const float *row,
                                                        int32_t dim) {
    struct strip<TILES> s;
#pragma unroll
    for (int j = 0; j < TILES; j++) s.tile[j] = quad_load(row, tile_column(g, j), dim);
    return s;
}

template <int TILES>
static __device__ inline void strip_store(const struct lanes &g, float *row, int32_t dim,
                                          const struct strip<TILES> &s) {
#pragma unroll
    for (int j = 0; j < TILES; j++) quad_store(row, tile_column(g, j), dim, s.tile[j]);
}

/* Asks for the lines of a row that will be read soon. */
static __device__ inline void row_prefetch(const float *row, int32_t dim) {
#ifdef __CUDA_ARCH__
    for (int32_t column = 0; column < dim; column += 128 / (int)sizeof(float))
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row + column));
#else
    (void)row, (void)dim;
#endif
}

/* Every array of a table's row. */
static __device__ inline void table_prefetch(const struct table *io, int32_t dim, int64_t row) {
    row_prefetch(io->weight + row * dim, dim);
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        if (io->elem[k]) row_prefetch(io->elem[k] + row * dim, dim);
}

/* Applies the table's rule to a row whose gradients add up to g. Called by the whole group. */
template <int TILES>
static __device__ inline void row_update(const struct lanes &lanes, const struct rule_step *step,
                                         const struct table *io, int32_t dim, int64_t row,
                                         const struct strip<TILES> &g) {
    float *weight = io->weight + row * dim;
    float *elem[RULE_ELEM_STATES];
    struct strip<TILES> w = strip_load<TILES>(lanes, weight, dim), s[RULE_ELEM_STATES];
    for (int k = 0; k < RULE_ELEM_STATES; k++) {
        elem[k] = io->elem[k] ? io->elem[k] + row * dim : NULL;
        s[k] = elem[k] ? strip_load<TILES>(lanes, elem[k], dim) : strip_zero<TILES>();
    }
    enum rule_kind kind = step->rule.kind;
    int states = rule_row_states(kind);
    float rate = 0;
    if (rule_reduces(kind) || states > 0) {
        double acc = 0;
#pragma unroll
        for (int j = 0; j < TILES; j++)
            for (int c = 0; c < LANE_COLUMNS; c++) {
                struct rule_elem x = {w.tile[j].x[c], {s[0].tile[j].x[c], s[1].tile[j].x[c]}};
                if (tile_column(lanes, j) + c < dim) acc += rule_reduce(step, x, g.tile[j].x[c]);
            }
        acc = lanes_sum(lanes, acc);
        if (lanes.lane == 0)
            rate = rule_row(step, acc, dim, io->row ? io->row + row * states : NULL);
        rate = lanes_first(lanes, rate);
    } else {
        rate = rule_row(step, 0, dim, NULL);
    }
#pragma unroll
    for (int j = 0; j < TILES; j++)
        for (int c = 0; c < LANE_COLUMNS; c++) {
            struct rule_elem x = {w.tile[j].x[c], {s[0].tile[j].x[c], s[1].tile[j].x[c]}};
            x = rule_elem(step, rate, x, g.tile[j].x[c]);
            w.tile[j].x[c] = x.w;
            for (int k = 0; k < RULE_ELEM_STATES; k++) s[k].tile[j].x[c] = x.s[k];
        }
    strip_store(lanes, weight, dim, w);
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        if (elem[k]) strip_store(lanes, elem[k], dim, s[k]);
}

/* The same for a row too wide for registers: its gradient g is in memory. */
static __device__ inline void row_update_wide(const struct lanes &lanes,
                                              const struct rule_step *step, const struct table *io,
                                              int32_t dim, int64_t row, const float *g) {
    float *array[1 + RULE_ELEM_STATES]; /* weight and states */
    for (int k = 0; k < 1 + RULE_ELEM_STATES; k++) {
        float *all = k == 0 ? io->weight : io->elem[k - 1];
        array[k] = all ? all + row * dim : NULL;
    }
    int states = rule_row_states(step->rule.kind);
    double acc = 0;
    float rate = 0;
    for (int phase = 0; phase < 2; phase++) {
        for (int32_t d = lanes.lane; d < dim; d += lanes.count) {
            struct rule_elem x = {array[0][d], {}};
            for (int k = 0; k < RULE_ELEM_STATES; k++)
                if (array[k + 1]) x.s[k] = array[k + 1][d];
            if (phase == 0) {
                acc += rule_reduce(step, x, g[d]);
                continue;
            }
            x = rule_elem(step, rate, x, g[d]);
            array[0][d] = x.w;
            for (int k = 0; k < RULE_ELEM_STATES; k++)
                if (array[k + 1]) array[k + 1][d] = x.s[k];
        }
        if (phase == 1) break;
        acc = lanes_sum(lanes, acc);
        if (lanes.lane == 0)
            rate = rule_row(step, acc, dim, io->row ? io->row + row * states : NULL);
        rate = lanes_first(lanes, rate);
    }
}

#endif
