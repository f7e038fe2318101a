/* SPDX-License-Identifier: MIT */
#include "kernels/device/compact.cuh"
#include "kernels/device/lean.h"
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

/* The kind of all tables; ANY_KIND if they differ, or in the lanes of a row. */
static struct kind kind_of_all(const struct batch *in) {
    const struct kind first = kind_of(&in->tables[0]), any = {ANY_KIND, false};
    const struct cover cover = cover_of(in->tables[0].dim);
    for (int32_t t = 1; t < in->num_tables; t++) {
        const struct kind k = kind_of(&in->tables[t]);
        const struct cover c = cover_of(in->tables[t].dim);
        if (k.rule != first.rule || k.plain != first.plain || c.tiles != cover.tiles ||
            c.count != cover.count)
            return any;
    }
    return first;
}

cudaError_t compact_update(const struct compact *c, const struct target *to, const struct batch *in,
                           cudaStream_t stream) {
    struct entries e = entries_of(in);
    struct cover r = cover_of(widest(in));
    unsigned blocks = blocks_for(touchable_rows(in), groups_of_block(r.count));
    if (e.count == 0) return cudaSuccess;
    const struct kind kind = kind_of_all(in);
    if (lean_has(kind) && !e.wide_keys) {
        const struct row_list list = {
            (const uint32_t *)c->key, NULL, c->runs, (uint32_t)e.padding, c->grad,
            (uint32_t)c->stride,      *to};
        return lean_update_listed(&list, touchable_rows(in), kind, r, stream);
    }
    auto update = OF_TILES(update_compact, r.tiles);
    LAUNCH(update, blocks, block_of_lanes(r.count), 0, stream, *c, *to, e.wide_keys, e.padding,
           r.count);
    return cudaGetLastError();
}
