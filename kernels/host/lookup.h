/* SPDX-License-Identifier: MIT
 *
 * The forward on the host: threads take bags, and sum the rows of a bag, or take their maximum, in
 * registers. Only the distance of the prefetch differs between kernels.
 */
#pragma once

#include "kernels/forward.h"
#include "kernels/host/max.h"
#include "kernels/host/team.h"
#include "kernels/host/update.h"

/* Consecutive lookups of a feature. */
struct looked_up {
    const struct batch *in;
    const struct array *weight;
    int64_t first;   /* the lookup with number 0 */
    int64_t padding; /* the row that does not count, or -1 */
    bool weighted;
};

ALWAYS_INLINE const void *looked_up_row(const void *ctx, int64_t k, float *coefficient) {
    const struct looked_up *x = ctx;
    const int64_t row = batch_id(x->in, x->first + k);
    if (x->weighted) *coefficient = x->in->lookup_weights[x->first + k];
    return row == x->padding ? NULL : array_row(x->weight, row);
}

/* The forward of one feature. */
struct lookup_feature {
    const struct batch *in;
    const struct feature *feature;
    const struct table_shape *table;
    struct array weight;
    int64_t first_bag, distance;
    void *output;
    int32_t *winners;
    int thread, threads;
};

/* Lookups that count in a bag of a mean. */
static inline int64_t counted(const struct looked_up *x, int64_t lookups) {
    int64_t count = lookups;
    if (x->padding >= 0)
        for (int64_t k = 0; k < lookups; k++) count -= batch_id(x->in, x->first + k) == x->padding;
    return count > 0 ? count : 1;
}

/* The output row of `lookups` lookups. sum[dim]: scratch, for outputs narrower than fp32. */
ALWAYS_INLINE void lookup_row(const struct lookup_feature *f, const struct run *run,
                              const struct looked_up *from, int64_t row, const int32_t dim,
                              const bool max, float *sum) {
    const enum dtype type = f->in->grad_type;
    char *to = (char *)f->output + forward_row(f->feature, row) * dtype_bytes(type);
    float *x = type == FP32 ? (float *)to : sum;
    if (max)
        max_run(run, dim, x, f->winners + forward_row(f->feature, row));
    else
        sum_run(run, dim, x);
    if (f->feature->pooling == POOL_MEAN) {
        const float count = (float)counted(from, run->n);
        for (int32_t d = 0; d < dim; d++) x[d] /= count;
    }
    if (type != FP32) row_narrow(&(struct row_format){type, ROUND_NEAREST, 0}, x, dim, to);
}

/* The first bag of a thread's part: parts have about equally many lookups. POOL_NONE: its first lookup. */
static inline int64_t lookup_part(const struct lookup_feature *f, int thread) {
    const int64_t *offsets = f->in->offsets + f->first_bag, bags = f->in->bags;
    const int64_t part = part_begin(offsets[bags] - offsets[0], thread, f->threads);
    if (f->feature->pooling == POOL_NONE) return part;
    if (thread == 0 || thread == f->threads) return thread ? bags : 0;
    return last_at_most(offsets, sizeof *offsets, 0, bags, offsets[0] + part);
}

/* This thread's part. type, plain, max: constants. */
ALWAYS_INLINE void lookup_bags(const struct lookup_feature *f, const int32_t dim,
                               const enum dtype type, const bool plain, const bool max) {
    const struct batch *in = f->in;
    const bool each = f->feature->pooling == POOL_NONE;
    const int64_t *offsets = in->offsets + f->first_bag;
    float sum[in->grad_type == FP32 ? 1 : dim];
    struct looked_up from = {.in = in,
                             .weight = &f->weight,
                             .padding = plain || each ? -1 : f->feature->padding_id,
                             .weighted = !plain && in->lookup_weights};
    struct run run = {
        .row = looked_up_row, .ctx = &from, .type = type, .gaps = !plain, .distance = f->distance};
    const int64_t last = lookup_part(f, f->thread + 1);
    for (int64_t u = lookup_part(f, f->thread); u < last; u++) {
        from.first = each ? offsets[0] + u : offsets[u];
        run.n = each ? 1 : offsets[u + 1] - offsets[u];
        run.ahead = f->distance ? offsets[in->bags] - from.first - run.n : 0;
        lookup_row(f, &run, &from, u, dim, max, sum);
    }
}

ALWAYS_INLINE void lookup_fp32(void *ctx, const int32_t dim, const bool common) {
    const struct lookup_feature *f = ctx;
    (void)common;
    if (!f->in->lookup_weights && f->feature->padding_id < 0) /* constants, as in sum_entries() */
        lookup_bags(f, dim, FP32, true, false);
    else
        lookup_bags(f, dim, FP32, false, false);
}

/* Not for each common dim: conversions fill the code, and compilers take minutes. */
NOINLINE void lookup_narrow(const struct lookup_feature *f) {
    switch (f->table->weight_type) {
    case BF16: lookup_bags(f, f->table->dim, BF16, false, false); break;
    case FP16: lookup_bags(f, f->table->dim, FP16, false, false); break;
    default: lookup_bags(f, f->table->dim, FP8, false, false);
    }
}

NOINLINE void lookup_max(const struct lookup_feature *f) {
    switch (f->table->weight_type) {
    case FP32: lookup_bags(f, f->table->dim, FP32, false, true); break;
    case BF16: lookup_bags(f, f->table->dim, BF16, false, true); break;
    case FP16: lookup_bags(f, f->table->dim, FP16, false, true); break;
    default: lookup_bags(f, f->table->dim, FP8, false, true);
    }
}

/* A thread of a team calls this. */
static inline struct lookup_feature lookup_feature_of(const struct batch *in, int32_t f,
                                                      const struct table *io,
                                                      const struct launch *how) {
    const struct feature *x = &in->features[f];
    return (struct lookup_feature){.in = in,
                                   .feature = x,
                                   .table = &in->tables[x->table],
                                   .weight = io[x->table].weight,
                                   .first_bag = f * in->bags,
                                   .output = how->output,
                                   .winners = how->winners,
                                   .thread = omp_get_thread_num(),
                                   .threads = omp_get_num_threads()};
}

/* distance: of the prefetch, in lookups; 0: none. */
static inline int lookup_run(const struct batch *in, const struct table *io,
                             const struct launch *how, int64_t distance) {
#pragma omp parallel num_threads(how->threads)
    for (int32_t f = 0; f < in->num_features; f++) {
        struct lookup_feature mine = lookup_feature_of(in, f, io, how);
        mine.distance = distance;
        if (mine.feature->pooling == POOL_MAX)
            lookup_max(&mine);
        else if (mine.table->weight_type == FP32)
            for_dim(mine.table->dim, lookup_fp32, &mine);
        else
            lookup_narrow(&mine);
    }
    return 0;
}
