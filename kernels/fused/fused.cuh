/* SPDX-License-Identifier: MIT
 *
 * The two halves of the fused kernels: the index, which needs only the ids, and the sum with the
 * update. The kernels differ in when they do the first half.
 */
#pragma once

#include "kernels/device/runs.cuh"
#include "kernels/device/small.cuh"
#include "kernels/device/sorted.cuh"

struct fused {
    struct small small;
    struct sorted sorted; /* the lookups of tables that are not small */
    struct runs runs;
};

static size_t fused_lay_out(struct fused *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    small_lay_out(&p->small, &s, in);
    int64_t entries = in->lookups - p->small.lookups;
    sorted_lay_out(&p->sorted, &s, in, entries);
    runs_lay_out(&p->runs, &s, in, entries);
    return s.used;
}

static size_t fused_scratch_bytes(const struct batch *shape, int) {
    struct fused p;
    return fused_lay_out(&p, shape, NULL);
}

static const char *fused_accepts(const struct batch *in) {
    return in->num_tables > 65535 ? "more than 65535 tables" : entries_refuse(in);
}

/* Enqueues the first half. */
static cudaError_t fused_index(struct fused *p, const struct batch *in, cudaStream_t stream) {
    const struct before *before = p->small.before;
    mean_scales_fill(in, p->sorted.scale, stream);
    if (before) small_count(&p->small, in, stream);
    return sorted_fill(&p->sorted, in, before, p->runs.arrived, inner_nodes(&p->runs.tree), stream);
}

/* Enqueues the second half, on the entries of the first half. */
static cudaError_t fused_update(struct fused *p, const struct batch *in,
                                const struct rule_step *steps, const struct table *io,
                                cudaStream_t stream) {
    p->runs.entries = sorted_entries(&p->sorted);
    p->runs.target = target_of(in, steps, io);
    cudaError_t status = small_run(&p->small, in, p->sorted.scale, &p->runs.target, stream);
    return status == cudaSuccess ? runs_update(&p->runs, in, stream) : status;
}
