/* SPDX-License-Identifier: MIT
 *
 * Sort-then-reduce: sort entries by row, sum the gradients of every run into a compact
 * [touched][dim] gradient, then apply the optimizer in a separate kernel.
 *
 * Who owns what: the sort is that of cuda_fused (sorted.cuh); CUB encodes runs and scans their
 * lengths. The kernel of cuda_fused (runs.cuh) sums runs, here into the compact gradient. A group of lanes updates a
 * row.
 * Scratch and traffic per lookup: as in cuda_fused, plus 12 bytes for the runs (their lengths are
 * zeroed first, because only the device knows the number of runs), plus [touchable][dim] floats,
 * written and read once.
 * Deterministic: the shape of every sum depends only on the batch.
 * Loses to cuda_fused by the gradient's round trip and the list of runs.
 * Source: coalesce() of a sparse tensor (PyTorch); the backward of cuEmbed and
 * distributed-embeddings.
 */
#include "kernels/device/compact_sort.cuh"

static size_t lay_out(struct compact_sort *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    compact_sort_lay_out(p, in, &s);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct compact_sort p;
    return lay_out(&p, shape, NULL);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct compact_sort p;
    lay_out(&p, in, how->scratch);
    p.runs.target = target_of(in, steps, io);
    cudaError_t status = compact_sort_index(&p, in, stream);
    stage_done(how, STAGE_INDEX);
    if (status == cudaSuccess) status = runs_reduce(&p.runs, stream);
    stage_done(how, STAGE_REDUCE);
    const struct row_list rows =
        compact_list(&p.runs.compact, p.runs.entries.padding, p.runs.target);
    if (status == cudaSuccess && in->lookups)
        status = rows_update(&rows, touchable_rows(in), in, stream);
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
    .variant = rows_variant,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
