/* SPDX-License-Identifier: MIT
 *
 * The compact gradient by a sort: entries are sorted by row (sorted.cuh), CUB encodes runs and scans their
 * lengths; then the kernel of cuda_fused (runs.cuh) sums runs into a [touched][stride] gradient, padding included.
 *
 * Scratch and traffic per lookup: the bytes of cuda_fused, 12 bytes for the runs (their lengths are zeroed first,
 * because only the device knows the number of runs), and [touchable][stride] floats.
 */
#pragma once

#include "kernels/device/classes.cuh"
#include "kernels/device/runs.cuh"
#include "kernels/device/sorted.cuh"

struct compact_sort {
    struct sorted sorted;
    struct runs runs;
    struct counters counters;
    uint32_t *key;            /* [lookups] unique keys */
    uint32_t *length, *begin; /* [lookups] of their runs */
    uint32_t *count;
    void *encode_temp, *sum_temp;
    size_t encode_bytes, sum_bytes;
};

static inline void compact_sort_lay_out(struct compact_sort *p, const struct batch *in,
                                        struct scratch *s) {
    uint32_t lookups = (uint32_t)in->lookups;
    index_lay_out(&p->sorted, s, in, largest_key(in));
    runs_lay_out(&p->runs, s, in, in->lookups, widest(in));
    p->counters = counters_take(&p->runs, 1, s);
    p->key = (uint32_t *)scratch_take(s, in->lookups, sizeof *p->key);
    p->length = (uint32_t *)scratch_take(s, in->lookups, sizeof *p->length);
    p->begin = (uint32_t *)scratch_take(s, in->lookups, sizeof *p->begin);
    p->count = (uint32_t *)scratch_take(s, 1, sizeof *p->count);
    p->encode_bytes = p->sum_bytes = 0;
    run_lengths(NULL, &p->encode_bytes, NULL, NULL, NULL, NULL, lookups, NULL);
    prefix_sums(NULL, &p->sum_bytes, NULL, NULL, lookups, NULL);
    p->encode_temp = scratch_take(s, (int64_t)p->encode_bytes, 1);
    p->sum_temp = scratch_take(s, (int64_t)p->sum_bytes, 1);
    int64_t stride = row_stride(in);
    float *grad = (float *)scratch_take(s, touchable_rows(in) * stride, sizeof *grad);
    p->runs.compact = {p->key, p->begin, p->count, grad, stride};
}

static inline cudaError_t compact_sort_runs(struct compact_sort *p, uint32_t lookups,
                                            cudaStream_t stream) {
    struct entries e = p->runs.entries;
    if (lookups == 0) return cudaSuccess;
    cudaError_t status = cudaMemsetAsync(p->length, 0, lookups * sizeof *p->length, stream);
    if (status == cudaSuccess)
        status = run_lengths(p->encode_temp, &p->encode_bytes, e.key, p->key, p->length, p->count,
                             lookups, stream);
    if (status == cudaSuccess)
        status = prefix_sums(p->sum_temp, &p->sum_bytes, p->length, p->begin, lookups, stream);
    return status;
}

/* Enqueues the sort, and the search for runs. */
static inline cudaError_t compact_sort_index(struct compact_sort *p, const struct batch *in,
                                             cudaStream_t stream) {
    mean_scales_fill(in, p->sorted.scale, stream);
    cudaError_t status = index_fill(&p->sorted, in, p->counters.at, p->counters.count, stream);
    p->runs.entries = index_entries(&p->sorted);
    if (status == cudaSuccess) status = compact_sort_runs(p, (uint32_t)in->lookups, stream);
    return status;
}
