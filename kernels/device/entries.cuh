/* SPDX-License-Identifier: MIT
 *
 * Kernels that group lookups by row carry one entry per lookup: a key, which gives the row, and a
 * value, which gives the gradient row and its coefficient.
 *
 *   key    the table's first + id, so keys are unique over all tables; padding gets the key after the
 *          last row (or one after each class of tables: order_tables()). 32 bits: no device holds 2^32 rows of useful
 * width.
 *   value  the offset of the gradient row, in units that divide the offsets of all gradient rows:
 *          32 bits reach far beyond the memory of a device. With per-sample weights, means or a max
 *          the value has 64 bits and includes the coefficient, or its mask
 *          (max_mask.cuh), so kernels do not read the lookup again.
 */
#pragma once

#include "kernels/device/lookup.cuh"
#include "kernels/shape.h"

/* The keys of a table's rows, and that of padding. */
struct key_range {
    int64_t first, padding;
};

struct entries {
    uint32_t *key;
    void *value;
    int64_t count;
    uint32_t padding;               /* the key of padding */
    const struct key_range *ranges; /* [num_tables]; NULL: keys begin at first_row */
    int64_t unit;                   /* elements */
    bool wide_values;
};

/* The largest power of two that divides every gradient row's offset. */
static inline int64_t grad_unit(const struct batch *in) {
    int64_t bits = 0;
    for (int32_t f = 0; f < in->num_features; f++)
        bits |= in->features[f].grad_offset | in->features[f].grad_stride;
    return bits ? bits & -bits : 1;
}

/* Describes a batch's entries; the caller sets key and value to its memory. */
static inline struct entries entries_of(const struct batch *in) {
    struct entries e = {};
    e.count = in->lookups;
    e.padding = (uint32_t)all_rows(in);
    e.unit = grad_unit(in);
    e.wide_values = in->lookup_weights || has_mean(in) || has_pooling(in, POOL_MAX);
    return e;
}

/* The largest key of a batch whose keys begin at first_row. */
static inline int64_t largest_key(const struct batch *in) {
    return all_rows(in) - !has_padding(in);
}

static inline size_t value_bytes(const struct entries *e) {
    return e->wide_values ? sizeof(uint64_t) : sizeof(uint32_t);
}

/* Keys of padding come behind those of rows, at most one for each table, and no key is ~0: a hash table may call that
 * empty. */
static inline const char *rows_refuse(const struct batch *in) {
    return all_rows(in) + in->num_tables >= UINT32_MAX ? "2^32 rows or more" : NULL;
}

static inline const char *entries_refuse(const struct batch *in) {
    if (rows_refuse(in)) return rows_refuse(in);
    if (in->lookups > INT32_MAX) return "2^31 lookups or more"; /* CUB counts runs in an int */
    if (in->grad_elements / grad_unit(in) > UINT32_MAX) return "more than 2^32 gradient rows";
    return NULL;
}

static __device__ inline void value_put(const struct entries &e, int64_t i, uint64_t value) {
    if (e.wide_values)
        ((uint64_t *)e.value)[i] = value;
    else
        ((uint32_t *)e.value)[i] = (uint32_t)value;
}

static __device__ inline void entry_put(const struct entries &e, int64_t i, uint32_t key,
                                        uint64_t value) {
    e.key[i] = key;
    value_put(e, i, value);
}

static __device__ inline uint64_t entry_value(const struct entries &e, int64_t i) {
    return e.wide_values ? ((const uint64_t *)e.value)[i] : ((const uint32_t *)e.value)[i];
}

/* The factor of the gradient row: see max_mask.cuh. */
static __device__ inline uint32_t value_factor(const struct entries &e, uint64_t value) {
    return e.wide_values ? (uint32_t)(value >> 32) : __float_as_uint(1.0f);
}

struct entry {
    uint32_t key;
    uint64_t value;
};

/* The key of a row of a table. */
static __device__ inline uint32_t key_of(const struct batch &in, const struct entries &e,
                                         int32_t table, int64_t row, bool padding) {
    if (padding) return e.ranges ? (uint32_t)e.ranges[table].padding : e.padding;
    return (uint32_t)(row + (e.ranges ? e.ranges[table].first : in.device_tables[table].first_row));
}

static __device__ inline struct entry entry_of(const struct batch &in, const struct entries &e,
                                               const struct lookup &l) {
    struct entry made = {key_of(in, e, l.table, l.row, l.padding), 0};
    if (l.padding) return made;
    made.value = (uint64_t)l.grad >> __popcll((uint64_t)e.unit - 1u); /* by a power of two */
    if (e.wide_values) made.value |= (uint64_t)factor_bits(l.coefficient, l.number) << 32;
    return made;
}
