/* SPDX-License-Identifier: MIT */
#include "kernels/device/small.cuh"
#include "kernels/device/scan.cuh"
#include "kernels/device/update.cuh"

static __device__ inline struct before operator+(struct before x, struct before y) {
    return {x.slices + y.slices, x.lookups + y.lookups};
}

/* One block. */
static __global__ void __launch_bounds__(SCAN_BLOCK)
    count_before(const struct batch in, struct before *before) {
    const auto small = [&](int32_t f) {
        return is_small(&in.device_tables[in.device_features[f].table]);
    };
    const auto counts = [&](int32_t f) -> struct before {
        const struct feature *x = &in.device_features[f];
        if (small(f)) return {slices_of(x), 0};
        return {0, x->lookups};
    };
    items_before<struct before>(in.num_features, counts, [&](int32_t f, struct before sum) {
        if (small(f)) sum.lookups = -1;
        before[f] = sum;
    });
}

struct small_lookup {
    int64_t grad;
    uint32_t part; /* part_of() */
    int32_t row;   /* -1: padding */
};

static __device__ inline int32_t feature_of_slice(const struct batch &in,
                                                  const struct before *before, int64_t slice) {
    /* The last feature that begins at or before the slice: it is the one with slices. */
    return (int32_t)last_at_most(&before->slices, sizeof *before, 0, in.num_features, slice);
}

/* Adds the lookups of a tile to the histogram, in their order; only this thread's column. winners: of the batch,
 * if MAX. All loads come before the first use of one, and none of them after a branch. */
template <class Element, bool MAX>
static __device__ __forceinline__ void add_tile(const struct batch &in,
                                                const struct small_lookup *tile, int count,
                                                int32_t column, int32_t dim, float *sum) {
    enum { AHEAD = 8 };
    for (int k = 0; k < count; k += AHEAD) {
        uint32_t bits[AHEAD], winner[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t at = tile[min(k + u, count - 1)].grad + column;
            bits[u] = __ldg((const Element *)in.grad + at);
            winner[u] = MAX ? __ldg((const unsigned *)in.winners + at) : 0;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (k + u >= count || tile[k + u].row < 0) continue;
            const uint32_t part = tile[k + u].part;
            const bool of_max = MAX && part & PART_OF_MAX;
            if (of_max && winner[u] != (part & ~PART_OF_MAX)) continue;
            sum[(int64_t)tile[k + u].row * dim + column] +=
                (of_max ? 1.0f : __uint_as_float(part)) * dtype_widen(in.grad_type, bits[u]);
        }
    }
}

/* Element: uint32_t for fp32 gradients, otherwise uint16_t. Shared memory holds four blocks with the largest histogram,
 * so ptxas may use a fourth of the registers for each. */
template <class Element, bool MAX>
static __global__ void __launch_bounds__(SMALL_BLOCK_MOST, 4)
    sum_slices(const struct batch in, const float *scale, const struct small s) {
    DYNAMIC_SHARED(float, sum);
    SHARED(struct small_lookup, tile, SMALL_BLOCK_MOST);
    int64_t slice = blockIdx.x;
    int32_t f = feature_of_slice(in, s.before, slice);
    const struct feature *x = &in.device_features[f];
    const struct table_shape *t = &in.device_tables[x->table];
    int64_t floats = small_floats(t), length = slice_length(x);
    int64_t first = in.offsets[f * in.bags], end = first + x->lookups;
    int64_t begin = first + (slice - s.before[f].slices) * length;
    if (begin + length < end) end = begin + length;
    unsigned *touched = (unsigned *)(sum + t->rows * t->dim);
    int32_t column = (int32_t)threadIdx.x, width = (int32_t)blockDim.x;
    for (int64_t k = column; k < floats; k += width) sum[k] = 0;
    __syncthreads();
    struct nearby near = {f, false, f * in.bags};
    for (int64_t at = begin; at < end; at += width) {
        int64_t i = at + column;
        struct lookup l = lookup_at(in, scale, min(i, end - 1), &near);
        bool counts = i < end && !l.padding;
        tile[column] = {l.grad, part_of(l), counts ? (int32_t)l.row : -1};
        if (counts) atomicOr(&touched[l.row / 32], 1u << l.row % 32);
        __syncthreads();
        int count = end - at < width ? (int)(end - at) : width;
        if (column < t->dim) add_tile<Element, MAX>(in, tile, count, column, t->dim, sum);
        __syncthreads();
    }
    for (int64_t k = column; k < floats; k += width) s.histogram[slice * s.stride + k] = sum[k];
}

/* blockIdx.y is the table; a group of lanes takes a row of it. */
template <int TILES>
static __global__ void __launch_bounds__(SMALL_BLOCK, 1)
    update_small(const struct batch in, const struct small s, const struct target to, int count) {
    const struct lanes g = lanes_here(count);
    const int32_t table = (int32_t)blockIdx.y;
    const struct table_shape *t = &in.device_tables[table];
    const int64_t row = group_number(g);
    if (!is_small(t)) return;
    struct strip<TILES> sum = strip_zero<TILES>();
    unsigned touched = 0;
    for (int32_t f = 0; f < in.num_features && row < t->rows; f++) {
        const struct feature *x = &in.device_features[f];
        if (x->table != table) continue;
        const float *from = s.histogram + s.before[f].slices * s.stride;
        int64_t slices = slices_of(x);
#pragma unroll 4
        for (int64_t k = 0; k < slices; k++, from += s.stride) {
            touched |= __float_as_uint(from[t->rows * t->dim + row / 32]) >> row % 32 & 1;
            struct strip<TILES> part = strip_load<TILES>(g, from + row * t->dim, t->dim);
            for (int j = 0; j < TILES; j++) sum.tile[j] = quad_sum(sum.tile[j], part.tile[j]);
        }
    }
    const struct summed<TILES> sums = { held_quads<SMALL_BLOCK, TILES>() };
    for (int j = 0; j < TILES; j++) sums.put(g, t->dim, j, sum.tile[j]);
    rows_update<TILES>(to, g.count, sums, table, row, touched);
}

void small_count(const struct small *s, const struct batch *in, cudaStream_t stream) {
    LAUNCH(count_before, 1, SCAN_BLOCK, 0, stream, *in, s->before);
}

cudaError_t small_run(const struct small *s, const struct batch *in, const float *scale,
                      const struct target *to, cudaStream_t stream) {
    if (s->slices == 0) return cudaSuccess;
    int block = (s->widest + WARP - 1) / WARP * WARP;
    const bool max = has_pooling(in, POOL_MAX);
    auto sum = in->grad_type == FP32
                   ? max ? sum_slices<uint32_t, true> : sum_slices<uint32_t, false>
               : max ? sum_slices<uint16_t, true>
                     : sum_slices<uint16_t, false>;
    LAUNCH(sum, (unsigned)s->slices, block, (size_t)s->stride * sizeof(float), stream, *in, scale,
           *s);
    struct cover c = cover_of(s->widest);
    dim3 grid(blocks_for(s->longest, groups_of_block(c.count)), (unsigned)in->num_tables);
    auto update = c.tiles == 1 ? update_small<1> : update_small<2>;
    LAUNCH(update, grid, block_of_lanes(c.count), 0, stream, *in, *s, *to, c.count);
    return cudaGetLastError();
}
