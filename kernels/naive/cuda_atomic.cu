/* SPDX-License-Identifier: MIT
 *
 * Atomic scatter into a gradient of the touched rows: lookups mark their rows in a bitmap. The rank
 * of a row in the bitmap is its place in a compact gradient. Every lookup adds to this gradient
 * atomically, and a separate kernel updates the touched rows: the dense baseline without untouched
 * rows.
 *
 * Who owns what: a thread per lookup marks the bitmap, a thread per word ranks it; scatter.cuh; a
 * group of lanes updates a row (compact.cuh).
 * Scratch and traffic: 3/8 byte per row of the tables; [touchable][dim] floats, zeroed, added to
 * atomically, read once.
 * Not deterministic: atomics come in any order.
 * Measured on an H200 (docs/cuda.md): on a par with cuda_sort if lookups are uniform; hot rows make atomics queue up.
 */
#include "kernels/device/classes.cuh"
#include "kernels/device/runs.cuh"
#include "kernels/device/scatter.cuh"
#include "kernels/device/sort.h"

struct marks {
    uint32_t *bits;  /* [words] bit r of the bitmap: row number r is touched */
    uint32_t *count; /* [words] bits in each */
    uint32_t *rank;  /* [words] bits in all earlier words */
    int64_t words;
};

struct layout {
    struct marks marks;
    float *scale;
    uint32_t *touched; /* number of touched rows */
    uint32_t *key;     /* [touchable] their row numbers */
    struct compact compact;
    void *temp;
    size_t temp_bytes;
};

static size_t lay_out(struct layout *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    int64_t words = (all_rows(in) + 31) / 32, rows = touchable_rows(in), stride = row_stride(in);
    p->scale = mean_scales_take(&s, in);
    p->marks.words = words;
    p->marks.bits = (uint32_t *)scratch_take(&s, words, sizeof(uint32_t));
    p->marks.count = (uint32_t *)scratch_take(&s, words, sizeof(uint32_t));
    p->marks.rank = (uint32_t *)scratch_take(&s, words, sizeof(uint32_t));
    p->touched = (uint32_t *)scratch_take(&s, 1, sizeof(uint32_t));
    p->key = (uint32_t *)scratch_take(&s, rows, sizeof *p->key);
    float *grad = (float *)scratch_take(&s, rows * stride, sizeof *grad);
    p->compact = {p->key, NULL, p->touched, grad, stride};
    p->temp_bytes = 0;
    prefix_sums(NULL, &p->temp_bytes, NULL, NULL, (uint32_t)words, NULL);
    p->temp = scratch_take(&s, (int64_t)p->temp_bytes, 1);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct layout p;
    return lay_out(&p, shape, NULL);
}

static __device__ inline int64_t row_number(const struct table_shape *tables,
                                            const struct lookup &l) {
    return tables[l.table].first_row + l.row;
}

static __global__ void __launch_bounds__(LOOKUP_BLOCK)
    mark_rows(const struct batch in, const float *scale, uint32_t *bits) {
    int64_t i = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x, last = in.lookups - 1;
    const struct lookup l = lookup_of_thread(in, scale, i);
    if (i > last || l.padding) return;
    int64_t row = row_number(in.device_tables, l);
    atomicOr(&bits[row / 32], 1u << row % 32);
}

static __global__ void __launch_bounds__(LOOKUP_BLOCK) count_marks(const struct marks m) {
    int64_t w = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x;
    if (w < m.words) m.count[w] = (uint32_t)__popc(m.bits[w]);
}

/* A thread per word lists the row numbers of its bits; the last thread sets the total. */
static __global__ void __launch_bounds__(LOOKUP_BLOCK)
    list_rows(const struct marks m, uint32_t *key, uint32_t *touched) {
    int64_t w = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x;
    if (w >= m.words) return;
    uint32_t next = m.rank[w];
    for (uint32_t left = m.bits[w]; left; left &= left - 1, next++)
        key[next] = (uint32_t)w * 32 + (uint32_t)(__ffs((int)left) - 1);
    if (w == m.words - 1) *touched = next;
}

/* A thread per 16 bytes of the gradients of touched rows. */
static __global__ void __launch_bounds__(LOOKUP_BLOCK) zero_rows(const struct compact c) {
    int64_t quads = *c.runs * c.stride / LANE_COLUMNS;
    int64_t i = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x;
    if (i < quads) ((float4 *)c.grad)[i] = make_float4(0, 0, 0, 0);
}

struct to_touched {
    const struct table_shape *tables;
    struct marks marks;
    float *grad;
    int64_t stride;

    __device__ struct destination operator()(const struct lookup &l) const {
        int64_t row = row_number(tables, l);
        unsigned below = marks.bits[row / 32] & ((1u << row % 32) - 1u);
        return {grad + (marks.rank[row / 32] + (int64_t)__popc(below)) * stride, 1.0f};
    }
};

static cudaError_t enqueue_index(struct layout *p, const struct batch *in, cudaStream_t stream) {
    struct marks m = p->marks;
    unsigned blocks = blocks_for(m.words, LOOKUP_BLOCK);
    mean_scales_fill(in, p->scale, stream);
    cudaError_t status = cudaMemsetAsync(m.bits, 0, (size_t)m.words * sizeof *m.bits, stream);
    if (status != cudaSuccess) return status;
    LAUNCH(mark_rows, blocks_for(in->lookups, LOOKUP_BLOCK), LOOKUP_BLOCK, 0, stream, *in, p->scale,
           m.bits);
    LAUNCH(count_marks, blocks, LOOKUP_BLOCK, 0, stream, m);
    status = prefix_sums(p->temp, &p->temp_bytes, m.count, m.rank, (uint32_t)m.words, stream);
    if (status != cudaSuccess) return status;
    LAUNCH(list_rows, blocks, LOOKUP_BLOCK, 0, stream, m, p->key, p->touched);
    return cudaGetLastError();
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct layout p;
    lay_out(&p, in, how->scratch);
    cudaError_t status = in->lookups ? enqueue_index(&p, in, stream) : cudaSuccess;
    stage_done(how, STAGE_INDEX);
    int64_t quads = touchable_rows(in) * p.compact.stride / LANE_COLUMNS;
    if (status == cudaSuccess && in->lookups)
        LAUNCH(zero_rows, blocks_for(quads, LOOKUP_BLOCK), LOOKUP_BLOCK, 0, stream, p.compact);
    stage_done(how, STAGE_ZERO);
    struct to_touched to = {in->device_tables, p.marks, p.compact.grad, p.compact.stride};
    if (status == cudaSuccess) status = scatter_enqueue(in, p.scale, to, stream);
    stage_done(how, STAGE_REDUCE);
    const struct row_list rows =
        compact_list(&p.compact, (uint32_t)all_rows(in), target_of(in, steps, io));
    if (status == cudaSuccess && in->lookups)
        status = rows_update(&rows, touchable_rows(in), in, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}

DEFINE_KERNEL(cuda_atomic) = {
    .name = "cuda_atomic",
    .label = "CUDA atomic scatter",
    .idea =
        "Every lookup adds its gradient row atomically to a buffer of touched rows; then update.",
    .place = ON_DEVICE,
    .traits = 0,
    .accepts = rows_refuse,
    .variant = rows_variant,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
