/* SPDX-License-Identifier: MIT */
#include "kernels/device/compact.cuh"
#include "kernels/device/update.cuh"

/* A group of lanes per row. padding: the key of padding. */
template <int TILES>
static __global__ void __launch_bounds__(BLOCK_OF<TILES>, 1)
    update_compact(const struct compact c, const struct target to, bool wide_keys, uint64_t padding,
                   int count) {
    const struct lanes g = lanes_here(count);
    const int64_t run = group_number(g), runs = *c.runs, at = run < runs ? run : 0;
    const uint64_t key = wide_keys ? ((const uint64_t *)c.key)[at] : ((const uint32_t *)c.key)[at];
    const bool has_row = run < runs && key != padding;
    const int32_t t = has_row ? place_of_key(to, key) : 0;
    row_update<TILES, BLOCK_OF<TILES>>(
        to, g, t, has_row ? (int64_t)key - to.tables[t].first_row : -1, c.grad + at * c.stride);
}

cudaError_t compact_update(const struct compact *c, const struct target *to, const struct batch *in,
                           cudaStream_t stream) {
    struct entries e = entries_of(in);
    struct cover r = cover_of(widest(in));
    unsigned blocks = blocks_for(touchable_rows(in), groups_of_block(r.count));
    if (e.count == 0) return cudaSuccess;
    auto update = OF_TILES(update_compact, r.tiles);
    LAUNCH(update, blocks, block_of_lanes(r.count), 0, stream, *c, *to, e.wide_keys, e.padding,
           r.count);
    return cudaGetLastError();
}
