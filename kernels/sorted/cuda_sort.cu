/* SPDX-License-Identifier: MIT
 *
 * Sort-then-reduce: sort entries by row, sum the gradients of every run into a compact
 * [touched][dim] gradient, then apply the optimizer in a separate kernel.
 *
 * Who owns what: CUB sorts, encodes runs and scans their lengths. The kernel of cuda_fused
 * (runs.cuh) sums runs, here into the compact gradient. A group of lanes updates a row.
 * Scratch and traffic per lookup: as in cuda_fused, plus 12 bytes for the runs (their lengths are
 * zeroed first, because only the device knows the number of runs), plus [touchable][dim] floats,
 * written and read once.
 * Deterministic: the shape of every sum depends only on the batch.
 * Loses to cuda_fused by the gradient's round trip, the list of runs, and the sort of small tables.
 * Source: coalesce() of a sparse tensor (PyTorch); the backward of cuEmbed and
 * distributed-embeddings.
 */
#include "kernels/device/compact.cuh"
#include "kernels/device/runs.cuh"
#include "kernels/device/sorted.cuh"

struct plan {
    struct sorted sorted;
    struct runs runs;
    void *key;                /* [lookups] unique keys */
    uint32_t *length, *begin; /* [lookups] of their runs */
    uint32_t *count;
    void *encode_temp, *sum_temp;
    size_t encode_bytes, sum_bytes;
};

static size_t lay_out(struct plan *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    uint32_t lookups = (uint32_t)in->lookups;
    sorted_lay_out(&p->sorted, &s, in, in->lookups);
    runs_lay_out(&p->runs, &s, in, in->lookups);
    bool wide = p->sorted.entries.wide_keys;
    p->key = scratch_take(&s, in->lookups, key_bytes(&p->sorted.entries));
    p->length = (uint32_t *)scratch_take(&s, in->lookups, sizeof *p->length);
    p->begin = (uint32_t *)scratch_take(&s, in->lookups, sizeof *p->begin);
    p->count = (uint32_t *)scratch_take(&s, 1, sizeof *p->count);
    p->encode_bytes = p->sum_bytes = 0;
    run_lengths(NULL, &p->encode_bytes, NULL, wide, NULL, NULL, NULL, lookups, NULL);
    prefix_sums(NULL, &p->sum_bytes, NULL, NULL, lookups, NULL);
    p->encode_temp = scratch_take(&s, (int64_t)p->encode_bytes, 1);
    p->sum_temp = scratch_take(&s, (int64_t)p->sum_bytes, 1);
    int64_t stride = row_stride(in);
    float *grad = (float *)scratch_take(&s, touchable_rows(in) * stride, sizeof *grad);
    p->runs.compact = {p->key, p->begin, p->count, grad, stride};
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct plan p;
    return lay_out(&p, shape, NULL);
}

static cudaError_t find_runs(struct plan *p, uint32_t lookups, cudaStream_t stream) {
    struct entries e = p->runs.entries;
    if (lookups == 0) return cudaSuccess;
    cudaError_t status = cudaMemsetAsync(p->length, 0, lookups * sizeof *p->length, stream);
    if (status == cudaSuccess)
        status = run_lengths(p->encode_temp, &p->encode_bytes, e.key, e.wide_keys, p->key,
                             p->length, p->count, lookups, stream);
    if (status == cudaSuccess)
        status = prefix_sums(p->sum_temp, &p->sum_bytes, p->length, p->begin, lookups, stream);
    return status;
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct plan p;
    lay_out(&p, in, how->scratch);
    mean_scales_fill(in, p.sorted.scale, stream);
    cudaError_t status =
        sorted_fill(&p.sorted, in, NULL, p.runs.arrived, inner_nodes(&p.runs.tree), stream);
    p.runs.entries = sorted_entries(&p.sorted);
    p.runs.target = target_of(in, steps, io);
    if (status == cudaSuccess) status = find_runs(&p, (uint32_t)in->lookups, stream);
    stage_done(how, STAGE_INDEX);
    if (status == cudaSuccess) status = runs_reduce(&p.runs, in, stream);
    stage_done(how, STAGE_REDUCE);
    if (status == cudaSuccess) status = compact_update(&p.runs.compact, &p.runs.target, in, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}

DEFINE_KERNEL(cuda_sort) = {
    .name = "cuda_sort",
    .label = "CUDA sort-then-reduce",
    .idea = "Sort lookups by row, sum runs into a compact gradient, update in a second pass.",
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = entries_refuse,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
