/* SPDX-License-Identifier: MIT
 *
 * The chunk of a group of lanes: the entries that the group sums. A run that the group before it finishes is left out,
 * and a run that ends at most REACH entries behind the chunk is finished here (runs.cuh). Also the summand of an entry
 * for general code. Numbers of entries have 32 bits.
 */
#pragma once

#include "kernels/device/access.cuh"
#include "kernels/device/runs.cuh"

struct chunk {
    uint32_t begin, end; /* entries; begin >= end: none */
    bool open,
        goes_on; /* the first run began before the chunk; the last run ends beyond its reach */
};

/* The keys of sorted entries: equal keys are contiguous, and padding is at the end. */
struct keys {
    const uint32_t *at;
    uint32_t count, padding;
};

static __device__ __forceinline__ struct keys keys_of(const struct runs &r) {
    return {r.entries.key, (uint32_t)r.entries.count, r.entries.padding};
}

/* The first entry of begin .. end - 1 for which is(its key); end if there is none. It is true for all behind it. */
template <class Is>
static __device__ inline uint32_t first_that(const struct keys &k, uint32_t begin, uint32_t end,
                                             const Is &is) {
    while (begin < end) {
        const uint32_t middle = begin + (end - begin) / 2;
        if (!is(k.at[middle]))
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* The first entry of begin .. end - 1 that is not of the run of key. */
static __device__ inline uint32_t end_of_run(const struct keys &k, uint32_t begin, uint32_t end,
                                             uint32_t key) {
    return first_that(k, begin, end, [=](uint32_t other) { return other != key; });
}

/* goes_on: a run has entries on both sides of the border of two chunks. crosses: and it began before the chunk on the
 * left, or ends beyond the reach of the left chunk's group. Padding is in no run. */
struct border {
    bool goes_on, crosses;
};

static __device__ __forceinline__ struct border border_at(const struct keys &k, uint32_t chunk,
                                                          uint32_t at) {
    struct border b = {false, false};
    if (at == 0 || at >= k.count) return b;
    const uint32_t key = k.at[at];
    b.goes_on = k.at[at - 1] == key && key != k.padding;
    b.crosses = b.goes_on && ((at > chunk && k.at[at - chunk - 1] == key) ||
                              (at + REACH < k.count && k.at[at + REACH] == key));
    return b;
}

/* The chunk of a group of LANES lanes. All lanes of a warp call this. */
template <int LANES>
static __device__ __forceinline__ struct chunk chunk_of(const struct keys &k, uint32_t number,
                                                        uint32_t size, int lane) {
    const uint32_t from = number * size, to = from + size;
    /* Lane 0 looks at the border on the left, lane 1 at the right one. */
    const struct border b = border_at(k, size, lane & 1 ? to : from);
    const bool begun = __shfl_sync(ALL_LANES, b.goes_on && !b.crosses, 0, LANES),
               reaches = __shfl_sync(ALL_LANES, b.goes_on && !b.crosses, 1, LANES);
    struct chunk c = {min(from, k.count), min(to, k.count), false, false};
    c.open = __shfl_sync(ALL_LANES, b.crosses, 0, LANES);
    c.goes_on = __shfl_sync(ALL_LANES, b.crosses, 1, LANES);
    if (begun) c.begin = end_of_run(k, from + 1, min(from + REACH, k.count), k.at[from]);
    if (reaches) c.end = end_of_run(k, to + 1, min(to + REACH, k.count), k.at[to]);
    if (c.begin < c.end && k.at[c.end - 1] == k.padding)
        c.end = first_that(k, c.begin, c.end, [&](uint32_t key) { return key == k.padding; });
    return c;
}

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

/* Four columns of the gradient row `place` units on, of any dim and alignment, times its factor (max_mask.cuh). */
static __device__ inline struct quad summand_of(const struct runs &r, uint32_t place,
                                                uint32_t factor, int32_t column, int32_t dim) {
    const char *row = (const char *)r.source + (int64_t)place * r.unit_bytes;
    const struct quad q = quad_widen(r.type, quad_fetch<true>(r.type, row, column, dim));
    const int32_t *winners = r.winners + (int64_t)place * r.entries.unit;
    return quad_times_factor(q, factor, winners, r.winners, column, dim);
}

static __device__ inline struct quad summand_at(const struct runs &r, uint32_t entry,
                                                int32_t column, int32_t dim) {
    const uint64_t value = entry_value(r.entries, entry);
    return summand_of(r, (uint32_t)value, value_factor(r.entries, value), column, dim);
}
