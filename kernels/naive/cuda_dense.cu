/* SPDX-License-Identifier: MIT
 *
 * Dense baseline: zero a gradient of all rows, add every lookup to it atomically, then sweep the
 * optimizer over all rows, touched or not.
 *
 * Who owns what: scatter.cuh for the gradient; a warp lists 32 rows; rows_update() (runs.cuh) sweeps the list.
 * Scratch and traffic: a float for every float of the tables, written twice, read once or twice; a number for each row;
 * and every weight and state read and written once.
 * Not deterministic: atomics come in any order. Untouched rows take a step with a zero gradient:
 * for momentum and Adam this is another operation than the lazy step. If a zero gradient changes
 * nothing with a rule, the list leaves out rows with a zero gradient, so these keep their bits.
 * Measured on an H200 (docs/cuda.md): 13 to 21 times the time of cuda_fused on large tables, 1.5 times on tables in L2.
 * Cannot run if the gradient does not fit in device memory beside the tables.
 * Source: nn.Embedding(sparse=False) with a dense optimizer in PyTorch.
 */
#include "kernels/device/classes.cuh"
#include "kernels/device/runs.cuh"
#include "kernels/device/scan.cuh"
#include "kernels/device/scatter.cuh"

enum { LIST_BLOCK = 128 };

/* Floats of a table's gradient, rounded up so that the next gradient begins aligned. */
HOST_DEVICE int64_t table_floats(const struct table_shape *t) {
    return (t->rows * t->dim + LANE_COLUMNS - 1) / LANE_COLUMNS * LANE_COLUMNS;
}

struct layout {
    float *scale, *grad;
    int64_t *first; /* [num_tables] floats of grad before the table's */
    int64_t floats;
    uint32_t *listed, *key; /* rows that take a step: how many, and [all rows] which */
};

static size_t lay_out(struct layout *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    p->floats = 0;
    for (int32_t t = 0; t < in->num_tables; t++) p->floats += table_floats(&in->tables[t]);
    p->scale = mean_scales_take(&s, in);
    p->first = (int64_t *)scratch_take(&s, in->num_tables, sizeof *p->first);
    p->grad = (float *)scratch_take(&s, p->floats, sizeof *p->grad);
    p->listed = (uint32_t *)scratch_take(&s, 1, sizeof *p->listed);
    p->key = (uint32_t *)scratch_take(&s, all_rows(in), sizeof *p->key);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct layout p;
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
static __device__ bool is_zero(const float *row, int32_t dim) {
    bool other = false;
    for (int32_t d = (int32_t)threadIdx.x % WARP; d < dim; d += WARP) other |= row[d] != 0;
    return !__any_sync(ALL_LANES, other);
}

/* A warp takes 32 rows, and lists those that take a step. */
static __global__ void __launch_bounds__(LIST_BLOCK)
    list_rows(const struct target to, const int64_t *first, const float *grad, uint32_t rows,
              uint32_t *listed, uint32_t *key) {
    const uint32_t number = blockIdx.x * LIST_BLOCK + threadIdx.x, lane = threadIdx.x % WARP,
                   begin = number - lane, end = min(begin + WARP, rows);
    unsigned step = 0;
    for (uint32_t k = begin; k < end; k++) {
        const int32_t t = place_of_key(to, k), dim = to.tables[t].dim;
        const float *row = grad + first[t] + (k - to.tables[t].first_row) * dim;
        if (!rule_keeps_idle(&to.steps[t].rule) || !is_zero(row, dim)) step |= 1u << (k - begin);
    }
    uint32_t at = 0;
    if (lane == 0 && step) at = atomicAdd(listed, (uint32_t)__popc(step));
    at = __shfl_sync(ALL_LANES, at, 0);
    if (step >> lane & 1) key[at + (uint32_t)__popc(step & ((1u << lane) - 1u))] = number;
}

static cudaError_t enqueue_sweep(const struct layout *p, const struct target &to,
                                 const struct batch *in, cudaStream_t stream) {
    const uint32_t rows = (uint32_t)all_rows(in);
    cudaError_t status = cudaMemsetAsync(p->listed, 0, sizeof *p->listed, stream);
    if (status != cudaSuccess) return status;
    LAUNCH(list_rows, blocks_for(rows, LIST_BLOCK), LIST_BLOCK, 0, stream, to, p->first, p->grad,
           rows, p->listed, p->key);
    const struct row_list list = {p->key,  NULL, p->listed, rows, /* no row has that key */
                                  p->grad, 0,    p->first,  to};
    return rows_update(&list, rows, in, stream);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct layout p;
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
    .accepts = rows_refuse,
    .variant = rows_variant,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
