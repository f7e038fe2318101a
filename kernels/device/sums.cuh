/* SPDX-License-Identifier: MIT
 *
 * The sums of runs.cuh, from the items of a chunk up the tree, for kernels that differ in how gradient rows come to
 * the lanes.
 */
#pragma once

#include "kernels/device/gathers.cuh"

/* --- sums */

/* Passes on the sums of the complete runs of a window: bit u of `ends` is the item of lane u of the team, item
 * at + u of all. RULE: what updates rows by them; with NO_RULE they go to compact. */
template <int TILES, int RULE, class Items>
static __device__ __forceinline__ void finish(const struct runs &r, const struct lanes &g,
                                              Items *items, const struct item &mine,
                                              struct summed<TILES> sums, int at, unsigned ends) {
    if constexpr (RULE == ANY_RULE) {
        rows_update<TILES>(r.target, g.count, sums, mine.table, mine.row, ends);
    } else if constexpr (RULE != NO_RULE) {
        rows_update_by<RULE>(r.target, g.count, sums, mine.table, mine.row, ends);
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
 * again for each window: few registers are in use while rows are updated. Rows: loaded_rows, or another of its
 * kind. */
template <int TILES, int RULE, class Rows, class Items>
static __device__ __forceinline__ void sum_items(const struct runs &r, struct lanes g, Items items,
                                                 bool open, float *head) {
    enum { AHEAD = Rows::AHEAD };
    const struct summed<TILES> held = { held_quads<BLOCK_OF<TILES>, FLIGHT>() };
    const int window = window_items<AHEAD>(g);
    struct strip<TILES> sum = strip_zero<TILES>();
    bool pending = false; /* the run of the last item goes on */
    Rows::template begin<RULE>(r, g, &items);
    for (int at = 0; warp_any(at < items.count); at += window) {
        lane_again(&g);
        const struct item mine = g.me < window ? items.get(r, at + g.me) : item{};
        const unsigned there = team_votes(g, mine.dim > 0), ends = team_votes(g, mine.ends);
        if (there) pending = !(ends >> (WARP - 1 - __clz((int)there)) & 1);
        struct quad flight[AHEAD][TILES];
        Rows::take(r, g, items, mine, at, flight);
        Rows::template fetch<RULE>(r, g, &items, at + Rows::WINDOWS_AHEAD * window);
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
            if (RULE == NO_RULE) items.run_number(r, at + __ffs((int)ends) - 1);
            sums.skip(1);
            complete &= complete - 1;
            open = false;
        }
        if (warp_any(complete != 0)) finish<TILES, RULE>(r, g, &items, mine, sums, at, complete);
    }
    if (pending) strip_store(g, open ? head : head + r.stride, r.stride, sum);
}

/* Columns column .. column+3 of an item. */
template <class Items>
static __device__ inline struct quad summand(const struct runs &r, const Items &items,
                                             const struct item &x, int32_t column) {
    const enum dtype type = Items::are_lookups ? r.type : FP32;
    const struct quad q = quad_load_as(type, items.row(r, x.place), column, x.dim);
    if constexpr (Items::are_lookups)
        if (r.winners && x.part & PART_OF_MAX)
            return quad_won(q, winners_fetch(items.winners(r, x.place), column, x.dim),
                            x.part & ~PART_OF_MAX);
    return quad_scale(q, __uint_as_float(x.part));
}

/* As sum_items(), for rows too wide for registers: run by run, and tile by tile through memory. The group is a
 * whole block. If rows are updated at once, the sum of a run is in tail, which is free until the last run. */
template <int RULE, class Items>
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
        const int64_t run = RULE == NO_RULE && last.ends ? items.run_number(r, to - 1) : 0;
        if (RULE == NO_RULE && last.ends && !open) sum = r.compact.grad + run * r.compact.stride;
        for (int32_t column = tile_column(g, 0); column < last.dim;
             column += g.count * LANE_COLUMNS) {
            struct quad all = {};
            for (int k = from; k < to; k++)
                all = quad_sum(all, summand(r, items, items.get(r, k), column));
            quad_store(sum, column, last.dim, all);
        }
        lanes_sync(g);
        if (RULE != NO_RULE && last.ends && !open)
            rows_update<0>(r.target, g.count, {sum}, last.table, last.row, 1);
        lanes_sync(g);
        open = false;
    }
}

template <int TILES, int RULE, class Rows, class Items>
static __device__ __forceinline__ void sum_node(const struct runs &r, const struct lanes &g,
                                                const Items &items, bool open, float *head) {
    if constexpr (TILES == 0)
        sum_items_wide<RULE>(r, g, items, open, head);
    else
        sum_items<TILES, RULE, Rows>(r, g, items, open, head);
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

/* Sums the chunk of this group, and every node that it is the last to reach. Rows: how the gradient rows of the chunk
 * come to the lanes. */
template <int TILES, int RULE, class Rows>
static __device__ __forceinline__ void sum_tree(const struct runs &r, int count) {
    const struct lanes g = lanes_here(count);
    int32_t node = (int32_t)group_number(g);
    bool alive = node < r.tree.count[0];
    if (!alive) node = 0;
    sum_node<TILES, RULE, Rows>(r, g, chunk_items(r, g, node, alive),
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
        sum_node<TILES, RULE, loaded_rows<TILES>>(
            r, g, node_items(level, node * FAN, borders, alive), alive && borders & 1,
            partial_row(r, level + 1, node, 0));
    }
}
