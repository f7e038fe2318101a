/* SPDX-License-Identifier: MIT
 *
 * Dense baseline: zero a gradient of all rows, add every lookup to it atomically, then sweep the
 * optimizer over all rows, touched or not.
 *
 * Who owns what: scatter.cuh for the gradient; a group of lanes sweeps a row.
 * Scratch and traffic: a float for every float of the tables, written twice, read once; and every
 * weight and state read and written once.
 * Not deterministic: atomics come in any order. Untouched rows take a step with a zero gradient:
 * for momentum and Adam this is another operation than the lazy step. If a zero gradient changes
 * nothing with a rule, the sweep skips rows with a zero gradient, so these keep their bits.
 * Measured on an H200 (docs/cuda.md): 13 to 21 times the time of cuda_fused on large tables, 1.5 times on tables in L2.
 * Cannot run if the gradient does not fit in device memory beside the tables.
 * Source: nn.Embedding(sparse=False) with a dense optimizer in PyTorch.
 */
#include "kernels/device/scan.cuh"
#include "kernels/device/scatter.cuh"
#include "kernels/device/target.cuh"
#include "kernels/device/update.cuh"

/* Floats of a table's gradient, rounded up so that the next gradient begins aligned. */
HOST_DEVICE int64_t table_floats(const struct table_shape *t) {
    return (t->rows * t->dim + LANE_COLUMNS - 1) / LANE_COLUMNS * LANE_COLUMNS;
}

struct plan {
    float *scale, *grad;
    int64_t *first; /* [num_tables] floats of grad before the table's */
    int64_t floats;
};

static size_t lay_out(struct plan *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    p->floats = 0;
    for (int32_t t = 0; t < in->num_tables; t++) p->floats += table_floats(&in->tables[t]);
    p->scale = mean_scales_take(&s, in);
    p->first = (int64_t *)scratch_take(&s, in->num_tables, sizeof *p->first);
    p->grad = (float *)scratch_take(&s, p->floats, sizeof *p->grad);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct plan p;
    return lay_out(&p, shape, NULL);
}

/* One block: sets first[]. */
static __global__ void __launch_bounds__(SCAN_BLOCK)
    find_first(const struct table_shape *tables, int32_t count, int64_t *first) {
    items_before<int64_t>(
        count, [&](int32_t t) { return table_floats(&tables[t]); },
        [&](int32_t t, int64_t floats) { first[t] = floats; });
}

struct to_gradient {
    const struct table_shape *tables;
    const int64_t *first;
    float *grad;

    __device__ struct destination operator()(const struct lookup &l) const {
        return {grad + first[l.table] + l.row * tables[l.table].dim, 1.0f};
    }
};

/* Whether all of a row is 0. All lanes of a warp call this. */
static __device__ bool is_zero(const struct lanes &g, const float *row, int32_t dim) {
    bool other = false;
    for (int32_t d = g.lane; d < dim; d += g.count) other |= row[d] != 0;
    return !lanes_any(g, other);
}

/* A group of lanes per row of any table. */
template <int TILES>
static __global__ void __launch_bounds__(BLOCK_OF<TILES>, 1)
    sweep(const struct target to, const int64_t *first, float *grad, int64_t rows, int count) {
    const struct lanes g = lanes_here(count);
    const int64_t number = group_number(g), key = number < rows ? number : rows - 1;
    const int32_t t = place_of_key(to, (uint64_t)key), dim = to.tables[t].dim;
    const int64_t row = key - to.tables[t].first_row;
    float *sum = grad + first[t] + row * dim;
    const bool idle = is_zero(g, sum, dim) && rule_keeps_idle(&to.steps[t].rule);
    row_update<TILES, BLOCK_OF<TILES>>(to, g, t, number < rows && !idle ? row : -1, sum);
}

static cudaError_t enqueue_sweep(const struct plan *p, const struct target &to,
                                 const struct batch *in, cudaStream_t stream) {
    struct cover c = cover_of(widest(in));
    int64_t rows = all_rows(in);
    unsigned blocks = blocks_for(rows, groups_of_block(c.count));
    auto update = OF_TILES(sweep, c.tiles);
    LAUNCH(update, blocks, block_of_lanes(c.count), 0, stream, to, p->first, p->grad, rows,
           c.count);
    return cudaGetLastError();
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct plan p;
    lay_out(&p, in, how->scratch);
    mean_scales_fill(in, p.scale, stream);
    LAUNCH(find_first, 1, SCAN_BLOCK, 0, stream, in->device_tables, in->num_tables, p.first);
    stage_done(how, STAGE_INDEX);
    cudaError_t status = cudaMemsetAsync(p.grad, 0, (size_t)p.floats * sizeof *p.grad, stream);
    stage_done(how, STAGE_ZERO);
    struct to_gradient to = {in->device_tables, p.first, p.grad};
    if (status == cudaSuccess) status = scatter_enqueue(in, p.scale, to, stream);
    stage_done(how, STAGE_REDUCE);
    if (status == cudaSuccess) status = enqueue_sweep(&p, target_of(in, steps, io), in, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}

DEFINE_KERNEL(cuda_dense) = {
    .name = "cuda_dense",
    .label = "CUDA dense baseline",
    .idea = "Zero a gradient of all rows, add lookups atomically, sweep the optimizer over all.",
    .place = ON_DEVICE,
    .traits = DENSE_GRAD | DENSE_STEP,
    .accepts = NULL,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
