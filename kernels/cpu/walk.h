/* SPDX-License-Identifier: MIT
 *
 * Walking the lookups of a batch in order, any part of it, with their feature and bag.
 */
#ifndef EMBFUSE_CPU_WALK_H
#define EMBFUSE_CPU_WALK_H

#include "kernels/shape.h"
#include "kernels/kernel.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct lookup {
    int64_t i;   /* position in ids */
    int64_t q;   /* flat bag */
    int64_t row; /* in the feature's table */
    int32_t feature;
};

/* Part `part` of `parts` equal parts of [0, n). */
static inline int64_t part_begin(int64_t n, int part, int parts) {
    return n / parts * part + n % parts * part / parts;
}

/* The flat bag that lookup i is in. */
static inline int64_t bag_of_lookup(const struct batch *in, int64_t i) {
    int64_t lo = 0, hi = in->num_features * in->bags; /* offsets[lo] <= i < offsets[hi] */
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (in->offsets[mid] <= i)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

ALWAYS_INLINE void walk_typed(const struct batch *in, int64_t lo, int64_t hi, const bool wide,
                              void (*visit)(void *, struct lookup), void *ctx) {
    struct lookup l = {.i = lo, .q = bag_of_lookup(in, lo)};
    while (l.i < hi) {
        l.feature = (int32_t)(l.q / in->bags);
        int64_t padding = in->features[l.feature].padding_id;
        int64_t last = (l.feature + 1) * in->bags;
        for (; l.q < last && l.i < hi; l.q++) {
            int64_t end = min64(in->offsets[l.q + 1], hi);
            for (; l.i < end; l.i++) {
                l.row = wide ? ((const int64_t *)in->ids)[l.i] : ((const int32_t *)in->ids)[l.i];
                if (l.row != padding) visit(ctx, l);
            }
        }
    }
}

/* Calls visit(ctx, lookup) for the lookups lo .. hi-1 that are not padding, in order. visit is a
 * known function at every call, an ALWAYS_INLINE one, so that it becomes the body of the
 * loop. */
ALWAYS_INLINE void walk(const struct batch *in, int64_t lo, int64_t hi,
                        void (*visit)(void *, struct lookup), void *ctx) {
    if (lo >= hi) return;
    if (in->id_type == ID_INT64)
        walk_typed(in, lo, hi, true, visit, ctx);
    else
        walk_typed(in, lo, hi, false, visit, ctx);
}

#endif
