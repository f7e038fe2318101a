/* SPDX-License-Identifier: MIT
 *
 * The sums of runs.cuh into a compact gradient: no rule. A group of lanes takes a chunk, and walks it once for each tile
 * of columns, with several gradient rows in flight.
 */
#include "kernels/device/chunk.cuh"
#include "kernels/device/lean.h"
#include "kernels/device/summand.cuh"

enum { REDUCE_BLOCK = 128 };

/* What a lane knows of an entry. */
struct known_entry {
    uint32_t place, part;
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
    return {(uint32_t)value, value_part(r.entries, value), t->dim,
            i + 1 >= keys.count || keys.at[i + 1] != key};
}

/* Four columns of a whole gradient row. */
static __device__ inline struct quad whole_at(const struct runs &r, const struct known_entry &e,
                                              int32_t column) {
    const char *row = (const char *)r.source + (int64_t)e.place * r.unit_bytes;
    struct quad_bits bits = {};
    if (r.type == FP32) {
        const uint4 q = __ldg((const uint4 *)row + column / LANE_COLUMNS);
        bits = {{q.x, q.y, q.z, q.w}};
    } else {
        const uint2 q = __ldg((const uint2 *)row + column / LANE_COLUMNS);
        bits = {{q.x, q.y, 0, 0}};
    }
    return quad_scale(quad_widen(r.type, bits), __uint_as_float(e.part));
}

template <int LANES, bool WHOLE>
static __global__ void __launch_bounds__(REDUCE_BLOCK, 6)
    sum_compact(const __grid_constant__ struct runs r) {
    enum { WINDOW = LANES < FLIGHT ? LANES : (int)FLIGHT };
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
            struct quad q[WINDOW];
#pragma unroll
            for (int u = 0; u < WINDOW; u++) {
                const struct known_entry e = {__shfl_sync(ALL_LANES, known.place, u, LANES),
                                              __shfl_sync(ALL_LANES, known.part, u, LANES),
                                              __shfl_sync(ALL_LANES, known.dim, u, LANES), false};
                q[u] = {};
                if (column >= e.dim) continue;
                if constexpr (WHOLE)
                    q[u] = whole_at(r, e, column);
                else
                    q[u] = summand_of(r, e.place, e.part, column, e.dim);
            }
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
