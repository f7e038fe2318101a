/* SPDX-License-Identifier: MIT
 *
 * Properties of a batch's shape that several kernels need, on the host and on a device.
 */
#pragma once

#include "kernels/kernel.h"

static inline int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Bits that hold the values 0 .. count-1. */
static inline int bits_for(int64_t count) {
    return count > 1 ? 64 - __builtin_clzll((uint64_t)(count - 1)) : 0;
}

static inline bool has_pooling(const struct batch *in, enum pooling pooling) {
    for (int32_t f = 0; f < in->num_features; f++)
        if (in->features[f].pooling == pooling) return true;
    return false;
}

/* The most rows of table t that a batch of this shape can touch. */
static inline int64_t table_touchable(const struct batch *in, int32_t t) {
    return min64(in->tables[t].lookups, in->tables[t].rows);
}

/* Floats of a gradient with one row for each row that the batch can touch. */
static inline int64_t touchable_floats(const struct batch *in) {
    int64_t floats = 0;
    for (int32_t t = 0; t < in->num_tables; t++)
        floats += table_touchable(in, t) * in->tables[t].dim;
    return floats;
}

/* The last i in lo .. hi-1 whose number is at most `key`. The numbers ascend, lie `stride` bytes apart, and number lo
 * is at most `key`. */
HOST_DEVICE int64_t last_at_most(const int64_t *numbers, int64_t stride, int64_t lo, int64_t hi,
                                 int64_t key) {
    while (hi - lo > 1) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (*(const int64_t *)((const char *)numbers + mid * stride) <= key)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The table of a row. Row numbers run over all tables, as in first_row + id. */
HOST_DEVICE int32_t table_of_row(const struct table_shape *tables, int32_t count, int64_t row) {
    return (int32_t)last_at_most(&tables->first_row, sizeof *tables, 0, count, row);
}

/* The number of a flat bag's feature. */
HOST_DEVICE int32_t feature_of_bag(const struct feature *features, int32_t count, int64_t q) {
    return (int32_t)last_at_most(&features->first_bag, sizeof *features, 0, count, q);
}

/* The same in host memory. */
static inline const struct feature *feature_at_bag(const struct batch *in, int64_t q) {
    return in->features + feature_of_bag(in->features, in->num_features, q);
}

/* Gradient rows, and output rows. */
HOST_DEVICE int64_t feature_rows(const struct feature *f) {
    return f->pooling == POOL_NONE ? f->lookups : f->bags;
}

/* The number of a lookup's feature. */
HOST_DEVICE int32_t feature_of_lookup(const struct feature *features, int32_t count, int64_t i) {
    return (int32_t)last_at_most(&features->first_lookup, sizeof *features, 0, count, i);
}

static inline int64_t all_rows(const struct batch *in) {
    const struct table_shape *last = &in->tables[in->num_tables - 1];
    return last->first_row + last->rows;
}

/* Elements of the widest row. */
static inline int32_t widest(const struct batch *in) {
    int32_t dim = 1;
    for (int32_t t = 0; t < in->num_tables; t++)
        if (in->tables[t].dim > dim) dim = in->tables[t].dim;
    return dim;
}

/* Kernels accept by this if they keep a row number and a position in 32 bits each. The slots of hash tables with twice
 * the lookups fit in 32 bits, too. */
static inline const char *accepts_32bit_rows_and_positions(const struct batch *in) {
    if (in->lookups > INT32_MAX || in->flat_bags > UINT32_MAX)
        return "more than 2^31 lookups or 2^32 bags";
    return all_rows(in) > UINT32_MAX ? "more than 2^32 rows" : NULL;
}
