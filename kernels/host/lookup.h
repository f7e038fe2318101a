/* SPDX-License-Identifier: MIT
 *
 * The forward on the host: threads take bags, and sum the rows of a bag, or take their maximum, in
 * registers. Only the distance of the prefetch differs between kernels.
 */
#pragma once

#include "kernels/forward.h"
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

ALWAYS_INLINE struct summand looked_up_row(const void *ctx, int64_t k) {
    const struct looked_up *x = ctx;
    const int64_t row = batch_id(x->in, x->first + k);
    return (struct summand){row == x->padding ? NULL : array_row(x->weight, row),
                            x->weighted ? x->in->lookup_weights[x->first + k] : 1,
                            {NULL, 0}};
}

/* The forward of one feature. */
struct lookup_feature {
    const struct batch *in;
    const struct feature *feature;
    const struct table_shape *table;
    struct array weight;
    int64_t distance;
    void *output;
    int32_t *winners;
    int thread, threads;
};

/* The divisor of a mean: the lookups of a bag that are not padding, but at least 1. */
static inline int64_t counted(const struct looked_up *x, int64_t lookups) {
    int64_t count = lookups;
    if (x->padding >= 0)
        for (int64_t k = 0; k < lookups; k++) count -= batch_id(x->in, x->first + k) == x->padding;
    return count > 0 ? count : 1;
}

/* The first bag of a thread's part, or with POOL_NONE its first lookup. Parts have about equally many lookups. */
static inline int64_t lookup_part(const struct lookup_feature *f, int thread) {
    const int64_t *offsets = f->in->offsets + f->feature->first_bag, bags = f->feature->bags;
    const int64_t part = part_begin(f->feature->lookups, thread, f->threads);
    if (f->feature->pooling == POOL_NONE) return part;
    if (thread == 0 || thread == f->threads) return thread ? bags : 0;
    return last_at_most(offsets, sizeof *offsets, 0, bags, offsets[0] + part);
}

/* This thread's part of the forward. */
void lookup_part_of(struct lookup_feature *f) AT_LEVEL(lookup_part_of);

/* A thread of a team calls this. */
static inline struct lookup_feature lookup_feature_of(const struct batch *in, int32_t f,
                                                      const struct table *io,
                                                      const struct launch *how) {
    const struct feature *x = &in->features[f];
    return (struct lookup_feature){.in = in,
                                   .feature = x,
                                   .table = &in->tables[x->table],
                                   .weight = io[x->table].weight,
                                   .output = how->output,
                                   .winners = how->winners,
                                   .thread = omp_get_thread_num(),
                                   .threads = omp_get_num_threads()};
}

/* distance is how many lookups ahead the prefetch is; 0: no prefetch. */
static inline int lookup_run(const struct batch *in, const struct table *io,
                             const struct launch *how, int64_t distance) {
#pragma omp parallel num_threads(how->threads)
    for (int32_t f = 0; f < in->num_features; f++) {
        struct lookup_feature mine = lookup_feature_of(in, f, io, how);
        mine.distance = distance;
        lookup_part_of(&mine);
    }
    return 0;
}
