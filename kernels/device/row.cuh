/* SPDX-License-Identifier: MIT
 *
 * A group of lanes loads and stores a row: four elements at a time where the row's address and dim
 * allow it, otherwise single elements.
 */
#ifndef EMBFUSE_DEVICE_ROW_CUH
#define EMBFUSE_DEVICE_ROW_CUH

#include "kernels/device/lanes.cuh"
#include "kernels/kernel.h"

/* A lane's four columns of one tile. */
struct quad {
    float x[LANE_COLUMNS];
};

/* A lane's part of a row of at most TILES*count*LANE_COLUMNS floats. */
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

/* As quad_load(), through the read-only path: for memory that no kernel of the step writes. */
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

/* As quad_load() and quad_store(), for weights of any type. */
static __device__ inline struct quad quad_load_as(enum dtype type, const void *row, int32_t column,
                                                  int32_t dim) {
    if (type == FP32) return quad_load((const float *)row, column, dim);
    struct quad q = {{0, 0, 0, 0}};
    const uint16_t *at = (const uint16_t *)row + column;
    if (column + LANE_COLUMNS <= dim && (uintptr_t)at % sizeof(ushort4) == 0) {
        ushort4 v = *(const ushort4 *)at;
        q.x[0] = bf16_widen(v.x), q.x[1] = bf16_widen(v.y);
        q.x[2] = bf16_widen(v.z), q.x[3] = bf16_widen(v.w);
    } else {
        for (int c = 0; c < LANE_COLUMNS; c++)
            if (column + c < dim) q.x[c] = bf16_widen(at[c]);
    }
    return q;
}

static __device__ inline void quad_store_as(enum dtype type, void *row, int32_t column, int32_t dim,
                                            struct quad q) {
    if (type == FP32) return quad_store((float *)row, column, dim, q);
    uint16_t *at = (uint16_t *)row + column;
    if (column + LANE_COLUMNS <= dim && (uintptr_t)at % sizeof(ushort4) == 0) {
        *(ushort4 *)at = make_ushort4(bf16_round(q.x[0]), bf16_round(q.x[1]), bf16_round(q.x[2]),
                                      bf16_round(q.x[3]));
    } else {
        for (int c = 0; c < LANE_COLUMNS; c++)
            if (column + c < dim) at[c] = bf16_round(q.x[c]);
    }
}

/* For a row that other groups also add to. */
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

template <int TILES> static __device__ __forceinline__ struct strip<TILES> strip_zero() {
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
static __device__ __forceinline__ void strip_store(const struct lanes &g, float *row, int32_t dim,
                                                   const struct strip<TILES> &s) {
#pragma unroll
    for (int j = 0; j < TILES; j++) quad_store(row, tile_column(g, j), dim, s.tile[j]);
}

/* Prefetches the lines of a row into L2. */
static __device__ inline void row_prefetch(const void *row, int64_t bytes) {
#ifdef __CUDA_ARCH__
    for (int64_t at = 0; at < bytes; at += 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)row + at));
#else
    (void)row, (void)bytes;
#endif
}

#endif
