/* SPDX-License-Identifier: MIT
 *
 * The two halves of the fused kernels: the index, which needs only the ids, and the sum with the
 * update. The kernels differ in when they do the first half. The template parameter Index sorts the entries. It is
 * struct sorted, or struct cub_sorted, which sorts by CUB.
 */
#pragma once

#include "kernels/device/classes.cuh"
#include "kernels/device/runs.cuh"
#include "kernels/device/scan.cuh"
#include "kernels/device/sorted.cuh"

struct rows_and_tables {
    int64_t rows;
    int32_t tables;
};

static __device__ inline struct rows_and_tables operator+(struct rows_and_tables x,
                                                          struct rows_and_tables y) {
    return {x.rows + y.rows, x.tables + y.tables};
}

/* Orders the tables by class. Runs as one block and fills the num_tables elements of range and of order. */
static __global__ void __launch_bounds__(SCAN_BLOCK)
    order_tables(const struct batch in, const struct classes c, struct key_range *range,
                 struct placed_table *order) {
    struct rows_and_tables before = {};
    for (int k = 0; k < c.count; k++) {
        const auto is_in = [&](int32_t t) { return class_of(c, &in.device_tables[t]) == k; };
        const auto get = [&](int32_t t) -> struct rows_and_tables {
            if (!is_in(t)) return {};
            return {in.device_tables[t].rows, 1};
        };
        const auto put = [&](int32_t t, struct rows_and_tables sum) {
            if (!is_in(t)) return;
            const struct rows_and_tables at = before + sum;
            range[t] = {at.rows, c.of[k].padding};
            order[at.tables] = {at.rows, t};
        };
        const struct rows_and_tables all =
            items_before<struct rows_and_tables>(in.num_tables, get, put);
        before = {c.of[k].padding + 1, before.tables + all.tables};
    }
}

template <class Index> struct fused {
    Index index;
    struct classes classes;
    struct key_range *ranges;   /* [num_tables]; NULL: one class */
    struct placed_table *order; /* the same */
    struct runs runs[CLASSES_MOST];
    struct counters counters;
};

template <class Index>
static size_t fused_lay_out(struct fused<Index> *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    p->classes = classes_of(in);
    const struct classes *c = &p->classes;
    const bool several = c->count > 1;
    index_lay_out(&p->index, &s, in, several ? c->of[c->count - 1].padding : largest_key(in));
    p->ranges = NULL;
    p->order = NULL;
    if (several) {
        p->ranges = (struct key_range *)scratch_take(&s, in->num_tables, sizeof *p->ranges);
        p->order = (struct placed_table *)scratch_take(&s, in->num_tables, sizeof *p->order);
    }
    p->index.entries.ranges = p->ranges;
    for (int k = 0; k < c->count; k++) {
        runs_lay_out(&p->runs[k], &s, in, c->of[k].entries, c->of[k].dim);
        p->runs[k].kind = c->of[k].kind;
    }
    p->counters = counters_take(p->runs, c->count, &s);
    return s.used;
}

template <class Index> static size_t fused_scratch_bytes(const struct batch *shape, int) {
    struct fused<Index> p;
    return fused_lay_out(&p, shape, NULL);
}

/* Lean code can sum only if gradient rows are aligned and no feature has a max. */
static const char *fused_variant(const struct batch *in) {
    const bool lean = !has_pooling(in, POOL_MAX) && grad_unit(in) % LANE_COLUMNS == 0;
    return lean ? rows_variant(in) : "general";
}

/* Enqueues the first half. */
template <class Index>
static cudaError_t fused_index(struct fused<Index> *p, const struct batch *in,
                               cudaStream_t stream) {
    mean_scales_fill(in, p->index.scale, stream);
    if (p->order)
        LAUNCH(order_tables, 1, SCAN_BLOCK, 0, stream, *in, p->classes, p->ranges, p->order);
    return index_fill(&p->index, in, p->counters.at, p->counters.count, stream);
}

/* The sorted entries of class k. */
template <class Index> static struct entries fused_entries(const struct fused<Index> *p, int k) {
    struct entries e = index_entries(&p->index);
    int64_t first = 0;
    for (int j = 0; j < k; j++) first += p->classes.of[j].entries;
    e.key += first;
    e.value = (char *)e.value + first * (int64_t)value_bytes(&e);
    e.count = p->classes.of[k].entries;
    if (p->order) e.padding = (uint32_t)p->classes.of[k].padding;
    return e;
}

/* Enqueues the second half, on the entries of the first half: a launch for each class. */
template <class Index>
static cudaError_t fused_update(struct fused<Index> *p, const struct batch *in,
                                const struct rule_step *steps, const struct table *io,
                                cudaStream_t stream) {
    struct target to = target_of(in, steps, io);
    cudaError_t status = cudaSuccess;
    to.order = p->order;
    for (int k = 0; k < p->classes.count && status == cudaSuccess; k++) {
        p->runs[k].entries = fused_entries(p, k);
        p->runs[k].target = to;
        status = runs_update(&p->runs[k], stream);
    }
    return status;
}

/* A whole step. */
template <class Index>
static int fused_run(const struct batch *in, const struct rule_step *steps, const struct table *io,
                     const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct fused<Index> p;
    fused_lay_out(&p, in, how->scratch);
    cudaError_t status = fused_index(&p, in, stream);
    stage_done(how, STAGE_INDEX);
    if (status == cudaSuccess) status = fused_update(&p, in, steps, io, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}
