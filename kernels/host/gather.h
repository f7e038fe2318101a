/* SPDX-License-Identifier: MIT
 *
 * Maps a lookup to its gradient row and coefficient. The coefficient contains the mean and the
 * per-sample weight, so no kernel needs a separate pass for them.
 *
 * Kernels that reorder lookups carry a 32-bit *position* instead of a lookup: the number of the
 * flat bag if that is enough (unweighted, a sum or a mean), otherwise the number of the lookup.
 */
#pragma once

#include "kernels/scratch.h"
#include "kernels/host/walk.h"

/* Gradient row r is at grad + base + r*stride, in bytes. r is a flat bag (pooled) or a lookup
 * (POOL_NONE). */
struct gather_feature {
    int64_t base, stride;
};

/* The part of a gradient row that counts for a lookup. */
struct won {
    const int32_t
        *winner;    /* [dim] of a max: only columns whose winner is `number` count; NULL: all */
    int32_t number; /* of the lookup in its bag */
};

struct gather_table {
    int32_t feature; /* the only feature that reads the table, or -1 */
    bool per_lookup; /* positions are lookups, not flat bags */
    bool max;        /* a feature has POOL_MAX: of a row, only what gather_won() says counts */
    bool plain;      /* one feature, all coefficients 1: the gradient row of a position is at */
    enum dtype type; /* of gradients */
    const char *grad;
    int64_t base, stride; /* grad + base + position*stride */
};

struct gather {
    const struct batch *in;
    struct gather_feature *feature; /* [num_features] */
    struct gather_table *table;     /* [num_tables] */
    float *scale;                   /* [flat bags] 1/length of mean features; NULL: no mean */
    uint32_t *bag_of;               /* [lookups] flat bag; NULL: not needed */
};

/* by_position: the kernel calls gather_row, not only gather_at. */
static inline void gather_lay_out(struct gather *g, struct scratch *s, const struct batch *in,
                                  bool by_position) {
    bool mean = false, bag_of = false;
    for (int32_t f = 0; f < in->num_features; f++) {
        mean |= in->features[f].pooling == POOL_MEAN;
        /* The number of a lookup does not give its bag, nor its feature if several read the table. */
        bag_of |= in->features[f].pooling == POOL_NONE
                      ? in->tables[in->features[f].table].features > 1
                      : in->lookup_weights != NULL;
        bag_of |= in->features[f].pooling == POOL_MAX;
    }
    g->in = in;
    g->feature = scratch_take(s, in->num_features, sizeof *g->feature);
    g->table = scratch_take(s, in->num_tables, sizeof *g->table);
    g->scale = mean ? scratch_take(s, in->num_features * in->bags, sizeof *g->scale) : NULL;
    g->bag_of = by_position && bag_of ? scratch_take(s, in->lookups, sizeof *g->bag_of) : NULL;
}

/* Serial part of the preparation, O(features + tables). */
static inline void gather_prepare(const struct gather *g) {
    const struct batch *in = g->in;
    const bool weighted = in->lookup_weights != NULL;
    const int64_t element = dtype_bytes(in->grad_type);
    for (int32_t t = 0; t < in->num_tables; t++)
        g->table[t] = (struct gather_table){.feature = -1,
                                            .per_lookup = weighted,
                                            .plain = !weighted && in->tables[t].features == 1,
                                            .type = in->grad_type,
                                            .grad = in->grad};
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        struct gather_table *t = &g->table[x->table];
        bool none = x->pooling == POOL_NONE;
        int64_t first = none ? in->offsets[f * in->bags] : f * in->bags;
        g->feature[f] = (struct gather_feature){(x->grad_offset - first * x->grad_stride) * element,
                                                x->grad_stride * element};
        t->per_lookup |= none || x->pooling == POOL_MAX;
        t->max |= x->pooling == POOL_MAX;
        t->plain &= x->pooling != POOL_MEAN && x->pooling != POOL_MAX;
        t->base = g->feature[f].base;
        t->stride = g->feature[f].stride;
        if (in->tables[x->table].features == 1) t->feature = f;
    }
}

/* Parallel part. Every thread of the team calls this to fill its part of scale and bag_of. */
static inline void gather_fill(const struct gather *g, int thread, int threads) {
    const struct batch *in = g->in;
    if (!g->scale && !g->bag_of) return;
    int64_t bags = in->num_features * in->bags;
    int64_t last = part_begin(bags, thread + 1, threads);
    for (int64_t q = part_begin(bags, thread, threads); q < last; q++) {
        const struct feature *f = &in->features[q / in->bags];
        int64_t counted = 0;
        for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
            counted += batch_id(in, i) != f->padding_id;
            if (g->bag_of) g->bag_of[i] = (uint32_t)q;
        }
        if (g->scale) g->scale[q] = 1.0f / (float)(counted ? counted : 1);
    }
}

/* Gradient row and coefficient of lookup i in flat bag q of feature f. */
ALWAYS_INLINE const void *gather_at(const struct gather *g, int32_t f, int64_t q, int64_t i,
                                    float *coefficient) {
    const struct batch *in = g->in;
    enum pooling pooling = in->features[f].pooling;
    int64_t r = pooling == POOL_NONE ? i : q;
    *coefficient = in->lookup_weights ? in->lookup_weights[i] : 1;
    if (pooling == POOL_MEAN) *coefficient *= g->scale[q];
    return (const char *)in->grad + (g->feature[f].base + r * g->feature[f].stride);
}

ALWAYS_INLINE uint32_t gather_position(bool per_lookup, struct lookup l) {
    return (uint32_t)(per_lookup ? l.i : l.q);
}

/* The flat bag of a position of table t, or 0 if nothing asks for it; and the feature. */
ALWAYS_INLINE int64_t gather_bag(const struct gather *g, const struct gather_table *t,
                                 uint32_t position) {
    return !t->per_lookup ? position : g->bag_of ? g->bag_of[position] : 0;
}

ALWAYS_INLINE int32_t gather_feature_of(const struct gather *g, const struct gather_table *t,
                                        int64_t q) {
    return t->feature >= 0 ? t->feature : (int32_t)(q / g->in->bags);
}

/* Gradient row and coefficient of a position of table t. */
ALWAYS_INLINE const void *gather_row(const struct gather *g, const struct gather_table *t,
                                     uint32_t position, float *coefficient) {
    if (t->plain) {
        *coefficient = 1;
        return t->grad + (t->base + position * t->stride);
    }
    const int64_t q = gather_bag(g, t, position);
    return gather_at(g, gather_feature_of(g, t, q), q, position, coefficient);
}

/* The part that counts of the gradient row of lookup i in flat bag q of feature f. */
ALWAYS_INLINE struct won gather_won_at(const struct gather *g, int32_t f, int64_t q, int64_t i) {
    const struct batch *in = g->in;
    const struct feature *x = &in->features[f];
    if (x->pooling != POOL_MAX) return (struct won){NULL, 0};
    return (struct won){in->winners + x->grad_offset + (q - f * in->bags) * x->grad_stride,
                        (int32_t)(i - in->offsets[q])};
}

/* The same for a position of table t. */
ALWAYS_INLINE struct won gather_won(const struct gather *g, const struct gather_table *t,
                                    uint32_t position) {
    const int64_t q = gather_bag(g, t, position);
    return gather_won_at(g, gather_feature_of(g, t, q), q, position);
}
