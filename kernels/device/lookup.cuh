/* SPDX-License-Identifier: MIT
 *
 * Maps a lookup to its row, gradient row and coefficient. This handles pooling, mean, per-sample
 * weights and padding, so no kernel needs a separate pass for them.
 */
#pragma once

#include "kernels/device/max_mask.cuh"
#include "kernels/kernel.h"
#include "kernels/scratch.h"
#include "kernels/shape.h"

enum { LOOKUP_BLOCK = 256 };

/* The number of blocks, at least one, for `count` items with per_block items per block. */
static inline unsigned blocks_for(int64_t count, int64_t per_block) {
    return count > 0 ? (unsigned)((count + per_block - 1) / per_block) : 1;
}

/* All lanes of a warp know this of the ascending lookups that the warp takes next. */
struct nearby {
    int32_t feature; /* the feature of all these lookups, or -1 if they have several */
    bool close;      /* `bag` is the bag of an earlier lookup: the search begins there */
    int64_t bag;     /* flat bag, not after the bag of the first lookup */
    int64_t end;     /* a flat bag behind the bag of the last lookup */
};

static __device__ inline int32_t feature_of(const struct batch &in, int64_t i) {
    return feature_of_lookup(in.device_features, in.num_features, i);
}

/* For lookups first .. last. */
static __device__ inline struct nearby nearby_of(const struct batch &in, int64_t first,
                                                 int64_t last) {
    const int32_t f = feature_of(in, first);
    const struct feature *x = &in.device_features[f];
    const bool all = x->first_lookup + x->lookups > last;
    return {all ? f : -1, false, x->first_bag, all ? x->first_bag + x->bags : in.flat_bags};
}

/* The flat bag of lookup i. A whole warp calls this with consecutive or equal lookups, lane 0 with the first. The warp
 * finds the bag of that one with 32 probes at a time; then each lane searches nearby. */
static __device__ inline int64_t bag_of(const struct batch &in, int64_t i, struct nearby *near) {
    const int64_t first = __shfl_sync(ALL_LANES, (long long)i, 0), lane = threadIdx.x % WARP,
                  end = near->end;
    int64_t lo = near->bag, hi = end, step = near->close ? 1 : (hi - lo + WARP - 1) / WARP;
    while (hi - lo > 1) {
        const int64_t probe = lo + lane * step;
        const bool begun = probe < hi && in.offsets[probe] <= first;
        const int last = __popc(__ballot_sync(ALL_LANES, begun)) - 1;
        lo += last * step;
        const bool beyond = last == (int)WARP - 1; /* the bag may lie behind all probes */
        if (!beyond) hi = min(hi, lo + step);
        step = beyond ? step * WARP : (hi - lo + WARP - 1) / WARP;
    }
    near->bag = lo;
    near->close = true;
    hi = lo + WARP < end ? lo + WARP : end;
    if (hi < end && in.offsets[hi] <= i) lo = hi, hi = end;
    return last_at_most(in.offsets, sizeof *in.offsets, lo, hi, i);
}

struct lookup {
    int32_t feature, table;
    int64_t row;
    int64_t grad;      /* elements from batch.grad to its gradient row */
    float coefficient; /* factor of the gradient row */
    bool padding;      /* to be ignored */
    int32_t number;    /* of its mask with POOL_MAX (max_mask.cuh); -1 without one */
};

/* Lookup i, whose id is id(). scale: from mean_scales(), or NULL without means. A whole warp calls this, with
 * consecutive lookups; the last one may be there several times. Gradient rows of a sequence are found without the bag.
 * */
template <class Id>
static __device__ inline struct lookup lookup_of(const struct batch &in, const float *scale,
                                                 int64_t i, struct nearby *near, const Id &id) {
    const int32_t f = near->feature >= 0 ? near->feature : feature_of(in, i);
    const struct feature *x = &in.device_features[f];
    const bool sequence = x->pooling == POOL_NONE;
    const int64_t q = __any_sync(ALL_LANES, !sequence) ? bag_of(in, i, near) : 0;
    struct lookup l;
    l.feature = f;
    l.table = x->table;
    l.row = id();
    l.padding = l.row == x->padding_id;
    l.grad = x->grad_offset + (sequence ? i - x->first_lookup : q - x->first_bag) * x->grad_stride;
    l.coefficient = in.lookup_weights ? in.lookup_weights[i] : 1.0f;
    if (x->pooling == POOL_MEAN) l.coefficient *= scale[q];
    l.number = x->pooling == POOL_MAX ? (int32_t)(i - in.offsets[q]) : -1;
    return l;
}

/* The same; it loads the id. */
static __device__ inline struct lookup lookup_at(const struct batch &in, const float *scale,
                                                 int64_t i, struct nearby *near) {
    return lookup_of(in, scale, i, near, [&] { return batch_id(&in, i); });
}

/* The lookup of this thread in a grid with a thread for each; of threads beyond them, the last one. */
static __device__ inline struct lookup lookup_of_thread(const struct batch &in, const float *scale,
                                                        int64_t thread) {
    const int64_t last = in.lookups - 1, first = min(thread / WARP * WARP, last);
    struct nearby near = nearby_of(in, first, min(first + WARP - 1, last));
    return lookup_at(in, scale, min(thread, last), &near);
}

static inline bool has_mean(const struct batch *in) {
    return has_pooling(in, POOL_MEAN);
}

static inline bool has_padding(const struct batch *in) {
    for (int32_t f = 0; f < in->num_features; f++)
        if (in->features[f].padding_id >= 0) return true;
    return false;
}

/* A warp per bag. */
static __global__ void __launch_bounds__(LOOKUP_BLOCK)
    mean_scales(const struct batch in, float *scale) {
    int64_t q = ((int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x) / WARP;
    if (q >= in.flat_bags) return;
    const struct feature *x =
        in.device_features + feature_of_bag(in.device_features, in.num_features, q);
    if (x->pooling != POOL_MEAN) return;
    int64_t begin = in.offsets[q], counted = in.offsets[q + 1] - begin;
    if (x->padding_id >= 0) {
        int64_t padding = 0;
        for (int64_t i = begin + threadIdx.x % WARP; i < in.offsets[q + 1]; i += WARP)
            padding += batch_id(&in, i) == x->padding_id;
        for (int step = WARP / 2; step > 0; step /= 2)
            padding += __shfl_xor_sync(0xffffffffu, (long long)padding, step);
        counted -= padding;
    }
    if (threadIdx.x % WARP == 0) scale[q] = 1.0f / (float)(counted > 0 ? counted : 1);
}

/* Scratch for mean_scales(); NULL if no feature needs them. */
static inline float *mean_scales_take(struct scratch *s, const struct batch *in) {
    return has_mean(in) ? (float *)scratch_take(s, in->flat_bags, sizeof(float)) : NULL;
}

static inline void mean_scales_fill(const struct batch *in, float *scale, cudaStream_t stream) {
    if (scale)
        LAUNCH(mean_scales, blocks_for(in->flat_bags, (int)LOOKUP_BLOCK / (int)WARP), LOOKUP_BLOCK,
               0, stream, *in, scale);
}
