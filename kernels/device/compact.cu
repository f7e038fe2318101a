/* SPDX-License-Identifier: MIT */
#include "kernels/device/compact.cuh"

/* A group of lanes per row. padding: the key of padding. The bound of 1 block lets nvcc use as many
 * registers as it needs: by default it stops at 80, and a division spills. */
template <int TILES>
static __global__ void __launch_bounds__(block_of_tiles(TILES), 1)
    update_compact(const struct compact c, const struct target to, bool wide_keys, uint64_t padding,
                   int count) {
    struct lanes g = lanes_here(count);
    int64_t run = group_number(g);
    if (run >= *c.runs) return;
    uint64_t key = wide_keys ? ((const uint64_t *)c.key)[run] : ((const uint32_t *)c.key)[run];
    if (key == padding) return;
    int32_t t = table_of_key(to, key);
    row_update_from<TILES>(g, to, t, (int64_t)key - to.tables[t].first_row,
                           c.grad + run * c.stride);
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
