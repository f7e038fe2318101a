/* SPDX-License-Identifier: MIT
 *
 * A group of lanes loads and stores a row: four elements at a time where the row's address and dim
 * allow it, otherwise single elements.
 */
#pragma once

#include "kernels/device/lanes.cuh"
#include "kernels/kernel.h"

/* A lane's four columns of one tile. */
struct alignas(16) quad {
    float x[LANE_COLUMNS];
};

/* Four elements as they lie in memory: fp32 in x[c]; narrower ones are packed, element 0 in the lowest
 * bits of x[0]. */
struct quad_bits {
    uint32_t x[LANE_COLUMNS];
};

/* The columns column .. column+3 are all there, and lie so that one access reaches them. */
static __device__ inline bool is_whole(enum dtype type, const void *at, int32_t column,
                                       int32_t dim) {
    return column + LANE_COLUMNS <= dim && (uintptr_t)at % (LANE_COLUMNS * dtype_bytes(type)) == 0;
}

static __device__ inline void quad_bits_put(enum dtype type, struct quad_bits *q, int c,
                                            uint32_t bits) {
    if (type == FP32)
        q->x[c] = bits;
    else if (type == FP8)
        q->x[0] |= bits << 8 * c;
    else
        q->x[c / 2] |= bits << 16 * (c % 2);
}

static __device__ inline uint32_t quad_bits_get(enum dtype type, const struct quad_bits &q, int c) {
    if (type == FP32) return q.x[c];
    return type == FP8 ? q.x[0] >> 8 * c & 0xffu : q.x[c / 2] >> 16 * (c % 2) & 0xffffu;
}

static __device__ inline float4 float4_of(const struct quad &q) {
    return make_float4(q.x[0], q.x[1], q.x[2], q.x[3]);
}

static __device__ inline struct quad quad_of(float4 v) {
    return {{v.x, v.y, v.z, v.w}};
}

/* A load, through the read-only path for memory that no kernel of the step writes. */
template <bool READ_ONLY, class T> static __device__ inline T load_from(const void *at) {
    if constexpr (READ_ONLY) return __ldg((const T *)at);
    return *(const T *)at;
}

/* Columns column .. column+3 of a row of that type; 0 beyond dim. */
template <bool READ_ONLY>
static __device__ inline struct quad_bits quad_fetch(enum dtype type, const void *row,
                                                     int32_t column, int32_t dim) {
    struct quad_bits q = {{0, 0, 0, 0}};
    const char *at = (const char *)row + column * dtype_bytes(type);
    if (!is_whole(type, at, column, dim)) {
        for (int c = 0; c < LANE_COLUMNS; c++)
            if (column + c < dim) quad_bits_put(type, &q, c, dtype_bits(type, at, c));
    } else if (type == FP32) {
        const float4 v = load_from<READ_ONLY, float4>(at);
        q.x[0] = float_bits(v.x), q.x[1] = float_bits(v.y);
        q.x[2] = float_bits(v.z), q.x[3] = float_bits(v.w);
    } else if (type == FP8) {
        q.x[0] = load_from<READ_ONLY, unsigned>(at);
    } else {
        const uint2 v = load_from<READ_ONLY, uint2>(at);
        q.x[0] = v.x, q.x[1] = v.y;
    }
    return q;
}

static __device__ inline struct quad quad_widen(enum dtype type, const struct quad_bits &bits) {
    struct quad q;
    for (int c = 0; c < LANE_COLUMNS; c++) q.x[c] = dtype_widen(type, quad_bits_get(type, bits, c));
    return q;
}

/* Four elements from one load: a uint4 of fp32, a uint2 of a type of two bytes. */
static __device__ __forceinline__ struct quad quad_widen(enum dtype, const uint4 &bits) {
    return {{bits_float(bits.x), bits_float(bits.y), bits_float(bits.z), bits_float(bits.w)}};
}

static __device__ __forceinline__ struct quad quad_widen(enum dtype type, const uint2 &bits) {
    const struct quad_bits both = {{bits.x, bits.y, 0, 0}};
    return quad_widen(type, both);
}

static __device__ inline struct quad quad_load_as(enum dtype type, const void *row, int32_t column,
                                                  int32_t dim) {
    return quad_widen(type, quad_fetch<false>(type, row, column, dim));
}

static __device__ inline void quad_put(enum dtype type, void *row, int32_t column, int32_t dim,
                                       const struct quad_bits &q) {
    char *at = (char *)row + column * dtype_bytes(type);
    if (!is_whole(type, at, column, dim)) {
        for (int c = 0; c < LANE_COLUMNS; c++)
            if (column + c < dim) dtype_put(type, at, c, quad_bits_get(type, q, c));
    } else if (type == FP32) {
        *(float4 *)at = make_float4(bits_float(q.x[0]), bits_float(q.x[1]), bits_float(q.x[2]),
                                    bits_float(q.x[3]));
    } else if (type == FP8) {
        *(unsigned *)at = q.x[0];
    } else {
        *(uint2 *)at = make_uint2(q.x[0], q.x[1]);
    }
}

static __device__ inline struct quad quad_scale(struct quad q, float by) {
    for (int c = 0; c < LANE_COLUMNS; c++) q.x[c] *= by;
    return q;
}

static __device__ inline struct quad quad_sum(struct quad p, struct quad q) {
    for (int c = 0; c < LANE_COLUMNS; c++) p.x[c] += q.x[c];
    return p;
}
