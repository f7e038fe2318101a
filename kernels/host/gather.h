/* SPDX-License-Identifier: MIT
 *
 * Maps a lookup to its gradient row and coefficient. The coefficient contains the mean and the
 * per-sample weight, so no kernel needs a separate pass for them.
 *
 * Kernels that reorder lookups carry a 32-bit *position* instead of a lookup: the number of the
 * flat bag if that is enough (unweighted, a sum or a mean), otherwise the number of the lookup.
 */
#pragma once

#include "kernels/host/max_mask.h"
#include "kernels/scratch.h"

/* Gradient row r is at grad + base + r*stride, in bytes. r is a flat bag (pooled) or a lookup
 * (POOL_NONE). */
struct gather_feature {
    int64_t base, stride;
};

/* What is added for a lookup: the row times the coefficient, in the columns of the mask. */
struct summand {
    const void *row;
    float coefficient;
    struct max_mask mask;
};

struct gather_table {
    int32_t feature; /* the only feature that reads the table, or -1 */
    bool per_lookup; /* positions are lookups, not flat bags */
    bool masked;     /* a feature has POOL_MAX: summands have masks */
    /* One feature reads the table, all coefficients are 1, and there is no mask: the gradient row of a position is at
     * grad + base + position*stride. */
    bool unit_coefficients;
    enum dtype type; /* of gradients */
    const char *grad;
    int64_t base, stride;
};

struct gather {
    const struct batch *in;
    struct gather_feature *feature; /* [num_features] */
    struct gather_table *table;     /* [num_tables] */
    float *scale;                   /* [flat bags] 1/length of mean features; NULL: no mean */
    uint32_t *bag_of;               /* [lookups] flat bag; NULL: no position needs it */
    int32_t *feature_of;            /* [flat bags]; NULL: no table has several features */
};

/* by_position is set by kernels that call gather_row(), not only gather_at(). */
static inline void gather_lay_out(struct gather *g, struct scratch *s, const struct batch *in,
                                  bool by_position) {
    bool mean = false, bag_of = false, shared = false;
    for (int32_t f = 0; f < in->num_features; f++) {
        mean |= in->features[f].pooling == POOL_MEAN;
        shared |= in->tables[in->features[f].table].features > 1;
        /* The number of a lookup does not give its bag, nor its feature if several read the table. */
        bag_of |= in->features[f].pooling == POOL_NONE
                      ? in->tables[in->features[f].table].features > 1
                      : in->lookup_weights != NULL;
        bag_of |= in->features[f].pooling == POOL_MAX;
    }
    g->in = in;
    g->feature = scratch_take(s, in->num_features, sizeof *g->feature);
    g->table = scratch_take(s, in->num_tables, sizeof *g->table);
    g->scale = mean ? scratch_take(s, in->flat_bags, sizeof *g->scale) : NULL;
    g->bag_of = by_position && bag_of ? scratch_take(s, in->lookups, sizeof *g->bag_of) : NULL;
    g->feature_of =
        by_position && shared ? scratch_take(s, in->flat_bags, sizeof *g->feature_of) : NULL;
}

/* Serial part of the preparation, O(features + tables). */
static inline void gather_prepare(const struct gather *g) {
    const struct batch *in = g->in;
    const bool weighted = in->lookup_weights != NULL;
    const int64_t element = dtype_bytes(in->grad_type);
    for (int32_t t = 0; t < in->num_tables; t++)
        g->table[t] =
            (struct gather_table){.feature = -1,
                                  .per_lookup = weighted,
                                  .unit_coefficients = !weighted && in->tables[t].features == 1,
                                  .type = in->grad_type,
                                  .grad = in->grad};
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        struct gather_table *t = &g->table[x->table];
        bool none = x->pooling == POOL_NONE;
        int64_t first = none ? x->first_lookup : x->first_bag;
        g->feature[f] = (struct gather_feature){(x->grad_offset - first * x->grad_stride) * element,
                                                x->grad_stride * element};
        t->per_lookup |= none || x->pooling == POOL_MAX;
        t->masked |= x->pooling == POOL_MAX;
        t->unit_coefficients &= x->pooling != POOL_MEAN && x->pooling != POOL_MAX;
        t->base = g->feature[f].base;
        t->stride = g->feature[f].stride;
        if (in->tables[x->table].features == 1) t->feature = f;
    }
}

/* Parallel part. Every thread of the team calls this to fill its part of the arrays of bags and lookups. */
static inline void gather_fill(const struct gather *g, int thread, int threads) {
    const struct batch *in = g->in;
    if (!g->scale && !g->bag_of && !g->feature_of) return;
    const int64_t last = part_begin(in->flat_bags, thread + 1, threads);
    int64_t q = part_begin(in->flat_bags, thread, threads);
    const struct feature *f = feature_at_bag(in, q);
    for (; q < last; q++) {
        while (q == f->first_bag + f->bags) f++;
        if (g->feature_of) g->feature_of[q] = (int32_t)(f - in->features);
        if (!g->scale && !g->bag_of) continue;
        int64_t counted = 0;
        for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
            counted += batch_id(in, i) != f->padding_id;
            if (g->bag_of) g->bag_of[i] = (uint32_t)q;
        }
        if (g->scale) g->scale[q] = 1.0f / (float)(counted ? counted : 1);
    }
}

/* The summand of lookup i in flat bag q of feature f, which has no mask. */
ALWAYS_INLINE struct summand gather_whole(const struct gather *g, int32_t f, int64_t q, int64_t i) {
    const struct batch *in = g->in;
    const enum pooling pooling = in->features[f].pooling;
    const int64_t r = pooling == POOL_NONE ? i : q;
    float coefficient = in->lookup_weights ? in->lookup_weights[i] : 1;
    if (pooling == POOL_MEAN) coefficient *= g->scale[q];
    return (struct summand){(const char *)in->grad +
                                (g->feature[f].base + r * g->feature[f].stride),
                            coefficient,
                            {NULL, 0}};
}

/* The same for any feature. */
ALWAYS_INLINE struct summand gather_at(const struct gather *g, int32_t f, int64_t q, int64_t i) {
    struct summand x = gather_whole(g, f, q, i);
    x.mask = max_mask_of(g->in, f, q, i);
    return x;
}

ALWAYS_INLINE uint32_t gather_position(bool per_lookup, struct lookup l) {
    return (uint32_t)(per_lookup ? l.i : l.q);
}

/* The flat bag of a position of table t, or 0 if the summand does not depend on it. */
ALWAYS_INLINE int64_t gather_bag(const struct gather *g, const struct gather_table *t,
                                 uint32_t position) {
    return !t->per_lookup ? position : g->bag_of ? g->bag_of[position] : 0;
}

ALWAYS_INLINE int32_t gather_feature_of(const struct gather *g, const struct gather_table *t,
                                        int64_t q) {
    return t->feature >= 0 ? t->feature : g->feature_of[q];
}

/* The summand of a position of table t. */
ALWAYS_INLINE struct summand gather_row(const struct gather *g, const struct gather_table *t,
                                        uint32_t position) {
    if (t->unit_coefficients)
        return (struct summand){t->grad + (t->base + position * t->stride), 1, {NULL, 0}};
    const int64_t q = gather_bag(g, t, position);
    const int32_t f = gather_feature_of(g, t, q);
    return t->masked ? gather_at(g, f, q, position) : gather_whole(g, f, q, position);
}
