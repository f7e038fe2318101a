/* SPDX-License-Identifier: MIT
 *
 * Small tables: their gradient fits in shared memory, so their lookups need no sort. A block takes
 * a slice of a feature's lookups and sums them, in their order, into a histogram of gradients in
 * shared memory. A second kernel adds the histograms of a row in the order of the slices and
 * updates touched rows.
 *
 * Who owns what: in the first kernel a thread owns a column, so gradients need no atomics; in the
 * second kernel a group of lanes owns a row. A block reads gradients in the order of the bags:
 * within a bag only the first read of the gradient row misses L1.
 * Source: the per-table histograms of torchrec's Triton TBE, here exact in fp32.
 */
#ifndef EMBFUSE_FUSED_SMALL_CUH
#define EMBFUSE_FUSED_SMALL_CUH

#include "kernels/device/sorted.cuh"
#include "kernels/device/target.cuh"

enum {
    SMALL_FLOATS = 12288 - 1024, /* 48 KiB of shared memory minus a tile of lookups */
    SMALL_REUSE = 4,             /* lookups per row, at least */
    SLICE_LEAST = 2048,          /* lookups */
    SLICES_MOST = 256,           /* per feature */
    SMALL_BLOCK_MOST = 256,
};

/* Floats of a histogram: the gradients, and the lookups of each row, exact up to 2^24. */
HOST_DEVICE int64_t small_floats(const struct table_shape *t) {
    return t->rows * (t->dim + 1);
}

HOST_DEVICE bool is_small(const struct table_shape *t) {
    return t->dim <= SMALL_BLOCK_MOST && small_floats(t) <= SMALL_FLOATS &&
           t->lookups >= SMALL_REUSE * t->rows;
}

HOST_DEVICE int64_t slice_length(const struct feature *f) {
    int64_t length = (f->lookups + SLICES_MOST - 1) / SLICES_MOST;
    return length < SLICE_LEAST ? (int64_t)SLICE_LEAST : length;
}

HOST_DEVICE int64_t slices_of(const struct feature *f) {
    return (f->lookups + slice_length(f) - 1) / slice_length(f);
}

struct small {
    struct before *before; /* [num_features] device memory, NULL if no table is small */
    float *histogram;      /* [slices][stride] device memory */
    int64_t slices, stride, lookups;
    int32_t widest;  /* largest dim of the small tables */
    int64_t longest; /* their largest number of rows */
};

static inline void small_lay_out(struct small *x, struct scratch *s, const struct batch *in) {
    *x = {};
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct table_shape *t = &in->tables[in->features[f].table];
        if (!is_small(t)) continue;
        x->slices += slices_of(&in->features[f]);
        x->lookups += in->features[f].lookups;
        if (small_floats(t) > x->stride) x->stride = small_floats(t);
        if (t->dim > x->widest) x->widest = t->dim;
        if (t->rows > x->longest) x->longest = t->rows;
    }
    if (x->slices == 0) return;
    x->before = (struct before *)scratch_take(s, in->num_features, sizeof *x->before);
    x->histogram = (float *)scratch_take(s, x->slices * x->stride, sizeof(float));
}

/* One thread. */
static __global__ void count_before(const struct batch in, struct before *before) {
    int64_t slices = 0, lookups = 0;
    for (int32_t f = 0; f < in.num_features; f++) {
        const struct feature *x = &in.device_features[f];
        bool small = is_small(&in.device_tables[x->table]);
        before[f] = {slices, small ? -1 : lookups};
        slices += small ? slices_of(x) : 0;
        lookups += small ? 0 : x->lookups;
    }
}

struct small_lookup {
    int64_t grad;
    float coefficient;
    int32_t row; /* -1: padding */
};

static __device__ inline int32_t feature_of_slice(const struct batch &in,
                                                  const struct before *before, int64_t slice) {
    /* The last feature that begins at or before the slice: it is the one with slices. */
    return (int32_t)last_at_most(&before->slices, sizeof *before, 0, in.num_features, slice);
}

/* Adds the lookups of a tile to the histogram, in their order; only this thread's column. */
static __device__ inline void add_tile(const float *source, const struct small_lookup *tile,
                                       int count, int32_t column, int32_t dim, float *sum) {
    enum { AHEAD = 8 };
    for (int k = 0; k < count; k += AHEAD) {
        float value[AHEAD];
        /* All loads come before the first use of one, and none of them after a branch. */
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            value[u] = __ldg(source + tile[min(k + u, count - 1)].grad + column);
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (k + u < count && tile[k + u].row >= 0)
                sum[(int64_t)tile[k + u].row * dim + column] += tile[k + u].coefficient * value[u];
    }
}

static __global__ void __launch_bounds__(SMALL_BLOCK_MOST)
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
    float *hits = sum + t->rows * t->dim;
    int32_t column = (int32_t)threadIdx.x, width = (int32_t)blockDim.x;
    for (int64_t k = column; k < floats; k += width) sum[k] = 0;
    __syncthreads();
    for (int64_t at = begin; at < end; at += width) {
        int64_t i = at + column;
        struct lookup l = lookup_at(in, scale, i < end ? i : end - 1);
        bool counts = i < end && !l.padding;
        tile[column] = {l.grad, l.coefficient, counts ? (int32_t)l.row : -1};
        if (counts) atomicAdd(&hits[l.row], 1.0f);
        __syncthreads();
        int count = end - at < width ? (int)(end - at) : width;
        if (column < t->dim) add_tile(in.grad, tile, count, column, t->dim, sum);
        __syncthreads();
    }
    for (int64_t k = column; k < floats; k += width) s.histogram[slice * s.stride + k] = sum[k];
}

/* blockIdx.y is the table; a group of lanes takes a row of it. */
template <int TILES>
static __global__ void __launch_bounds__(SMALL_BLOCK)
    update_small(const struct batch in, const struct small s, const struct target to, int count) {
    struct lanes g = lanes_here(count);
    int32_t table = (int32_t)blockIdx.y;
    const struct table_shape *t = &in.device_tables[table];
    int64_t row = group_number(g);
    if (!is_small(t) || row >= t->rows) return;
    struct strip<TILES> sum = strip_zero<TILES>();
    float hits = 0;
    for (int32_t f = 0; f < in.num_features; f++) {
        const struct feature *x = &in.device_features[f];
        if (x->table != table) continue;
        const float *from = s.histogram + s.before[f].slices * s.stride;
        int64_t slices = slices_of(x);
#pragma unroll 4
        for (int64_t k = 0; k < slices; k++, from += s.stride) {
            hits += from[t->rows * t->dim + row];
            struct strip<TILES> part = strip_load<TILES>(g, from + row * t->dim, t->dim);
            for (int j = 0; j < TILES; j++) sum.tile[j] = quad_sum(sum.tile[j], part.tile[j]);
        }
    }
    if (hits > 0) row_update<TILES>(g, &to.steps[table], place_of(to, table, row), sum);
}

/* Sums and updates all small tables. scale: as for lookup_at(). */
static inline cudaError_t small_run(const struct small *s, const struct batch *in,
                                    const float *scale, const struct target *to,
                                    cudaStream_t stream) {
    if (s->slices == 0) return cudaSuccess;
    int block = (s->widest + WARP - 1) / WARP * WARP;
    LAUNCH(sum_slices, (unsigned)s->slices, block, (size_t)s->stride * sizeof(float), stream, *in,
           scale, *s);
    struct cover c = cover_of(s->widest);
    dim3 grid(blocks_for(s->longest, groups_of_block(c.count)), (unsigned)in->num_tables);
    auto update = c.tiles == 1 ? update_small<1> : update_small<2>;
    LAUNCH(update, grid, block_of_lanes(c.count), 0, stream, *in, *s, *to, c.count);
    return cudaGetLastError();
}

#endif
