/* SPDX-License-Identifier: MIT
 *
 * The sums of runs.cuh into a compact gradient: no rule. A group of lanes takes a chunk, and walks it once for each
 * tile of columns, with several gradient rows in flight.
 */
#include "kernels/device/chunk.cuh"
#include "kernels/device/lean.h"

enum { REDUCE_BLOCK = 128 };

/* What a lane knows of an entry. */
struct known_entry {
    uint32_t place, factor;
    int32_t dim; /* 0: there is none */
    bool ends;   /* its run */
};

/* table: of the last entry, and mostly also of this one. */
static __device__ inline struct known_entry entry_at(const struct runs &r, const struct keys &keys,
                                                     uint32_t i, int32_t *table) {
    const uint32_t key = keys.at[i];
    const uint64_t value = entry_value(r.entries, i);
    const struct table_shape *t = &r.target.tables[*table];
    if (key - (uint64_t)t->first_row >= (uint64_t)t->rows)
        t = &r.target.tables[ *table = place_of_key(r.target, key)];
    return {(uint32_t)value, value_factor(r.entries, value), t->dim,
            i + 1 >= keys.count || keys.at[i + 1] != key};
}

/* What a group knows of a window of entries, in shared memory: from there it comes in few loads, and no wait for it is
 * a wait for gradients. */
template <int WINDOW> struct known_window {
    uint32_t place[WINDOW], factor[WINDOW], dim[WINDOW];

    __device__ __forceinline__ known_window(shared_address at, int token) {
        const auto get = [&](int kind, uint32_t(&to)[WINDOW]) {
#pragma unroll
            for (int u = 0; u < WINDOW; u += 4) {
                const uint4 four = shared_words(at + (kind * REDUCE_BLOCK + u) * 4, token);
                to[u] = four.x, to[u + 1] = four.y, to[u + 2] = four.z, to[u + 3] = four.w;
            }
        };
        get(0, place), get(1, factor), get(2, dim);
    }
};

/* This lane's columns of the rows of a window, times their coefficients. Bits: four elements. All loads come before the
 * first use of one, so none is behind a branch: lanes without a column load one. */
template <class Bits, int WINDOW>
static __device__ __forceinline__ void load_whole(const struct runs &r,
                                                  const struct known_window<WINDOW> &known,
                                                  int32_t column, struct quad (&q)[WINDOW]) {
    Bits bits[WINDOW];
#pragma unroll
    for (int u = 0; u < WINDOW; u++) {
        const char *row = (const char *)r.source + (int64_t)known.place[u] * r.unit_bytes;
        bits[u] =
            __ldg((const Bits *)row + (column < (int32_t)known.dim[u] ? column / LANE_COLUMNS : 0));
    }
#pragma unroll
    for (int u = 0; u < WINDOW; u++)
        q[u] = column < (int32_t)known.dim[u]
                   ? quad_scale(quad_widen(r.type, bits[u]), __uint_as_float(known.factor[u]))
                   : quad{};
}

template <int LANES, bool WHOLE>
static __global__ void __launch_bounds__(REDUCE_BLOCK, 6)
    sum_compact(const __grid_constant__ struct runs r) {
    enum { WINDOW = LANES < FLIGHT ? LANES : (int)FLIGHT };
    SHARED(uint4, tile, 3 * REDUCE_BLOCK / 4);
    const shared_address mine_at = shared_address_of(tile) + 4 * threadIdx.x;
    const unsigned lane = threadIdx.x % LANES, first_lane = threadIdx.x % WARP - lane;
    const uint32_t number = (blockIdx.x * REDUCE_BLOCK + threadIdx.x) / LANES;
    const struct keys keys = keys_of(r);
    const struct chunk c = chunk_of<LANES>(keys, number, (uint32_t)r.tree.chunk, (int)lane);
    float *first = c.begin < c.end ? compact_row(r.compact, c.begin) : NULL;
    int32_t table = 0;
    for (int32_t column = (int32_t)lane * LANE_COLUMNS;
         column - (int32_t)lane * LANE_COLUMNS < r.stride; column += LANES * LANE_COLUMNS) {
        const bool mine = column < r.stride;
        struct quad sum = {};
        float *open = c.open ? part_of_chunk(r, number, false) : NULL;
        float *to = first + column;
        for (uint32_t at = c.begin; __any_sync(ALL_LANES, at < c.end); at += WINDOW) {
            struct known_entry known = {};
            if (lane < WINDOW && at + lane < c.end) known = entry_at(r, keys, at + lane, &table);
            const unsigned ends = __ballot_sync(ALL_LANES, known.ends) >> first_lane;
            __syncwarp(ALL_LANES); /* all have read the last window */
            shared_put(mine_at, known.place);
            shared_put(mine_at + 4 * REDUCE_BLOCK, known.factor);
            shared_put(mine_at + 8 * REDUCE_BLOCK, (uint32_t)known.dim);
            __syncwarp(ALL_LANES);
            const struct known_window<WINDOW> window(mine_at - 4 * lane, (int)at);
            struct quad q[WINDOW];
            if (WHOLE && r.type == FP32)
                load_whole<uint4>(r, window, column, q);
            else if (WHOLE)
                load_whole<uint2>(r, window, column, q);
            else
#pragma unroll
                for (int u = 0; u < WINDOW; u++)
                    q[u] = column < (int32_t)window.dim[u]
                               ? summand_of(r, window.place[u], window.factor[u], column,
                                            (int32_t)window.dim[u])
                               : quad{};
#pragma unroll
            for (int u = 0; u < WINDOW; u++) {
                sum = quad_sum(sum, q[u]);
                if (!(ends >> u & 1)) continue;
                if (mine) *(struct quad *)(open ? open + column : to) = sum;
                sum = {};
                open = NULL;
                to += r.compact.stride;
            }
        }
        if (c.goes_on && mine)
            *(struct quad *)(open ? open + column : part_of_chunk(r, number, true) + column) = sum;
    }
}

cudaError_t runs_reduce(const struct runs *r, cudaStream_t stream) {
    if (r->entries.count == 0) return cudaSuccess;
    const int lanes = lanes_of_cover(cover_of(r->dim));
    auto kernel = lanes == 4    ? r->whole ? sum_compact<4, true> : sum_compact<4, false>
                     : lanes == 8 ? r->whole ? sum_compact<8, true> : sum_compact<8, false>
                     : lanes == 16 ? r->whole ? sum_compact<16, true> : sum_compact<16, false>
                     : r->whole ? sum_compact<32, true>
                                : sum_compact<32, false>;
    LAUNCH(kernel, blocks_for(r->tree.count[0], REDUCE_BLOCK / lanes), REDUCE_BLOCK, 0, stream, *r);
    if (r->tree.levels > 1) tree_enqueue(r, stream);
    return cudaGetLastError();
}
