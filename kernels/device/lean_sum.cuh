/* SPDX-License-Identifier: MIT
 *
 * Sums of runs in lean kernels. A group of lanes takes a chunk of sorted entries. A lane knows an entry of the group's
 * next LANES, and asks for the lines of its row if a run ends there. Then gradient rows come in windows; all loads of a
 * window are in flight at once. The sum of a run that ends goes to the warp's stack. When a batch of rows waits there,
 * the rule updates them (update.cuh). Parts of runs that cross a border of chunks go to memory: tree.cu adds them up
 * and makes a list of their rows.
 *
 * The warp takes the entries of one table after another; nearly every warp has entries of one table alone.
 */
#pragma once

#include "kernels/device/chunk.cuh"
#include "kernels/device/update.cuh"

/* --- gradient rows */

/* This lane's columns of the rows of a window; value: in units of Bits. All loads come before the first use of one.
 * Bits: four elements. */
template <class L, class Bits, enum dtype TYPE>
static __device__ __forceinline__ void load_window(const char *const (&rows)[L::QUADS],
                                                   const uint32_t (&value)[L::WINDOW],
                                                   struct quad (&q)[L::WINDOW][L::QUADS]) {
    Bits bits[L::WINDOW][L::QUADS];
#pragma unroll
    for (int u = 0; u < L::WINDOW; u++)
#pragma unroll
        for (int j = 0; j < L::QUADS; j++)
            bits[u][j] = __ldg(in_global((const Bits *)rows[j] + value[u]));
#pragma unroll
    for (int u = 0; u < L::WINDOW; u++)
#pragma unroll
        for (int j = 0; j < L::QUADS; j++) q[u][j] = quad_widen(TYPE, bits[u][j]);
}

/* The rows of a window times their coefficients. rows: this lane's quads of the first gradient row. tile: what the warp
 * knows of its entries, from the window's first one on. */
template <class L>
static __device__ __forceinline__ void
gather(const struct runs &r, const char *const (&rows)[L::QUADS], shared_address tile, int token,
       struct quad (&q)[L::WINDOW][L::QUADS]) {
    uint32_t value[L::WINDOW];
#pragma unroll
    for (int u = 0; u < L::WINDOW; u += 4) {
        const uint4 four = shared_words(tile + u * 4, token);
        value[u] = four.x, value[u + 1] = four.y, value[u + 2] = four.z, value[u + 3] = four.w;
    }
    if (r.type == FP32)
        load_window<L, uint4, FP32>(rows, value, q);
    else if (r.type == BF16)
        load_window<L, uint2, BF16>(rows, value, q);
    else
        load_window<L, uint2, FP16>(rows, value, q);
    if (r.entries.wide_values)
#pragma unroll
        for (int u = 0; u < L::WINDOW; u += 4) {
            const uint4 factor = shared_words(tile + WARP * 4 + u * 4, token);
#pragma unroll
            for (int j = 0; j < L::QUADS; j++) {
                q[u][j] = quad_scale(q[u][j], bits_float(factor.x));
                q[u + 1][j] = quad_scale(q[u + 1][j], bits_float(factor.y));
                q[u + 2][j] = quad_scale(q[u + 2][j], bits_float(factor.z));
                q[u + 3][j] = quad_scale(q[u + 3][j], bits_float(factor.w));
            }
        }
}

/* --- sums */

template <class L> struct sums {
    struct quad sum[L::QUADS]; /* of the run that has not ended yet */
    bool open;     /* that run began before the chunk, and its head is not in memory yet */
    bool any_open; /* of the warp's groups */
};

template <class L>
static __device__ __forceinline__ void add(struct quad (&sum)[L::QUADS],
                                           const struct quad (&q)[L::QUADS]) {
#pragma unroll
    for (int j = 0; j < L::QUADS; j++) sum[j] = quad_sum(sum[j], q[j]);
}

template <class L>
static __device__ __forceinline__ void put_row(char *to, unsigned lane, int32_t dim,
                                               const struct quad (&q)[L::QUADS]) {
#pragma unroll
    for (int j = 0; j < L::QUADS; j++)
        if (quad_column<L>(lane, j) < dim) *(struct quad *)(to + (j * L::LANES + lane) * 16) = q[j];
}

/* Where the parts of the runs lie that cross the borders of a group's chunk: its head, and behind it its tail. */
static __device__ __forceinline__ char *partial_at(const struct runs &r, uint32_t chunk) {
    return (char *)(r.partial + (size_t)chunk * 2 * r.stride);
}

/* Takes the heads of open chunks off the stack: the first rows that the window of their groups put there. The last row
 * of the stack takes the place of each. `bottom`: the top before the window; `ends`: of the window. */
template <class L>
static __device__ __forceinline__ void take_heads(const struct runs &r, struct stack *s, bool head,
                                                  int bottom, unsigned ends) {
    const int32_t dim = dim_here(s->at + L::TABLE_AT, bottom);
#pragma unroll 1
    for (int j = L::GROUPS - 1; j >= 0; j--) {
        if (!__shfl_sync(ALL_LANES, (int)head, j * L::LANES, WARP)) continue;
        const shared_address to = s->at +
                                  (bottom + __popc(ends & ((1u << j * L::LANES) - 1u))) * L::BYTES,
                             row_to = s->at + L::ROWS_AT +
                                      4 * (bottom + __popc(ends & ((1u << j * L::LANES) - 1u)));
        s->top--;
        const uint32_t row = shared_word(s->at + L::ROWS_AT + 4 * s->top);
        const uint4 chunk = shared_words(s->at + L::CHUNKS_AT + j * 16, bottom);
        for (int k = (int)threadIdx.x % WARP; k * LANE_COLUMNS < dim; k += WARP) {
            *(struct quad *)(partial_at(r, chunk.z) + k * 16) = shared_quad(to + k * 16);
            shared_put(to + k * 16, shared_quad(s->at + s->top * L::BYTES + k * 16));
        }
        __syncwarp(ALL_LANES);
        if (threadIdx.x % WARP == 0) shared_put(row_to, row);
        __syncwarp(ALL_LANES);
    }
}

/* Puts what other lanes need of this lane's entry i into the tile: value, coefficient and row. */
static __device__ __forceinline__ void tile_put(const struct runs &r, shared_address my_tile,
                                                uint32_t i, uint32_t unit, uint32_t row) {
    if (r.entries.wide_values) {
        const uint2 both = ((const uint2 *)r.entries.value)[i];
        shared_put(my_tile, both.x * unit);
        shared_put(my_tile + WARP * 4, both.y);
    } else {
        shared_put(my_tile, ((const uint32_t *)r.entries.value)[i] * unit);
    }
    shared_put(my_tile + 2 * WARP * 4, row);
}

/* The lanes of the first window of each group. */
template <class L> static __device__ __forceinline__ unsigned first_windows() {
    unsigned lanes = 0;
#pragma unroll
    for (int j = 0; j < L::GROUPS; j++) lanes |= ((1u << L::WINDOW) - 1u) << j * L::LANES;
    return lanes;
}

/* Adds a window to the sum of the group's run. `ends` has the entries where a run ends: their sums go to `to`, one
 * behind another, and the next run begins at 0. */
template <class L>
static __device__ __forceinline__ void
add_window(struct quad (&sum)[L::QUADS], const struct quad (&q)[L::WINDOW][L::QUADS], unsigned ends,
           shared_address to, unsigned lane, int32_t dim) {
#pragma unroll
    for (int u = 0; u < L::WINDOW; u++) {
        add<L>(sum, q[u]);
        if (ends >> u & 1) {
#pragma unroll
            for (int j = 0; j < L::QUADS; j++) {
                if (j == 0 || quad_column<L>(lane, j) < dim)
                    shared_put(to + j * L::LANES * 16, sum[j]);
                sum[j] = {};
            }
            to += L::BYTES;
        }
    }
}

/* Sums the entries begin .. end - 1 of each group, all of one table, whose first row has key `first`. */
template <enum rule_kind KIND, class L>
static __device__ __forceinline__ void sum_table(const struct runs &r, const struct keys &keys,
                                                 uint32_t begin, uint32_t end, struct stack *s,
                                                 struct sums<L> *x, unsigned me) {
    const struct place_of_lane p = place_of_me<L>(me);
    const shared_address table = s->at + L::TABLE_AT;
    const int32_t dim = dim_here(table, (int)begin);
    constexpr unsigned OF_WINDOW = (1u << L::WINDOW) - 1u;
    const unsigned earlier = (1u << p.group * L::LANES) - 1u, before = (1u << me) - 1u;
    const bool has_columns = quad_column<L>(p.lane, 0) < dim;
    /* A quad without columns reads another one of the row: nothing behind it. */
    const char *rows[L::QUADS];
#pragma unroll
    for (int j = 0; j < L::QUADS; j++) {
        const int column = quad_column<L>(p.lane, j);
        rows[j] = (const char *)r.source + (column < dim ? column : 0) * (r.type == FP32 ? 4 : 2);
        keep_sum(&rows[j]);
    }
    /* Lanes without columns in the table before have added up what they did not put. */
    if (begin < end)
        for (int j = 0; j < L::QUADS; j++) x->sum[j] = {};
    const uint32_t unit = r.unit_bytes / (r.type == FP32 ? 16 : 8);
    for (uint32_t at = begin; __any_sync(ALL_LANES, at < end); at += L::LANES) {
        const uint32_t mine = at + p.lane, i = min(mine, keys.count - 1);
        const uint32_t key = keys.at[i], next = keys.at[i + 1];
        const shared_address tile = s->at + L::TILE_AT, my_tile = tile + me * 4;
        const uint32_t row = key - first_here(table, (int)at);
        __syncwarp(ALL_LANES); /* all have read the last tile */
        tile_put(r, my_tile, i, unit, row);
        const bool ends = mine < end && (key != next || i == keys.count - 1);
        const unsigned all = __ballot_sync(ALL_LANES, ends);
        const bool whole = __all_sync(ALL_LANES, at + L::LANES <= end);
        if (ends) prefetch_row<L>(r.target, *s, row);
        __syncwarp(ALL_LANES);
#pragma unroll 1
        for (int k = 0; k < L::LANES; k += L::WINDOW) {
            struct quad q[L::WINDOW][L::QUADS];
            gather<L>(r, rows, tile + (p.group * L::LANES + k) * 4, (int)at, q);
            if (!whole)
#pragma unroll
                for (int u = 0; u < L::WINDOW; u++)
                    if (at + k + u >= end)
                        for (int j = 0; j < L::QUADS; j++) q[u][j] = {};
            const unsigned here = all & first_windows<L>() << k;
            if (!here) { /* within long runs */
#pragma unroll
                for (int u = 0; u < L::WINDOW; u++) add<L>(x->sum, q[u]);
                continue;
            }
            if (ends && (unsigned)(p.lane - k) < L::WINDOW)
                shared_put(s->at + L::ROWS_AT + 4 * (s->top + __popc(here & before)),
                           shared_word(my_tile + 2 * WARP * 4));
            const unsigned of_group = all >> (p.group * L::LANES + k) & OF_WINDOW,
                           group_ends = has_columns ? of_group : 0; /* other lanes put nothing */
            add_window<L>(x->sum, q, group_ends,
                          s->at + p.lane * 16 + (s->top + __popc(here & earlier)) * L::BYTES,
                          p.lane, dim);
            const bool head = x->open && of_group;
            const int bottom = s->top;
            s->top += __popc(here);
            __syncwarp(ALL_LANES);
            if (x->any_open && __any_sync(ALL_LANES, head)) { /* once in a chunk */
                take_heads<L>(r, s, head, bottom, here);
                if (head) x->open = false;
                x->any_open = __any_sync(ALL_LANES, x->open);
            }
            while (s->top >= L::BATCH) {
                update_batch<KIND, L, true>(r.target, *s, me);
                s->top -= L::BATCH;
            }
            __syncwarp(ALL_LANES);
        }
    }
}

template <enum rule_kind KIND, class L>
static __device__ __forceinline__ void sum_chunks(const struct runs &r) {
    const unsigned warp = threadIdx.x / WARP, me = threadIdx.x % WARP;
    const struct place_of_lane p = place_of_me<L>(me);
    struct stack s = stack_here<L>();
    const struct keys keys = keys_of(r);
    const shared_address my_chunk = s.at + L::CHUNKS_AT + p.group * 16;
    const uint32_t number = (blockIdx.x * LEAN_WARPS + warp) * L::GROUPS + p.group;
    struct sums<L> x = {};
    {
        const struct chunk c = chunk_of<L::LANES>(keys, number, (uint32_t)r.tree.chunk, p.lane);
        x.open = c.open;
        x.any_open = __any_sync(ALL_LANES, c.open);
        if (p.lane == 0)
            shared_put(my_chunk, {{bits_float(c.begin), bits_float(c.end), bits_float(number),
                                   bits_float(c.goes_on)}});
        __syncwarp(ALL_LANES);
    }
    for (int pass = 0;; pass++) {
        const uint4 c = shared_words(my_chunk, pass);
        const uint32_t at = c.x;
        const unsigned left = __ballot_sync(ALL_LANES, at < c.y);
        if (!left) break;
        /* Keys ascend over the groups of a warp. */
        const uint32_t key =
            __shfl_sync(ALL_LANES, at < c.y ? keys.at[at] : 0u, __ffs((int)left) - 1);
        const struct placed_table placed = table_at(r.target, place_of_key(r.target, key));
        /* The first key of the next table. */
        const uint32_t behind = (uint32_t)(placed.first + r.target.tables[placed.table].rows);
        uint32_t end = c.y;
        if (at < end && keys.at[end - 1] >= behind)
            end = first_that(keys, at, end, [=](uint32_t k) { return k >= behind; });
        __syncwarp(ALL_LANES);
        if (p.lane == 0 && at < end) shared_put(my_chunk, end);
        table_put<L>(r.target, placed, s);
        clear_idle_columns<L>(s.at, dim_here(s.at + L::TABLE_AT, pass));
        sum_table<KIND, L>(r, keys, at, end, &s, &x, me);
        update_rest<KIND, L>(r.target, &s, me);
    }
    /* A run that goes on: the tail, or the head if the same run also came into the chunk. The table of the group's last
     * entry may not be the last one of the warp, so all lanes with columns in the stack's rows write. */
    const uint4 c = shared_words(my_chunk, -1);
    if (c.w)
        put_row<L>(partial_at(r, c.z) + (x.open ? 0 : 4 * (size_t)r.stride), p.lane, r.stride,
                   x.sum);
}
