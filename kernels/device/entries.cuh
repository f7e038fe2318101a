/* SPDX-License-Identifier: MIT
 *
 * Kernels that group lookups by row carry one entry per lookup: a key, which gives the row, and a
 * value, which gives the gradient row and its coefficient.
 *
 *   key    first_row + id, so keys are unique over all tables; padding gets the key after the last
 *          row. 32 bits if these suffice, otherwise 64.
 *   value  the offset of the gradient row, in units that divide the offsets of all gradient rows:
 *          32 bits reach far beyond the memory of a device. With per-sample weights, means or a max
 *          the value has 64 bits and includes the coefficient, or the number of the lookup in its bag
 *          (part_of()), so kernels do not read the lookup again.
 */
#pragma once

#include "kernels/device/lookup.cuh"
#include "kernels/shape.h"

struct entries {
    void *key, *value;
    int64_t count;
    uint64_t padding; /* the key of padding */
    int64_t unit;     /* elements */
    bool wide_keys, wide_values;
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
    struct entries e = {NULL,          NULL,  in->lookups, (uint64_t)all_rows(in),
                        grad_unit(in), false, false};
    e.wide_keys = e.padding >= UINT32_MAX; /* no key is ~0: a hash table may call that empty */
    e.wide_values = in->lookup_weights || has_mean(in) || has_pooling(in, POOL_MAX);
    return e;
}

/* Bits of the largest key of the batch. */
static inline int key_bits(const struct batch *in) {
    return bits_for(all_rows(in) + has_padding(in));
}

static inline size_t key_bytes(const struct entries *e) {
    return e->wide_keys ? sizeof(uint64_t) : sizeof(uint32_t);
}

static inline size_t value_bytes(const struct entries *e) {
    return e->wide_values ? sizeof(uint64_t) : sizeof(uint32_t);
}

static inline const char *entries_refuse(const struct batch *in) {
    if (in->lookups > INT32_MAX) return "2^31 lookups or more"; /* CUB counts runs in an int */
    if (in->grad_elements / grad_unit(in) > UINT32_MAX) return "more than 2^32 gradient rows";
    return NULL;
}

static __device__ inline uint64_t entry_key(const struct entries &e, int64_t i) {
    return e.wide_keys ? ((const uint64_t *)e.key)[i] : ((const uint32_t *)e.key)[i];
}

static __device__ inline void value_put(const struct entries &e, int64_t i, uint64_t value) {
    if (e.wide_values)
        ((uint64_t *)e.value)[i] = value;
    else
        ((uint32_t *)e.value)[i] = (uint32_t)value;
}

static __device__ inline void entry_put(const struct entries &e, int64_t i, uint64_t key,
                                        uint64_t value) {
    if (e.wide_keys)
        ((uint64_t *)e.key)[i] = key;
    else
        ((uint32_t *)e.key)[i] = (uint32_t)key;
    value_put(e, i, value);
}

static __device__ inline uint64_t entry_value(const struct entries &e, int64_t i) {
    return e.wide_values ? ((const uint64_t *)e.value)[i] : ((const uint32_t *)e.value)[i];
}

/* The bits of the coefficient: part_of(). */
static __device__ inline uint32_t value_part(const struct entries &e, uint64_t value) {
    return e.wide_values ? (uint32_t)(value >> 32) : __float_as_uint(1.0f);
}

struct entry {
    uint64_t key, value;
};

static __device__ inline struct entry entry_of(const struct batch &in, const struct entries &e,
                                               const struct lookup &l) {
    struct entry made = {e.padding, 0};
    if (l.padding) return made;
    made.key = (uint64_t)(in.device_tables[l.table].first_row + l.row);
    made.value = (uint64_t)(l.grad / e.unit);
    if (e.wide_values) made.value |= (uint64_t)part_of(l) << 32;
    return made;
}
