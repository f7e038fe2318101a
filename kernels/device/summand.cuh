/* SPDX-License-Identifier: MIT
 *
 * Four columns of an entry's gradient row, of any dim and alignment, times its coefficient; of a max, where the lookup
 * won. And where sums of runs are.
 */
#pragma once

#include "kernels/device/runs.cuh"

/* The head of a chunk, or its tail: partial rows. */
static __device__ __forceinline__ float *part_of_chunk(const struct runs &r, int64_t chunk,
                                                       bool tail) {
    return r.partial + (2 * chunk + tail) * r.stride;
}

/* The row of the compact gradient for the run of entry i. */
static __device__ inline float *compact_row(const struct compact &c, uint32_t i) {
    uint32_t run = 0, end = *c.runs;
    while (end - run > 1) {
        const uint32_t middle = run + (end - run) / 2;
        if (c.begin[middle] <= i)
            run = middle;
        else
            end = middle;
    }
    return c.grad + run * c.stride;
}

/* Of the gradient row `place` units on. part: bits of the coefficient, or part_of(). */
static __device__ inline struct quad summand_of(const struct runs &r, uint32_t place, uint32_t part,
                                                int32_t column, int32_t dim) {
    const char *row = (const char *)r.source + (int64_t)place * r.unit_bytes;
    const struct quad q = quad_widen(r.type, quad_fetch<true>(r.type, row, column, dim));
    if (r.winners && part & PART_OF_MAX)
        return quad_won(q, winners_fetch(r.winners + (int64_t)place * r.entries.unit, column, dim),
                        part & ~PART_OF_MAX);
    return quad_scale(q, __uint_as_float(part));
}

static __device__ inline struct quad summand_at(const struct runs &r, uint32_t entry,
                                                int32_t column, int32_t dim) {
    const uint64_t value = entry_value(r.entries, entry);
    return summand_of(r, (uint32_t)value, value_part(r.entries, value), column, dim);
}
