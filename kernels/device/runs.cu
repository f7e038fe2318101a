/* SPDX-License-Identifier: MIT */
#include "kernels/device/runs.cuh"
#include "kernels/device/update.cuh"

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
    __device__ const int32_t *winners(const struct runs &, uint32_t) const {
        return NULL;
    }
    __device__ int64_t entry(const struct runs &r, int k) const {
        return (first + k / 2) * span_of(r.tree, level);
    }
    __device__ int64_t run_number(const struct runs &r, int k) {
        return run_of(r.compact, entry(r, k));
    }
};

/* --- gathers */

/* A window: AHEAD items of which lane u of the team has number u. */
template <int AHEAD> struct window {
    const char *row[AHEAD];
    uint32_t part[AHEAD];
    int32_t dim[AHEAD]; /* 0: no item */
};

template <int AHEAD, class Items>
static __device__ __forceinline__ struct window<AHEAD>
window_of(const struct runs &r, const struct lanes &g, const Items &items,
          const struct item &mine) {
    struct window<AHEAD> w;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        w.row[u] = items.row(r, team_get(g, mine.place, u));
        w.part[u] = team_get(g, mine.part, u);
        w.dim[u] = team_get(g, mine.dim, u);
        if (u >= g.team) w.dim[u] = 0;
    }
    return w;
}

/* Four elements of a row as they were loaded: fp32, or 16 bits. */
static __device__ inline struct quad
widen(enum dtype, const uint4 &x) {
    return quad_of(make_float4(bits_float(x.x), bits_float(x.y), bits_float(x.z), bits_float(x.w)));
}

static __device__ inline struct quad widen(enum dtype type, const uint2 &x) {
    return quad_widen(type, {{x.x, x.y, 0, 0}});
}

/* This lane's columns of the rows of a window, times their coefficients. All loads come before the first use of
 * one, so all are in flight at once. Bits: uint4 or uint2. The rows are aligned and whole. */
template <class Bits, int TILES, int AHEAD, class Items>
static __device__ __forceinline__ void gather_whole(const struct runs &r, const struct lanes &g,
                                                    const struct window<AHEAD> &w,
                                                    struct quad (&to)[AHEAD][TILES]) {
    const uint64_t policy = policy_of_reads(r.read_once);
    Bits bits[AHEAD][TILES];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const char *at = w.row[u] + tile_column(g, j) / LANE_COLUMNS * (int)sizeof(Bits);
            bits[u][j] = {};
            if (tile_column(g, j) >= w.dim[u]) continue;
            if constexpr (Items::are_lookups)
                load_under(policy, at, &bits[u][j]);
            else
                bits[u][j] = *(const Bits *)at;
        }
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
        for (int j = 0; j < TILES; j++)
            to[u][j] = quad_scale(widen(r.type, bits[u][j]), __uint_as_float(w.part[u]));
}

/* The elements of such columns of FEW items from item `first` on, one by one. Element: uint32_t or uint16_t. */
enum { FEW = 2 };
template <class Element, int TILES, int AHEAD>
static __device__ __forceinline__ void
load_elements(const struct lanes &g, const struct window<AHEAD> &w, int first,
              const char *const (&row)[FEW], uint32_t (&to)[FEW][TILES][LANE_COLUMNS]) {
#pragma unroll
    for (int u = 0; u < FEW; u++)
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                const int32_t column = tile_column(g, j) + c;
                to[u][j][c] = 0;
                if (column < w.dim[first + u])
                    to[u][j][c] = __ldg((const Element *)row[u] + column);
            }
}

/* The same for rows of any alignment and dim, and with winners: FEW rows are in flight, element by element. */
template <class Element, int TILES, int AHEAD>
static __device__ __forceinline__ void gather_any(const struct runs &r, const struct lanes &g,
                                                  const struct window<AHEAD> &w,
                                                  struct quad (&to)[AHEAD][TILES]) {
#pragma unroll
    for (int first = 0; first < AHEAD; first += FEW) {
        uint32_t bits[FEW][TILES][LANE_COLUMNS], winner[FEW][TILES][LANE_COLUMNS] = {};
        const char *row[FEW], *winners[FEW];
#pragma unroll
        for (int u = 0; u < FEW; u++) {
            row[u] = w.row[first + u];
            winners[u] = (const char *)r.winners +
                         (row[u] - (const char *)r.source) / (int)sizeof(Element) * 4;
        }
        load_elements<Element>(g, w, first, row, bits);
        if (r.winners) load_elements<uint32_t>(g, w, first, winners, winner);
#pragma unroll
        for (int u = 0; u < FEW; u++)
#pragma unroll
            for (int j = 0; j < TILES; j++)
#pragma unroll
                for (int c = 0; c < LANE_COLUMNS; c++) {
                    const uint32_t part = w.part[first + u];
                    const float x = dtype_widen(r.type, bits[u][j][c]);
                    const bool of_max = r.winners && part & PART_OF_MAX;
                    const bool wins = winner[u][j][c] == (part & ~PART_OF_MAX);
                    to[first + u][j].x[c] = of_max ? wins ? x : 0 : x * __uint_as_float(part);
                }
    }
}

template <int TILES, int AHEAD, class Items>
static __device__ __forceinline__ void gather(const struct runs &r, const struct lanes &g,
                                              const Items &items, const struct item &mine,
                                              struct quad (&to)[AHEAD][TILES]) {
    const struct window<AHEAD> w = window_of<AHEAD>(r, g, items, mine);
    if (!Items::are_lookups || r.rows == ROWS_FP32)
        gather_whole<uint4, TILES, AHEAD, Items>(r, g, w, to);
    else if (r.rows == ROWS_16BIT)
        gather_whole<uint2, TILES, AHEAD, Items>(r, g, w, to);
    else if (r.type == FP32)
        gather_any<uint32_t, TILES, AHEAD>(r, g, w, to);
    else
        gather_any<uint16_t, TILES, AHEAD>(r, g, w, to);
}

/* --- sums */

/* Passes on the sums of the complete runs of a window: bit u of `ends` is the item of lane u of the team, item
 * at + u of all. UPDATES: to the rules, otherwise to compact. */
template <int TILES, bool UPDATES, class Items>
static __device__ __forceinline__ void finish(const struct runs &r, const struct lanes &g,
                                              Items *items, const struct item &mine,
                                              struct summed<TILES> sums, int at, unsigned ends) {
    if constexpr (UPDATES) {
        rows_update<TILES>(r.target, g.count, sums, mine.table, mine.row, ends);
    } else {
        for (; warp_any(ends != 0); ends &= ends - 1, sums.skip(1)) {
            const int last = ends ? __ffs((int)ends) - 1 : 0;
            const int32_t dim = team_get(g, mine.dim, last);
            if (!ends) continue;
            float *to = r.compact.grad + items->run_number(r, at + last) * r.compact.stride;
            for (int j = 0; j < TILES; j++)
                quad_store(to, tile_column(g, j), dim, sums.get(g, dim, j));
        }
    }
}

/* Sums items up to the end of each run. open: the first item's run began before these items, and
 * the sum of its part here goes to head. The sum of a run that continues after the items goes to
 * tail, or to head if it is that same run. All lanes of a warp call this. What a lane knows of items is fetched
 * again for each window: few registers are in use while rows are updated. */
template <int TILES, bool UPDATES, class Items>
static __device__ __forceinline__ void sum_items(const struct runs &r, struct lanes g, Items items,
                                                 bool open, float *head) {
    enum { AHEAD = FLIGHT / TILES };
    const struct summed<TILES> held = { held_quads<BLOCK_OF<TILES>, FLIGHT>() };
    const int window = AHEAD < g.team ? (int)AHEAD : g.team;
    struct strip<TILES> sum = strip_zero<TILES>();
    bool pending = false; /* the run of the last item goes on */
    for (int at = 0; warp_any(at < items.count); at += window) {
        lane_again(&g);
        const struct item mine = g.me < window ? items.get(r, at + g.me) : item{};
        const unsigned there = team_votes(g, mine.dim > 0), ends = team_votes(g, mine.ends);
        if (there) pending = !(ends >> (WARP - 1 - __clz((int)there)) & 1);
        struct quad flight[AHEAD][TILES];
        gather<TILES>(r, g, items, mine, flight);
        if (UPDATES && g.me < window) { /* the rows of the next window */
            const struct item soon = items.get(r, at + window + g.me);
            if (soon.ends) table_prefetch(&r.target.io[soon.table], soon.row);
        }
        struct summed<TILES> slot = held;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const bool counts = there >> u & 1, last = ends >> u & 1;
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                if (counts) sum.tile[j] = quad_sum(sum.tile[j], flight[u][j]);
                if (last) slot.put(g, 0, j, sum.tile[j]);
                if (last) sum.tile[j] = {};
            }
            if (last) slot.skip(1);
        }
        struct summed<TILES> sums = held;
        unsigned complete = ends;
        if (open && ends) { /* the first one, of a run that began before */
            for (int j = 0; j < TILES; j++)
                quad_store(head, tile_column(g, j), r.stride, sums.get(g, 0, j));
            if (!UPDATES) items.run_number(r, at + __ffs((int)ends) - 1);
            sums.skip(1);
            complete &= complete - 1;
            open = false;
        }
        if (warp_any(complete != 0)) finish<TILES, UPDATES>(r, g, &items, mine, sums, at, complete);
    }
    if (pending) strip_store(g, open ? head : head + r.stride, r.stride, sum);
}

/* As sum_items(), for rows too wide for registers: run by run, and tile by tile through memory. The group is a
 * whole block. If rows are updated at once, the sum of a run is in tail, which is free until the last run. */
template <bool UPDATES, class Items>
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
        const int64_t run = !UPDATES && last.ends ? items.run_number(r, to - 1) : 0;
        if (!UPDATES && last.ends && !open) sum = r.compact.grad + run * r.compact.stride;
        const enum dtype type = Items::are_lookups ? r.type : FP32;
        for (int32_t column = tile_column(g, 0); column < last.dim;
             column += g.count * LANE_COLUMNS) {
            struct quad all = {};
            for (int k = from; k < to; k++) {
                struct item x = items.get(r, k);
                struct quad q = quad_load_as(type, items.row(r, x.place), column, x.dim);
                if (Items::are_lookups && r.winners && x.part & PART_OF_MAX)
                    q = quad_won(q, winners_fetch(items.winners(r, x.place), column, x.dim),
                                 x.part & ~PART_OF_MAX);
                else
                    q = quad_scale(q, __uint_as_float(x.part));
                all = quad_sum(all, q);
            }
            quad_store(sum, column, last.dim, all);
        }
        lanes_sync(g);
        if (UPDATES && last.ends && !open)
            rows_update<0>(r.target, g.count, {sum}, last.table, last.row, 1);
        lanes_sync(g);
        open = false;
    }
}

template <int TILES, bool UPDATES, class Items>
static __device__ __forceinline__ void sum_node(const struct runs &r, const struct lanes &g,
                                                const Items &items, bool open, float *head) {
    if constexpr (TILES == 0)
        sum_items_wide<UPDATES>(r, g, items, open, head);
    else
        sum_items<TILES, UPDATES>(r, g, items, open, head);
}

/* --- the tree */

/* Whether this group is the last of those that arrive. If so, it sees all writes of the others. Lane 0 arrives for
 * the group: the barrier puts what the other lanes wrote before its fence. All lanes of a warp call this. */
static __device__ inline bool last_to_arrive(const struct lanes &g, bool arrives, uint32_t *arrived,
                                             int expected) {
    bool last = false;
    lanes_sync(g);
    if (arrives && g.lane == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1u) + 1 == (unsigned)expected;
        if (last) __threadfence();
    }
    last = lanes_first(g, last);
    lanes_sync(g);
    return last;
}

/* Blocks of an SM that leave 168 and 255 registers. With fewer, nvcc puts what is needed after the update of rows
 * into local memory. 12 warps with 8 rows of 512 bytes each keep 48 KiB in flight. */
constexpr int blocks_at_once(int tiles) {
    return tiles == 1 ? 3 : tiles == 2 ? 2 : 1;
}

template <int TILES, bool UPDATES>
static __global__ void __launch_bounds__(BLOCK_OF<TILES>, blocks_at_once(TILES))
    sum_runs(const __grid_constant__ struct runs r, int count) {
    const struct lanes g = lanes_here(count);
    int32_t node = (int32_t)group_number(g);
    bool alive = node < r.tree.count[0];
    if (!alive) node = 0;
    sum_node<TILES, UPDATES>(r, g, chunk_items(r, g, node, alive),
                             alive && crosses(r, node * span_of(r.tree, 0)),
                             partial_row(r, 0, node, 0));
    for (int level = 0; level + 1 < r.tree.levels; level++) {
        const int64_t span = span_of(r.tree, level);
        alive = alive && (crosses(r, node * span) || crosses(r, (node + 1) * span));
        if (!warp_any(alive)) return;
        node /= FAN;
        const unsigned borders = crossings(r, g, (int64_t)node * FAN * span, span);
        uint32_t *arrived = r.arrived + r.tree.first[level + 1] - r.tree.count[0] + node;
        alive = last_to_arrive(g, alive, arrived,
                               __popc((borders | borders >> 1) & ((1u << FAN) - 1u)));
        if (!warp_any(alive)) return;
        sum_node<TILES, UPDATES>(r, g, node_items(level, node * FAN, borders, alive),
                                 alive && borders & 1, partial_row(r, level + 1, node, 0));
    }
}

/* Whether all gradient rows are whole and aligned. */
static enum gradient_rows rows_of(const struct runs *r, const struct batch *in) {
    const bool narrow = r->type != FP32;
    bool whole =
        r->entries.unit % LANE_COLUMNS == 0 && (uintptr_t)r->source % (narrow ? 8 : 16) == 0;
    for (int32_t t = 0; t < in->num_tables; t++) whole &= in->tables[t].dim % LANE_COLUMNS == 0;
    return r->winners || !whole ? ROWS_ANY : narrow ? ROWS_16BIT : ROWS_FP32;
}

template <bool UPDATES>
static cudaError_t enqueue(const struct runs *x, const struct batch *in, cudaStream_t stream) {
    struct runs r = *x;
    const struct cover c = cover_of(r.dim);
    if (r.entries.count == 0) return cudaSuccess;
    r.rows = rows_of(&r, in);
    auto sum = OF_TILES(sum_runs, c.tiles, UPDATES);
    LAUNCH(sum, blocks_for(r.tree.count[0], groups_of_block(c.count)), block_of_lanes(c.count), 0,
           stream, r, c.count);
    return cudaGetLastError();
}

cudaError_t runs_update(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue<true>(r, in, stream);
}

cudaError_t runs_reduce(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue<false>(r, in, stream);
}
