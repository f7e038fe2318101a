/* SPDX-License-Identifier: MIT
 *
 * What the kernels of runs.cuh sum: the items of a chunk (gradient rows with their coefficients), and those of a
 * node of the tree (the sums of parts of runs).
 */
#pragma once

#include "kernels/device/runs.cuh"

/* --- runs and the borders of chunks */

/* Whether entries i - 1 and i are in the same run. Padding is in no run. */
static __device__ inline bool goes_on(const struct runs &r, int64_t i) {
    if (i <= 0 || i >= r.entries.count) return false;
    const uint64_t key = entry_key(r.entries, i);
    return key == entry_key(r.entries, i - 1) && key != r.entries.padding;
}

/* Whether a run goes on over the border of two chunks, and is not finished by the group that begins it: it
 * began before the chunk on the left, or ends beyond the reach of that chunk's group. */
static __device__ inline bool crosses(const struct runs &r, int64_t border) {
    if (!goes_on(r, border)) return false;
    const uint64_t key = entry_key(r.entries, border);
    const int64_t before = border - r.tree.chunk - 1, after = border + REACH;
    return (before >= 0 && entry_key(r.entries, before) == key) ||
           (after < r.entries.count && entry_key(r.entries, after) == key);
}

/* The first entry from `from` on, less than REACH entries away, that does not go on with the run before it. All
 * lanes of a warp call this. */
static __device__ inline int64_t end_of_run(const struct runs &r, const struct lanes &g,
                                            int64_t from) {
    int end = -1;
    for (int k = 0; k < REACH; k += g.team) {
        const unsigned ends = team_votes(g, !goes_on(r, from + k + g.me));
        if (end < 0 && ends) end = k + __ffs((int)ends) - 1;
    }
    return from + end;
}

/* Bit k: a run crosses the border number k of FAN + 1 borders, `span` entries apart. All lanes of a warp call
 * this. */
static __device__ inline unsigned crossings(const struct runs &r, const struct lanes &g,
                                            int64_t first, int64_t span) {
    unsigned bits = 0;
    for (int k = 0; k <= FAN; k += g.team) {
        const int mine = k + g.me;
        bits |= team_votes(g, mine <= FAN && crosses(r, first + mine * span)) << k;
    }
    return bits;
}

/* The number of the run of entry i. */
static __device__ inline int64_t run_of(const struct compact &c, int64_t i) {
    int64_t lo = 0, hi = *c.runs;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (c.begin[mid] <= i)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* --- items: what is summed */

/* One summand: a gradient row with its coefficient, or the sum of a part of a run. */
struct item {
    uint32_t place;     /* of the summand: the argument of row() below */
    uint32_t part;      /* bits of the coefficient, or part_of() */
    int32_t table, dim; /* dim 0: no item */
    int64_t row;        /* of the table */
    bool ends;          /* the last item of its run */
};

/* known: the place in the order of the last item's table, mostly also of this one's; afterwards this one's. */
static __device__ inline struct item item_of(const struct runs &r, int32_t *known, uint32_t place,
                                             uint32_t part, uint64_t key, bool ends) {
    struct placed_table at = table_at(r.target, *known);
    const int64_t rows = r.target.tables[at.table].rows;
    if ((uint64_t)((int64_t)key - at.first) >= (uint64_t)rows) {
        *known = place_of_key(r.target, key);
        at = table_at(r.target, *known);
    }
    const int32_t dim = r.target.tables[at.table].dim;
    return {place, part, at.table, dim, (int64_t)key - at.first, ends};
}

/* The items of a chunk. */
struct chunk_items {
    static constexpr bool are_lookups = true;
    int32_t begin; /* first entry: a batch has fewer than 2^31 */
    int32_t count;
    int32_t run;   /* of the first entry that is in no complete run */
    int32_t known; /* see item_of() */

    /* All lanes of a warp call this. exists: otherwise there are no items. */
    __device__ chunk_items(const struct runs &r, const struct lanes &g, int32_t chunk, bool exists)
        : known{0} {
        int64_t from = exists ? (int64_t)chunk * r.tree.chunk : 0, end = from + r.tree.chunk;
        const bool begun = goes_on(r, from) && !crosses(r, from),
                   reaches = goes_on(r, end) && !crosses(r, end);
        const int64_t first = end_of_run(r, g, from + 1), last = end_of_run(r, g, end + 1);
        if (begun) from = first;
        if (reaches) end = last;
        if (end > r.entries.count) end = r.entries.count;
        begin = (int32_t)from;
        count = exists && from < end ? (int32_t)(end - from) : 0;
        run = r.compact.grad && count ? (int32_t)run_of(r.compact, from) : 0;
    }
    __device__ struct item get(const struct runs &r, int k) {
        const int64_t i = (int64_t)begin + k;
        if (k >= count) return {};
        const uint64_t key = entry_key(r.entries, i), value = entry_value(r.entries, i);
        if (key == r.entries.padding) return {};
        const bool ends = i + 1 >= r.entries.count || entry_key(r.entries, i + 1) != key;
        return item_of(r, &known, (uint32_t)value, value_part(r.entries, value), key, ends);
    }
    __device__ const char *row(const struct runs &r, uint32_t place) const {
        return (const char *)r.source + (int64_t)place * r.entries.unit * dtype_bytes(r.type);
    }
    __device__ const int32_t *winners(const struct runs &r, uint32_t place) const {
        return r.winners + (int64_t)place * r.entries.unit;
    }
    /* The number of the run that item k ends: the next one after the last call. */
    __device__ int64_t run_number(const struct runs &, int) {
        return run++;
    }
};

/* Entries below a node of that level. */
static __device__ inline int64_t span_of(const struct tree &t, int level) {
    return (int64_t)t.chunk << level * FAN_BITS;
}

static __device__ inline float *partial_row(const struct runs &r, int level, int64_t node,
                                            int tail) {
    return r.partial + (2 * (r.tree.first[level] + node) + tail) * r.stride;
}

/* The items of an inner node: head and tail of each of its children. */
struct node_items {
    static constexpr bool are_lookups = false;
    int level;     /* of the children */
    int32_t first; /* child */
    int32_t count;
    unsigned crossings; /* of the children's borders */
    int32_t known;

    __device__ node_items(int child_level, int32_t first_child, unsigned borders, bool exists)
        : level(child_level), first(first_child), count(exists ? 2 * FAN : 0), crossings(borders),
          known(0) {}
    __device__ struct item get(const struct runs &r, int k) {
        const int64_t from = entry(r, k), to = from + span_of(r.tree, level);
        if (k >= count) return {};
        const bool tail = k % 2, before = crossings >> k / 2 & 1, after = crossings >> k / 2 & 2;
        if (!(tail ? after : before)) return {};
        const uint64_t begins = before ? entry_key(r.entries, from) : r.entries.padding,
                       ends = after ? entry_key(r.entries, to - 1) : r.entries.padding;
        const bool through = begins == ends;
        if (tail && through) return {};
        return item_of(r, &known, (uint32_t)k, __float_as_uint(1.0f), tail ? ends : begins,
                       !tail && !through);
    }
    __device__ const char *row(const struct runs &r, uint32_t k) const {
        return (const char *)partial_row(r, level, first + (int32_t)k / 2, (int)k % 2);
    }
    __device__ int64_t entry(const struct runs &r, int k) const {
        return (first + k / 2) * span_of(r.tree, level);
    }
    __device__ int64_t run_number(const struct runs &r, int k) {
        return run_of(r.compact, entry(r, k));
    }
};
