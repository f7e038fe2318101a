/* SPDX-License-Identifier: MIT
 *
 * Walks the lookups of any part of a batch in order and gives each its feature and bag.
 */
#pragma once

#include "kernels/shape.h"
#include "kernels/kernel.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE      static __attribute__((noinline, unused))

/* Stands behind the declaration of a function that all kernels of an instruction set share. LEVEL is the suffix of its
 * name, because a portable build has several instruction sets. */
#ifndef LEVEL
#define LEVEL
#endif
#define TEXT_OF_(x)    #x
#define TEXT_OF(x)     TEXT_OF_(x)
#define AT_LEVEL(name) __asm__(#name TEXT_OF(LEVEL))

/* Unrolls the next loop, whose number of iterations is a constant, n at most. Not with a sanitizer: clang would take
 * minutes to compile it. */
#ifdef __clang__
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNROLL(n)
#else
#define UNROLL(n) _Pragma("clang loop unroll(full)")
#endif
#else
#define UNROLL_(text) _Pragma(#text)
#define UNROLL(n)     UNROLL_(GCC unroll n)
#endif

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

/* The flat bag of lookup i. */
static inline int64_t bag_of_lookup(const struct batch *in, int64_t i) {
    return last_at_most(in->offsets, sizeof *in->offsets, 0, in->flat_bags, i);
}

/* Consecutive lookups i .. end-1 of one feature; the first is in flat bag q. */
struct stretch {
    int64_t i, end, q;
    int32_t feature, table;
};

/* The stretch that begins at lookup lo and ends at hi or at the end of the feature. */
static inline struct stretch stretch_at(const struct batch *in, int64_t lo, int64_t hi) {
    struct stretch s = {.i = lo, .end = hi};
    if (lo >= hi) return s;
    s.q = bag_of_lookup(in, lo);
    s.feature = feature_of_lookup(in->features, in->num_features, lo);
    const struct feature *x = &in->features[s.feature];
    s.table = x->table;
    s.end = min64(x->first_lookup + x->lookups, hi);
    return s;
}

static inline struct stretch stretch_of_feature(const struct batch *in, int32_t f) {
    const struct feature *x = &in->features[f];
    return stretch_at(in, x->first_lookup, x->first_lookup + x->lookups);
}

/* Walks lookups lo .. hi-1 stretch by stretch: for (STRETCHES(s, in, lo, hi)) ... */
#define STRETCHES(s, in, lo, hi)                                                                   \
    struct stretch s = stretch_at(in, lo, hi);                                                     \
    s.i < (hi);                                                                                    \
    s = stretch_at(in, s.end, hi)

ALWAYS_INLINE void walk_typed(const struct batch *in, struct stretch s, const bool wide,
                              void (*visit)(void *, struct lookup), void *ctx) {
    const int64_t padding = in->features[s.feature].padding_id, *offsets = in->offsets;
    const void *ids = in->ids;
    struct lookup l = {.i = s.i, .q = s.q, .feature = s.feature};
    for (; l.i < s.end; l.q++) {
        int64_t end = min64(offsets[l.q + 1], s.end);
        for (; l.i < end; l.i++) {
            l.row = wide ? ((const int64_t *)ids)[l.i] : ((const int32_t *)ids)[l.i];
            if (l.row != padding) visit(ctx, l);
        }
    }
}

/* Calls visit(ctx, lookup) for the lookups of a stretch that are not padding, in order. Callers
 * pass an ALWAYS_INLINE function, so visit becomes the body of the loop. ctx should point to a
 * local variable of the caller: the compiler then keeps it in registers. */
ALWAYS_INLINE void walk_stretch(const struct batch *in, struct stretch s,
                                void (*visit)(void *, struct lookup), void *ctx) {
    if (in->id_type == ID_INT64)
        walk_typed(in, s, true, visit, ctx);
    else
        walk_typed(in, s, false, visit, ctx);
}

/* Does walk_stretch() for lookups lo .. hi-1 of all features. */
ALWAYS_INLINE void walk(const struct batch *in, int64_t lo, int64_t hi,
                        void (*visit)(void *, struct lookup), void *ctx) {
    for (STRETCHES(s, in, lo, hi)) walk_stretch(in, s, visit, ctx);
}
