/* SPDX-License-Identifier: MIT */
#include "kernels/device/lean.h"
#include "kernels/device/sums.cuh"

template <int TILES, bool UPDATES>
static __global__ void __launch_bounds__(BLOCK_OF<TILES>, blocks_at_once(TILES))
    sum_runs(const __grid_constant__ struct runs r, int count) {
    sum_tree<TILES, UPDATES ? ANY_RULE : NO_RULE, loaded_rows<TILES>>(r, count);
}

static enum gradient_rows rows_of(const struct runs *r, const struct batch *in) {
    const int whole = LANE_COLUMNS * dtype_bytes(r->type);
    if (r->winners || !rows_are_whole(r, in, whole)) return ROWS_ANY;
    return r->type == FP32 ? ROWS_FP32 : ROWS_16BIT;
}

typedef void sum_runs_fn(struct runs, int);

static cudaError_t enqueue(const struct runs *x, const struct batch *in, bool updates,
                           cudaStream_t stream) {
    struct runs r = *x;
    const struct cover c = cover_of(r.dim);
    if (r.entries.count == 0) return cudaSuccess;
    if (updates && lean_takes(&r)) return lean_update(&r, stream);
    r.rows = rows_of(&r, in);
    sum_runs_fn *sum =
        updates ? OF_TILES(sum_runs, c.tiles, true) : OF_TILES(sum_runs, c.tiles, false);
    LAUNCH(sum, blocks_for(r.tree.count[0], groups_of_block(c.count)), block_of_lanes(c.count), 0,
           stream, r, c.count);
    return cudaGetLastError();
}

cudaError_t runs_update(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue(r, in, true, stream);
}

cudaError_t runs_reduce(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue(r, in, false, stream);
}
