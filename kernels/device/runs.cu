/* SPDX-License-Identifier: MIT */
#include "kernels/device/runs.cuh"

/* Whether entries i - 1 and i are in the same run. Padding is in no run. */
static __device__ inline bool goes_on(const struct runs &r, int64_t i) {
    if (i <= 0 || i >= r.entries.count) return false;
    uint64_t key = entry_key(r.entries, i);
    return key == entry_key(r.entries, i - 1) && key != r.entries.padding;
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

/* One summand: a gradient row with its coefficient, or the sum of a part of a run. */
struct item {
    uint32_t place;     /* of the row: the argument of row() below */
    uint32_t part;      /* bits of the coefficient, or part_of() */
    int32_t table, dim; /* dim 0: no item */
    bool ends;          /* the last item of its run */
};

static __device__ inline struct item item_of(const struct runs &r, uint64_t place, uint32_t part,
                                             uint64_t key, bool ends) {
    int32_t table = table_of_key(r.target, key);
    return {(uint32_t)place, part, table, r.target.tables[table].dim, ends};
}

/* The items of a chunk: entries begin .. end-1. */
struct chunk_items {
    static constexpr bool are_lookups = true;
    int64_t begin;
    int count;
    int64_t run; /* of the next batch's first entry */

    __device__ chunk_items(const struct runs &r, int64_t chunk) {
        begin = chunk * CHUNK;
        count = r.entries.count - begin < CHUNK ? (int)(r.entries.count - begin) : CHUNK;
        run = r.compact.grad ? run_of(r.compact, begin) : 0;
    }
    __device__ struct item get(const struct runs &r, int k) const {
        uint64_t key = k < count ? entry_key(r.entries, begin + k) : r.entries.padding;
        if (key == r.entries.padding) return {};
        uint64_t value = entry_value(r.entries, begin + k);
        return item_of(r, (uint32_t)value, value_part(r.entries, value), key,
                       !goes_on(r, begin + k + 1));
    }
    __device__ enum dtype type(const struct runs &r) const {
        return r.type;
    }
    __device__ const void *row(const struct runs &r, uint32_t place) const {
        return (const char *)r.source + (int64_t)place * r.entries.unit * dtype_bytes(r.type);
    }
    __device__ const int32_t *winners(const struct runs &r, uint32_t place) const {
        return r.winners + (int64_t)place * r.entries.unit;
    }
    /* An entry of the run that item k ends. */
    __device__ int64_t entry(int k) const {
        return begin + k;
    }
    /* The number of that run. Item k is item `at` of its batch; ends: votes of that batch. */
    __device__ int64_t run_number(const struct runs &, int, unsigned ends, int at) const {
        return run + __popc(ends & ((1u << at) - 1u));
    }
    __device__ void next_batch(unsigned ends) {
        run += __popc(ends);
    }
};

static __device__ inline float *partial_row(const struct runs &r, int level, int64_t node,
                                            int tail) {
    return r.partial + (2 * (r.tree.first[level] + node) + tail) * r.stride;
}

/* The items of an inner node: head and tail of each of its children. */
struct node_items {
    static constexpr bool are_lookups = false;
    int level;     /* of the children */
    int64_t first; /* child */
    int64_t span;  /* entries below each */
    int count;

    __device__ node_items(const struct runs &r, int child_level, int64_t node) {
        level = child_level;
        first = node * FAN;
        span = CHUNK;
        for (int k = 0; k < level; k++) span *= FAN;
        int64_t children = r.tree.count[level] - first;
        count = 2 * (children < FAN ? (int)children : FAN);
    }
    __device__ struct item get(const struct runs &r, int k) const {
        int64_t from = entry(k), to = from + span;
        if (k >= count) return {};
        if (to > r.entries.count) to = r.entries.count;
        bool tail = k % 2, before = goes_on(r, from), after = goes_on(r, to);
        uint64_t begins = entry_key(r.entries, from), ends = entry_key(r.entries, to - 1);
        bool through = before && after && begins == ends;
        if (tail ? !after || through : !before) return {};
        return item_of(r, (uint64_t)k, __float_as_uint(1.0f), tail ? ends : begins,
                       !tail && !through);
    }
    __device__ enum dtype type(const struct runs &) const {
        return FP32;
    }
    __device__ const void *row(const struct runs &r, uint32_t k) const {
        return partial_row(r, level, first + k / 2, (int)k % 2);
    }
    __device__ const int32_t *winners(const struct runs &, uint32_t) const {
        return NULL;
    }
    __device__ int64_t entry(int k) const {
        return (first + k / 2) * span;
    }
    __device__ int64_t run_number(const struct runs &r, int k, unsigned, int) const {
        return run_of(r.compact, entry(k));
    }
    __device__ void next_batch(unsigned) {}
};

static __device__ inline int64_t row_of(const struct runs &r, int32_t table, int64_t entry) {
    return (int64_t)entry_key(r.entries, entry) - r.target.tables[table].first_row;
}

/* Passes on the sum of a complete run. entry: any of its entries; run: its number in compact.
 * UPDATES: to the rule, otherwise to compact. */
template <int TILES, bool UPDATES>
static __device__ __forceinline__ void finish(const struct runs &r, const struct lanes &g,
                                              int32_t table, int32_t dim, int64_t entry,
                                              int64_t run, const struct strip<TILES> &sum) {
    if constexpr (UPDATES)
        row_update<TILES>(g, &r.target.steps[table],
                          place_of(r.target, table, row_of(r, table, entry)), sum);
    else
        strip_store(g, r.compact.grad + run * r.compact.stride, dim, sum);
}

/* What counts of four columns of an item's row. HAS_WINNERS: of an item that may be of a max. */
template <bool HAS_WINNERS>
static __device__ __forceinline__ struct quad quad_part(const struct quad &q, uint32_t part,
                                                        const struct quad_bits &winners) {
    if (HAS_WINNERS && part & PART_OF_MAX) return quad_won(q, winners, part & ~PART_OF_MAX);
    return quad_scale(q, __uint_as_float(part));
}

/* Sums items up to the end of each run. open: the first item's run began before these items, and
 * the sum of its part here goes to head. The sum of a run that continues after the items goes to
 * tail, or to head if it is that same run. MAX: the batch has winners. */
template <int TILES, bool UPDATES, bool MAX, class Items>
static __device__ __forceinline__ void sum_items(const struct runs &r, const struct lanes &g,
                                                 Items items, bool open, float *head) {
    constexpr bool HAS_WINNERS = MAX && Items::are_lookups;
    enum { AHEAD = FLIGHT / TILES };
    struct strip<TILES> sum = strip_zero<TILES>();
    int32_t pending = 0; /* dim of the last item if its run continues, 0 if it ends */
    for (int at = 0; at < items.count; at += g.team) {
        const struct item mine = items.get(r, at + g.me);
        const unsigned there = team_votes(g, mine.dim > 0), ends = team_votes(g, mine.ends);
        if (UPDATES && mine.ends)
            table_prefetch(&r.target.io[mine.table], row_of(r, mine.table, items.entry(at + g.me)));
        if (there) {
            int last = WARP - 1 - __clz((int)there);
            int32_t dim = team_get(g, mine.dim, last);
            pending = ends >> last & 1 ? 0 : dim;
        }
        for (int k = 0; k < g.team && there >> k; k += AHEAD) {
            /* All loads come before the first use of one, so that all are in flight at once. */
            struct quad_bits fetched[AHEAD][TILES], winners[AHEAD][TILES];
            struct quad flight[AHEAD][TILES];
            const void *row[AHEAD];
            uint32_t part[AHEAD];
            const int32_t *winners_of[AHEAD];
            int32_t dims[AHEAD]; /* 0 if there is no item: loads 0s */
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const uint32_t place = team_get(g, mine.place, k + u);
                row[u] = items.row(r, place);
                if (HAS_WINNERS) winners_of[u] = items.winners(r, place);
                part[u] = team_get(g, mine.part, k + u);
                dims[u] = team_get(g, mine.dim, k + u);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
#pragma unroll
                for (int j = 0; j < TILES; j++) {
                    fetched[u][j] =
                        quad_fetch<false>(items.type(r), row[u], tile_column(g, j), dims[u]);
                    if (HAS_WINNERS)
                        winners[u][j] = winners_fetch(winners_of[u], tile_column(g, j), dims[u]);
                }
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    flight[u][j] = quad_part<HAS_WINNERS>(quad_widen(items.type(r), fetched[u][j]),
                                                          part[u], winners[u][j]);
            /* One pass for each run of the window skips items of other runs. */
            for (int from = 0; from < AHEAD;) {
                unsigned left = (ends >> k & ((1u << AHEAD) - 1u)) >> from;
                int to = left ? from + __ffs((int)left) : AHEAD, last = k + to - 1;
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
                    if (u >= from && u < to)
#pragma unroll
                        for (int j = 0; j < TILES; j++)
                            sum.tile[j] = quad_sum(sum.tile[j], flight[u][j]);
                from = to;
                if (!left) break;
                int32_t table = team_get(g, mine.table, last), dim = team_get(g, mine.dim, last);
                if (open)
                    strip_store(g, head, dim, sum);
                else
                    finish<TILES, UPDATES>(r, g, table, dim, items.entry(at + last),
                                           UPDATES ? 0 : items.run_number(r, at + last, ends, last),
                                           sum);
                open = false;
                sum = strip_zero<TILES>();
            }
        }
        items.next_batch(ends);
    }
    if (pending > 0) strip_store(g, open ? head : head + r.stride, pending, sum);
}

/* As sum_items(), for rows too wide for registers: run by run, and tile by tile through memory. If
 * rows are updated at once, the sum of a run is in tail, which is free until the last run. */
template <bool UPDATES, bool MAX, class Items>
static __device__ inline void sum_items_wide(const struct runs &r, const struct lanes &g,
                                             Items items, bool open, float *head) {
    float *tail = head + r.stride;
    for (int from = 0, to; from < items.count; from = to) {
        struct item last = {};
        for (to = from; to < items.count && !last.ends; to++) {
            struct item x = items.get(r, to);
            if (x.dim > 0) last = x;
        }
        if (last.dim == 0) return;
        float *sum = open ? head : tail;
        if (!UPDATES && last.ends && !open) {
            int64_t run = items.run_number(r, to - 1, 0, 0);
            sum = r.compact.grad + run * r.compact.stride;
        }
        for (int32_t column = tile_column(g, 0); column < last.dim;
             column += g.count * LANE_COLUMNS) {
            struct quad all = {};
            for (int k = from; k < to; k++) {
                struct item x = items.get(r, k);
                struct quad q = quad_load_as(items.type(r), items.row(r, x.place), column, x.dim);
                struct quad_bits winners = {};
                if (MAX && Items::are_lookups)
                    winners = winners_fetch(items.winners(r, x.place), column, x.dim);
                all = quad_sum(all, quad_part < MAX && Items::are_lookups > (q, x.part, winners));
            }
            quad_store(sum, column, last.dim, all);
        }
        lanes_sync(g);
        if (UPDATES && last.ends && !open)
            row_update_wide(
                g, &r.target.steps[last.table],
                place_of(r.target, last.table, row_of(r, last.table, items.entry(to - 1))), sum);
        lanes_sync(g);
        if (last.ends) items.next_batch(1);
        open = false;
    }
}

/* Whether this group is the last of a node's children. If so, it sees all writes of the others. */
static __device__ inline bool last_to_arrive(const struct lanes &g, uint32_t *arrived,
                                             int64_t children) {
    __threadfence();
    lanes_sync(g);
    unsigned before = 0;
    if (g.lane == 0) before = atomicAdd(arrived, 1u);
    before = lanes_first(g, before);
    __threadfence();
    return before + 1 == (uint64_t)children;
}

/* nvcc may call this function. Functions that take the sum of a run are forced inline: a call would
 * pass the sum through local memory. */
template <int TILES, bool UPDATES, bool MAX, class Items>
static __device__ inline void sum_node(const struct runs &r, const struct lanes &g,
                                       const Items &items, bool open, float *head) {
    if constexpr (TILES == 0)
        sum_items_wide<UPDATES, MAX>(r, g, items, open, head);
    else
        sum_items<TILES, UPDATES, MAX>(r, g, items, open, head);
}

template <int TILES, bool UPDATES, bool MAX>
static __global__ void __launch_bounds__(block_of_tiles(TILES), TILES == 1 || TILES == 2 ? 3 : 1)
    sum_runs(const __grid_constant__ struct runs r, int count) {
    struct lanes g = lanes_here(count);
    int64_t node = group_number(g);
    if (node >= r.tree.count[0]) return;
    sum_node<TILES, UPDATES, MAX>(r, g, chunk_items(r, node), goes_on(r, node * CHUNK),
                                  partial_row(r, 0, node, 0));
    uint32_t *arrived = r.arrived;
    for (int level = 0; level + 1 < r.tree.levels; level++) {
        node /= FAN;
        struct node_items items(r, level, node);
        if (!last_to_arrive(g, &arrived[node], items.count / 2)) return;
        arrived += r.tree.count[level + 1];
        sum_node<TILES, UPDATES, MAX>(r, g, items, goes_on(r, items.entry(0)),
                                      partial_row(r, level + 1, node, 0));
    }
}

template <bool UPDATES>
static cudaError_t enqueue(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    struct cover c = cover_of(widest(in));
    unsigned blocks = blocks_for(r->tree.count[0], groups_of_block(c.count));
    if (r->entries.count == 0) return cudaSuccess;
    auto sum = r->winners ? OF_TILES(sum_runs, c.tiles, UPDATES, true)
                          : OF_TILES(sum_runs, c.tiles, UPDATES, false);
    LAUNCH(sum, blocks, block_of_lanes(c.count), 0, stream, *r, c.count);
    return cudaGetLastError();
}

cudaError_t runs_update(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue<true>(r, in, stream);
}

cudaError_t runs_reduce(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue<false>(r, in, stream);
}
